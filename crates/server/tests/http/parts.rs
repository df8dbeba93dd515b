//! Flows that are built in parts, as a client of any language does it.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};
use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, Told};

over_both_stores!(
    a_flow_of_more_jobs_than_a_request_carries_is_built_in_parts,
    a_part_that_is_sent_again_is_answered_alike,
    what_is_wrong_with_a_part_is_named_and_nothing_is_added,
    what_could_never_work_does_not_begin,
    a_flow_that_is_being_built_is_seen_and_thrown_away,
    a_part_is_of_the_queues_and_the_tenant_of_its_sender,
    a_saga_takes_no_step_that_does_not_say_how_it_is_undone,
);

/// A flow with an empty step and one behind it; answers its path.
async fn building(kit: &Kit) -> String {
    let flow = json!({ "name": "campaign", "building": true, "steps": [
        { "name": "mail", "kind": "echo", "payloads": [] },
        { "name": "report", "kind": "echo", "after": ["mail"] },
    ] });
    let told = kit.post("/v1/flows", flow).await.is(201);
    told.header("location").to_owned()
}

fn mails(payloads: std::ops::Range<u32>) -> Value {
    let jobs: Vec<Value> = payloads.map(|n| json!({ "kind": "echo", "payload": n })).collect();
    json!({ "step": "mail", "jobs": jobs })
}

async fn send(kit: &Kit, flow: &str, key: &str, part: Value) -> Told {
    kit.send(Method::POST, &format!("{flow}/jobs"), &[("idempotency-key", key)], part).await
}

async fn jobs(kit: &Kit, flow: &str) -> Value {
    kit.get(flow).await.is(200).body["jobs"].clone()
}

async fn in_state(kit: &Kit, flow: &str, state: &str) -> Value {
    let found = eventually(state, Duration::from_mins(1), async || {
        Some(kit.get(flow).await.is(200).body).filter(|view| view["state"] == state)
    });
    found.await
}

async fn a_flow_of_more_jobs_than_a_request_carries_is_built_in_parts(kit: Kit) {
    let flow = building(&kit).await;
    for part in 0..7 {
        let part_of = mails(part * 1500..(part + 1) * 1500);
        let told = send(&kit, &flow, &part.to_string(), part_of).await.is(200);
        assert_eq!(told.body["jobs"], 1500);
    }
    let view = kit.get(&flow).await.is(200).body;
    assert_eq!((&view["state"], &view["jobs"]), (&json!("building"), &json!(10_501)));
    let begin = format!("{flow}/begin");
    for _ in 0..2 {
        let told = kit.post(&begin, json!({})).await.is(200).body;
        assert!(flow.ends_with(told["id"].as_str().unwrap()));
    }
    let view = kit.get(&flow).await.is(200).body;
    assert_eq!(view["state"], "running");
    kit.close().await;
}

async fn a_part_that_is_sent_again_is_answered_alike(kit: Kit) {
    let flow = building(&kit).await;
    for _ in 0..3 {
        assert_eq!(send(&kit, &flow, "1", mails(0..5)).await.is(200).body["jobs"], 5);
    }
    let other = send(&kit, &flow, "1", mails(0..6)).await;
    other.refused(422, "idempotency_key_reused", "another part");
    assert_eq!(jobs(&kit, &flow).await, 6);
    // Or each job has an id.
    let ids: Vec<Value> = (0..2)
        .map(|_| json!({ "kind": "echo", "id": tidemill::JobId::new(), "payload": 0 }))
        .collect();
    let part = json!({ "step": "mail", "jobs": ids });
    for added in [2, 0] {
        let told = kit.post(&format!("{flow}/jobs"), part.clone()).await.is(200);
        assert_eq!(told.body["jobs"], added);
    }
    kit.post(&format!("{flow}/begin"), json!({})).await.is(200);
    assert_eq!(send(&kit, &flow, "1", mails(0..5)).await.is(200).body["jobs"], 5, "still");
    let worker = kit.work().await;
    let view = in_state(&kit, &flow, "done").await;
    assert_eq!(view["done"], 8);
    worker.stop().await;
    kit.close().await;
}

