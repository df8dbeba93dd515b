//! Runs of workflows.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Context, Grant, Limits, Payload, Role, Running, Settings};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

const PATIENCE: Duration = Duration::from_secs(30);

over_both_stores!(
    a_run_is_listed_looked_at_and_goes_on,
    a_run_answers_a_question,
    a_run_is_paused_forked_and_called_off_and_that_is_kept,
    a_signal_that_cannot_be_read_is_passed_over,
    what_is_no_run_is_told,
    an_object_is_of_a_tenant,
);

fn written(value: &Value) -> Payload {
    Payload::of(value, &Limits::default()).unwrap()
}

/// A worker for the kind `order`: a step, then an approval, then another step.
async fn orders(kit: &Kit) -> Running {
    let order = |_: Payload, cx: Context| async move {
        let priced: u32 = cx.step("price").run(|_| async { Ok(42) }).await?;
        let approved: Value = cx.signal("approve").await?;
        Ok(written(&json!({ "price": priced, "approved": approved })))
    };
    kit.mill.worker().handle_raw("order", Settings::default(), order).start().await.unwrap()
}

async fn waiting(kit: &Kit, id: &str) -> Value {
    let path = format!("/v1/workflows/{id}");
    eventually("the run waits", PATIENCE, async || {
        let told = kit.get(&path).await;
        (told.status == 200 && !told.body["waits"].is_null()).then_some(told.body)
    })
    .await
}

async fn a_run_is_listed_looked_at_and_goes_on(kit: Kit) {
    let worker = orders(&kit).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let id = kit.enqueue(json!({ "kind": "order" })).await;
        let view = waiting(&kit, &id).await;
        assert_eq!(view["waits"]["what"], json!(["signal approve"]));
        ids.push(id);
    }
    let page = kit.get("/v1/workflows?unfinished=true&limit=2&kind=order").await.is(200).body;
    let found = |page: &Value| -> Vec<Value> {
        page["runs"].as_array().unwrap().iter().map(|run| run["job"].clone()).collect()
    };
    assert_eq!(found(&page), [json!(ids[2]), json!(ids[1])], "newest first");
    let next = format!("/v1/workflows?cursor={}", page["next"].as_str().unwrap());
    assert_eq!(found(&kit.get(&next).await.is(200).body), [json!(ids[0])]);
    let history = kit.get(&format!("/v1/workflows/{}/history", ids[0])).await.is(200).body;
    assert!(history["journal"].to_string().contains("price"), "{history}");
    let signal = json!({ "name": "approve", "payload": true });
    kit.post(&format!("/v1/jobs/{}/signal", ids[0]), signal).await.is(202);
    assert_eq!(kit.finished(&ids[0]).await["output"], json!({ "price": 42, "approved": true }));
    worker.stop().await;
    kit.close().await;
}

async fn a_run_is_paused_forked_and_called_off_and_that_is_kept(kit: Kit) {
    let worker = orders(&kit).await;
    let id = kit.enqueue(json!({ "kind": "order" })).await;
    waiting(&kit, &id).await;
    let path = format!("/v1/workflows/{id}/acts");
    kit.post(&path, json!({ "act": "pause", "why": "look" })).await.is(200);
    assert_eq!(kit.get(&format!("/v1/workflows/{id}")).await.is(200).body["paused"], true);
    kit.post(&path, json!({ "act": "reset", "step": "nowhere" })).await.refused(
        409,
        "run_not_now",
        "nowhere",
    );
    kit.post(&path, json!({ "act": "resume" })).await.is(200);
    kit.post(&path, json!({ "act": "reset" })).await.refused(400, "request_invalid", "step");
    kit.post(&path, json!({ "act": "jump" })).await.refused(400, "request_invalid", "jump");
    let told =
        kit.post(&path, json!({ "act": "fork", "step": "price", "why": "again" })).await.is(200);
    let fork = told.body["fork"].as_str().unwrap().to_owned();
    waiting(&kit, &fork).await;
    kit.post(&path, json!({ "act": "cancel", "why": "enough" })).await.is(200);
    assert_eq!(kit.finished(&id).await["state"], "cancelled");
    let acts = kit.get(&path).await.is(200).body;
    let words: Vec<_> = acts.as_array().unwrap().iter().map(|act| act["act"].clone()).collect();
    assert_eq!(words, ["paused", "resumed", "forked", "cancelled"]);
    assert_eq!((&acts[0]["by"], &acts[0]["why"]), (&json!("http"), &json!("look")));
    worker.stop().await;
    kit.close().await;
}

async fn a_run_answers_a_question(kit: Kit) {
    let cart = |_: Payload, cx: Context| async move {
        let update = cx.update::<u32>("add").await?;
        let sum = update.value + 1;
        update.answer(&sum).await?;
        Ok(written(&json!(sum)))
    };
    let id = kit.enqueue(json!({ "kind": "cart" })).await;
    let path = format!("/v1/workflows/{id}/update");
    let question = json!({ "name": "add", "payload": 2, "id": "click-1" });
    let mut hasty = question.clone();
    hasty["timeout"] = "1ms".into();
    let late = kit.post(&path, hasty).await.refused(504, "wait_timeout", "click-1");
    assert_eq!(late.body["unknown"], true, "it is in the mailbox");
    let worker =
        kit.mill.worker().handle_raw("cart", Settings::default(), cart).start().await.unwrap();
    assert_eq!(kit.post(&path, question.clone()).await.is(200).body["answer"], 3);
    assert_eq!(kit.finished(&id).await["output"], 3);
    assert_eq!(kit.post(&path, question).await.is(200).body["answer"], 3, "the same again");
    let late = json!({ "name": "add", "payload": 2 });
    kit.post(&path, late).await.refused(409, "run_finished", &id);
    worker.stop().await;
    kit.close().await;
}