async fn what_is_wrong_with_a_part_is_named_and_nothing_is_added(kit: Kit) {
    let flow = building(&kit).await;
    let path = format!("{flow}/jobs");
    kit.post(&path, mails(0..2)).await.refused(400, "idempotency_key_missing", "Idempotency-Key");
    for (part, status, code, says) in [
        (json!({ "step": "mial", "jobs": [{ "kind": "echo" }] }), 404, "step_unknown", "mial"),
        (
            json!({ "step": "mail", "jobs": [{ "kind": "echo" }, { "kind": "" }] }),
            400,
            "name_empty",
            "",
        ),
        (json!({ "step": "mail", "jbos": [] }), 400, "request_invalid", "jbos"),
        (
            json!({ "step": "mail", "jobs": [{ "kind": "echo" }, { "kind": "echo", "unique_key": "u" }] }),
            400,
            "flow_invalid",
            "unique key",
        ),
    ] {
        send(&kit, &flow, "1", part).await.refused(status, code, says);
    }
    assert_eq!(jobs(&kit, &flow).await, 1);
    let unknown = format!("/v1/flows/{}", tidemill::FlowId::new());
    send(&kit, &unknown, "1", mails(0..1)).await.refused(404, "flow_unknown", "");
    kit.post(&format!("{unknown}/begin"), json!({})).await.refused(404, "flow_unknown", "");
    kit.post(&format!("{unknown}/discard"), json!({})).await.refused(404, "flow_unknown", "");
    kit.post(&format!("{flow}/begin"), json!({})).await.is(200);
    send(&kit, &flow, "1", mails(0..1)).await.refused(409, "flow_not_now", "it has begun");
    let discard = kit.post(&format!("{flow}/discard"), json!({})).await;
    discard.refused(409, "flow_not_now", "it has begun");
    kit.close().await;
}

async fn what_could_never_work_does_not_begin(kit: Kit) {
    let flow = json!({ "name": "vote", "building": true, "steps": [
        { "name": "mail", "kind": "echo", "payloads": [] },
        { "name": "most", "kind": "echo", "after": ["mail"], "join": { "need": { "quorum": { "jobs": 3 } } } },
    ] });
    let told = kit.post("/v1/flows", flow).await.is(201);
    let flow = told.header("location").to_owned();
    send(&kit, &flow, "1", mails(0..2)).await.is(200);
    let begin = format!("{flow}/begin");
    kit.post(&begin, json!({})).await.refused(400, "flow_invalid", "most");
    send(&kit, &flow, "2", mails(2..3)).await.is(200);
    kit.post(&begin, json!({})).await.is(200);
    let saga = json!({ "name": "trip", "saga": true, "building": true, "steps": [
        { "name": "mail", "jobs": [{ "kind": "echo" }], "undo": { "kind": "echo" } },
    ] });
    let told = kit.post("/v1/flows", saga).await.is(201);
    let flow = told.header("location").to_owned();
    send(&kit, &flow, "1", mails(0..1)).await.refused(400, "flow_invalid", "mail");
    assert_eq!(jobs(&kit, &flow).await, 1);
    kit.close().await;
}

async fn a_flow_that_is_being_built_is_seen_and_thrown_away(kit: Kit) {
    let worker = kit.work().await;
    let flow = building(&kit).await;
    send(&kit, &flow, "1", mails(0..3)).await.is(200);
    let page = kit.get("/v1/flows?state=building").await.is(200).body;
    assert!(flow.ends_with(page["flows"][0]["id"].as_str().unwrap()));
    let discard = format!("{flow}/discard");
    let told = kit.post(&discard, json!({ "reason": "too late" })).await.is(200);
    assert_eq!(told.body["jobs"], 4);
    let view = in_state(&kit, &flow, "cancelled").await;
    assert_eq!((&view["reason"], &view["done"]), (&json!("too late"), &json!(0)));
    kit.post(&discard, json!({})).await.is(200);
    kit.post(&format!("{flow}/begin"), json!({})).await.refused(409, "flow_not_now", "cancelled");
    send(&kit, &flow, "2", mails(0..1)).await.refused(409, "flow_not_now", "cancelled");
    worker.stop().await;
    kit.close().await;
}

async fn a_part_is_of_the_queues_and_the_tenant_of_its_sender(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str, queue: &str| Grant {
        tenant: Some(tenant.into()),
        queues: vec![queue.into()],
        ..Grant::new(Role::Producer)
    };
    let acme = kit.credential("acme", of("acme", "mail")).await;
    let other = kit.credential("other", of("other", "mail")).await;
    let viewer = kit.credential("viewer", Grant::new(Role::Viewer)).await;
    let empty = json!({ "name": "f", "building": true, "steps": [{ "name": "mail", "jobs": [] }] });
    let told = kit.ask(&acme, Method::POST, "/v1/flows", empty).await;
    told.refused(400, "flow_invalid", "whose it is");
    let flow = json!({ "name": "f", "building": true, "steps": [
        { "name": "mail", "kind": "echo", "queue": "mail" },
    ] });
    let told = kit.ask(&acme, Method::POST, "/v1/flows", flow).await.is(201);
    let flow = told.header("location").to_owned();
    let part = |wish: Value| {
        let mut wish = wish;
        wish["kind"] = json!("echo");
        wish["id"] = json!(tidemill::JobId::new());
        json!({ "step": "mail", "jobs": [wish] })
    };
    let path = format!("{flow}/jobs");
    let ask =
        async |secret: &str, wish: Value| kit.ask(secret, Method::POST, &path, part(wish)).await;
    ask(&acme, json!({ "queue": "mail" })).await.is(200);
    ask(&acme, json!({})).await.refused(403, "queue_refused", "default");
    let theirs = json!({ "queue": "mail", "tenant": "other" });
    ask(&acme, theirs).await.refused(403, "tenant_refused", "other");
    ask(&other, json!({ "queue": "mail" })).await.refused(404, "flow_unknown", "");
    ask(&viewer, json!({})).await.refused(403, "role_refused", "viewer");
    for word in ["begin", "discard"] {
        let path = format!("{flow}/{word}");
        kit.ask(&other, Method::POST, &path, json!({})).await.refused(404, "flow_unknown", "");
    }
    let view = kit.ask(&viewer, Method::GET, &flow, json!({})).await.is(200).body;
    assert_eq!(view["jobs"], 2);
    let found = kit.ask(&viewer, Method::GET, "/v1/jobs?tenant=acme", json!({})).await.is(200);
    assert_eq!(found.body["jobs"].as_array().unwrap().len(), 2, "both are of its tenant");
    kit.ask(&acme, Method::POST, &format!("{flow}/begin"), json!({})).await.is(200);
    kit.close().await;
}

async fn a_saga_takes_no_step_that_does_not_say_how_it_is_undone(kit: Kit) {
    let saga = json!({ "name": "trip", "saga": true, "steps": [
        { "name": "list", "kind": "hand", "nothing_to_undo": true },
        { "name": "pay", "kind": "echo", "after": ["list"], "pivot": true },
    ] });
    let told = kit.post("/v1/flows", saga).await.is(201);
    let flow = told.header("location").to_owned();
    let card = json!({ "name": "hand", "queues": ["default"], "lease": "10m" });
    let worker = kit.post("/v1/workers", card).await.is(201);
    let place = format!("/v1/workers/{}", worker.body["id"].as_str().unwrap());
    let claim = kit
        .post(&format!("{place}/claim"), json!({ "queues": ["default"], "wait": "30s" }))
        .await
        .is(200)
        .body;
    let report = |step: Value| {
        json!({ "reports": [{
            "id": claim["jobs"][0]["id"], "token": claim["token"], "outcome": { "done": { "steps": [step] } },
        }] })
    };
    let settle = format!("{place}/settle");
    let step = json!({ "name": "more", "jobs": [{ "kind": "echo" }] });
    kit.post(&settle, report(step.clone())).await.refused(400, "flow_invalid", "more");
    let mut said = step;
    said["nothing_to_undo"] = json!(true);
    kit.post(&settle, report(said)).await.is(200);
    let running = kit.work().await;
    let view = in_state(&kit, &flow, "done").await;
    assert_eq!(view["done"], 3);
    running.stop().await;
    kit.close().await;
}