async fn a_signal_that_cannot_be_read_is_passed_over(kit: Kit) {
    let order = |_: Payload, cx: Context| async move {
        Ok(written(&json!(cx.signal::<u32>("count").await?)))
    };
    let worker =
        kit.mill.worker().handle_raw("order", Settings::default(), order).start().await.unwrap();
    let id = kit.enqueue(json!({ "kind": "order" })).await;
    let signal = async |payload: Value| {
        let signal = json!({ "name": "count", "payload": payload });
        kit.post(&format!("/v1/jobs/{id}/signal"), signal).await.is(202);
    };
    signal(json!("many")).await;
    let path = format!("/v1/workflows/{id}");
    let parked = eventually("the run is parked", PATIENCE, async || {
        let told = kit.get(&path).await;
        (!told.body["parked"].is_null()).then(|| told.body["parked"].clone())
    })
    .await;
    assert_eq!(parked["code"], "parked_signal_unreadable");
    let why = parked["why"].as_str().unwrap();
    assert!(why.contains("the signal \"count\" that came cannot be read"), "{why}");
    let why = kit.get(&format!("/v1/jobs/{id}/why")).await.is(200).body;
    assert!(why.to_string().contains("parked_signal_unreadable"), "{why}");
    let acts = format!("{path}/acts");
    kit.post(&acts, json!({ "act": "resume", "journal_entries_max": 5 })).await.refused(
        400,
        "journal_limit_invalid",
        "5 entries",
    );
    let longer = json!({ "act": "resume", "journal_entries_max": 200_000 });
    kit.post(&acts, longer).await.is(200);
    let parked = async || {
        let told = kit.get(&path).await.is(200).body;
        assert_eq!(told["journal_entries_max"], 200_000);
        (!told["parked"].is_null()).then_some(())
    };
    eventually("it is parked again", PATIENCE, parked).await;
    let skip = json!({ "act": "skip", "step": "count", "why": "a mistake" });
    kit.post(&acts, skip).await.is(200);
    signal(json!(7)).await;
    assert_eq!(kit.finished(&id).await["output"], 7);
    let acts = kit.get(&acts).await.is(200).body;
    assert_eq!(acts[1]["was"], json!({ "ok": "many" }));
    worker.stop().await;
    kit.close().await;
}

async fn what_is_no_run_is_told(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "echo" })).await;
    kit.get(&format!("/v1/workflows/{id}")).await.refused(404, "run_unknown", &id);
    kit.get(&format!("/v1/workflows/{id}/history")).await.refused(404, "run_unknown", &id);
    kit.get(&format!("/v1/workflows/{id}/acts")).await.refused(404, "run_unknown", &id);
    let unknown = tidemill::JobId::new();
    let path = format!("/v1/workflows/{unknown}");
    kit.get(&path).await.refused(404, "job_unknown", &unknown.to_string());
    kit.get("/v1/objects/cart?key=1").await.refused(404, "object_unknown", "cart/1");
    kit.get("/v1/objects/cart").await.refused(400, "request_invalid", "key");
    kit.close().await;
}

async fn an_object_is_of_a_tenant(kit: Kit) {
    let kit = kit.closed().await;
    let keep = |item: Payload, cx: Context| async move {
        cx.object::<Value>()?.set(&item.read()?)?;
        Ok(Payload::null())
    };
    let worker = kit.mill.worker().queues(["cart"]);
    let worker = worker.handle_raw("keep", Settings::default(), keep).start().await.unwrap();
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let (one, two) =
        (kit.credential("one", of("one")).await, kit.credential("two", of("two")).await);
    let all = kit.credential("all", Grant::new(Role::Operator)).await;
    let get = async |who: &str, path: &str| kit.ask(who, Method::GET, path, json!({})).await;
    for (who, item) in [(&one, "tea"), (&all, "cup")] {
        let wish = json!({ "kind": "keep", "payload": item, "queue": "cart", "key": "7", "ordered": "skip" });
        let told = kit.ask(who, Method::POST, "/v1/jobs", wish).await.is(201);
        let wait = format!("/v1/jobs/{}/wait?timeout=30s", told.body["id"].as_str().unwrap());
        assert_eq!(get(who, &wait).await.is(200).body["state"], "done");
    }
    let state = async |who: &str, path: &str| get(who, path).await.is(200).body["state"].clone();
    assert_eq!(state(&one, "/v1/objects/cart?key=7").await, "tea", "that of its tenant");
    assert_eq!(state(&one, "/v1/objects/cart?key=7&tenant=one").await, "tea");
    assert_eq!(state(&all, "/v1/objects/cart?key=7&tenant=one").await, "tea");
    assert_eq!(state(&all, "/v1/objects/cart?key=7").await, "cup", "that of none");
    get(&two, "/v1/objects/cart?key=7").await.refused(404, "object_unknown", "cart/7");
    get(&all, "/v1/objects/cart?key=7&tenant=two").await.refused(404, "object_unknown", "cart/7");
    get(&two, "/v1/objects/cart?key=7&tenant=one").await.refused(403, "tenant_refused", "one");
    worker.stop().await;
    kit.close().await;
}
