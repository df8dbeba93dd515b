//! Flows and sagas.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

over_both_stores!(
    a_flow_is_started_once_looked_at_and_its_outputs_are_paged,
    a_flow_that_failed_is_resolved_and_run_again,
    a_flow_is_called_off,
    a_flow_for_a_full_queue_is_refused,
    what_is_wrong_with_a_flow_is_named,
    a_flow_is_of_the_tenant_of_its_jobs,
    who_acts_on_a_stuck_saga_says_why,
);

async fn started(kit: &Kit, flow: Value) -> String {
    let told = kit.post("/v1/flows", flow).await.is(201);
    let id = told.body["id"].as_str().unwrap().to_owned();
    assert_eq!(told.header("location"), format!("/v1/flows/{id}"));
    id
}

async fn in_state(kit: &Kit, id: &str, state: &str) -> Value {
    let path = format!("/v1/flows/{id}");
    let found = eventually(state, Duration::from_secs(30), async || {
        Some(kit.get(&path).await.is(200).body).filter(|view| view["state"] == state)
    });
    found.await
}

async fn a_flow_is_started_once_looked_at_and_its_outputs_are_paged(kit: Kit) {
    let id = tidemill::FlowId::new().to_string();
    let flow = json!({ "id": id, "name": "mails", "steps": [
        { "name": "all", "kind": "echo", "payloads": [1, 2, 3, 4, 5] },
        { "name": "report", "kind": "echo", "after": ["all"] },
    ] });
    assert_eq!(started(&kit, flow.clone()).await, id);
    let again = kit.post("/v1/flows", flow).await.is(200);
    assert_eq!((&again.body["id"], &again.body["answer"]), (&json!(id), &json!("existing")));
    let worker = kit.work().await;
    let view = in_state(&kit, &id, "done").await;
    assert_eq!((&view["jobs"], &view["steps"][1]["name"]), (&json!(6), &json!("report")));
    let counts = json!({ "jobs": 6, "done": 6, "failed": 0, "skipped": 0, "remaining": 0 });
    assert_eq!(view["progress"], counts);
    let path = format!("/v1/flows/{id}/outputs?step=all&limit=2");
    let (mut outputs, mut next) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("{path}{next}")).await.is(200).body;
        outputs
            .extend(page["outputs"].as_array().unwrap().iter().map(|one| one["output"].as_u64()));
        let Some(cursor) = page["next"].as_str() else { break };
        next = format!("&cursor={cursor}");
    }
    assert_eq!(outputs, [1, 2, 3, 4, 5].map(Some));
    kit.get(&format!("/v1/flows/{id}/outputs?step=x")).await.refused(404, "step_unknown", "x");
    let page = kit.get("/v1/flows?state=done&limit=1").await.is(200).body;
    assert_eq!(page["flows"][0]["id"], json!(id));
    let after = format!("/v1/flows?limit=1&cursor={}", page["next"].as_str().unwrap());
    assert_eq!(kit.get(&after).await.is(200).body["flows"], json!([]));
    let rerun =
        kit.post(&format!("/v1/flows/{id}/rerun"), json!({ "step": "report" })).await.is(200);
    assert_eq!(rerun.body["jobs"], 1);
    in_state(&kit, &id, "done").await;
    worker.stop().await;
    kit.close().await;
}

async fn a_flow_that_failed_is_resolved_and_run_again(kit: Kit) {
    let worker = kit.work().await;
    let flow = json!({ "name": "f", "steps": [
        { "name": "bad", "kind": "fail" }, { "name": "next", "kind": "echo", "after": ["bad"] },
    ] });
    let id = started(&kit, flow).await;
    in_state(&kit, &id, "failed").await;
    let act = async |word: &str, body| kit.post(&format!("/v1/flows/{id}/{word}"), body).await;
    act("retry", json!({ "step": "nowhere" })).await.refused(404, "step_unknown", "nowhere");
    assert_eq!(act("retry", json!({})).await.is(200).body["jobs"], 1);
    in_state(&kit, &id, "failed").await;
    let resolved = json!({ "step": "bad", "output": 7, "why": "done by hand" });
    act("resolve", resolved).await.is(200);
    let view = in_state(&kit, &id, "done").await;
    assert_eq!(view["steps"][1]["done"], 1);
    worker.stop().await;
    kit.close().await;
}

async fn a_flow_is_called_off(kit: Kit) {
    let flow = json!({ "name": "f", "steps": [{ "name": "a", "kind": "echo" }] });
    let id = started(&kit, flow).await;
    let path = format!("/v1/flows/{id}/cancel");
    kit.post(&path, json!({ "reason": "not needed" })).await.is(200);
    let view = in_state(&kit, &id, "cancelled").await;
    assert_eq!(view["reason"], "not needed");
    kit.post(&path, json!({})).await.refused(409, "flow_not_now", &id);
    let unknown = tidemill::FlowId::new();
    let path = format!("/v1/flows/{unknown}/cancel");
    kit.post(&path, json!({})).await.refused(404, "flow_unknown", &unknown.to_string());
    kit.close().await;
}

async fn a_flow_for_a_full_queue_is_refused(kit: Kit) {
    let rules = json!({ "depth_max": 1 });
    kit.send(Method::PUT, "/v1/queues/mail/rules", &[], rules).await.is(200);
    let flow = json!({ "name": "f", "steps": [
        { "name": "a", "kind": "echo", "queue": "mail" },
        { "name": "b", "kind": "echo", "queue": "mail", "after": ["a"] },
    ] });
    started(&kit, flow.clone()).await;
    let told = kit.post("/v1/flows", flow).await;
    assert!(told.header("retry-after").parse::<u64>().unwrap() >= 1);
    told.refused(429, "queue_full", "mail");
    let flows = kit.get("/v1/flows").await.is(200).body;
    assert_eq!(flows["flows"].as_array().unwrap().len(), 1, "{flows}");
    kit.close().await;
}

async fn what_is_wrong_with_a_flow_is_named(kit: Kit) {
    let step = json!({ "name": "a", "kind": "k", "after": ["b"] });
    let back = json!({ "name": "b", "kind": "k", "after": ["a"] });
    for (flow, code, says) in [
        (json!({ "name": "f", "stpes": [] }), "flow_invalid", "stpes"),
        (
            json!({ "name": "f", "steps": [{ "name": "a", "kind": "k", "aftre": ["b"] }] }),
            "flow_invalid",
            "aftre",
        ),
        (json!({ "name": "f", "steps": [step, back] }), "flow_cycle", "a"),
    ] {
        kit.post("/v1/flows", flow).await.refused(400, code, says);
    }
    assert_eq!(kit.get("/v1/flows").await.is(200).body["flows"], json!([]));
    kit.get("/v1/flows?state=odd").await.refused(400, "request_invalid", "odd");
    kit.close().await;
}

async fn a_flow_is_of_the_tenant_of_its_jobs(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", of("acme")).await;
    let other = kit.credential("other", of("other")).await;
    let flow = json!({ "name": "f", "steps": [{ "name": "a", "kind": "echo" }] });
    let told = kit.ask(&acme, Method::POST, "/v1/flows", flow).await.is(201);
    let path = format!("/v1/flows/{}", told.body["id"].as_str().unwrap());
    let view = kit.ask(&acme, Method::GET, &path, json!({})).await.is(200).body;
    let job = format!("/v1/jobs/{}", view["steps"][0]["first"].as_str().unwrap());
    let job = kit.ask(&acme, Method::GET, &job, json!({})).await.is(200).body;
    assert_eq!(job["tenant"], "acme", "it comes from the credential");
    kit.ask(&other, Method::GET, &path, json!({})).await.refused(404, "flow_unknown", "");
    let cancel = format!("{path}/cancel");
    kit.ask(&other, Method::POST, &cancel, json!({})).await.refused(404, "flow_unknown", "");
    let flow = json!({ "name": "f", "steps": [{ "name": "a", "kind": "echo", "tenant": "acme" }] });
    kit.ask(&other, Method::POST, "/v1/flows", flow).await.refused(403, "tenant_refused", "acme");
    kit.ask(&other, Method::GET, "/v1/flows", json!({})).await.refused(403, "tenant_refused", "");
    kit.close().await;
}

async fn who_acts_on_a_stuck_saga_says_why(kit: Kit) {
    let worker = kit.work().await;
    let undo = json!({ "kind": "fail", "payload": { "booking": 7 } });
    let flow = json!({ "name": "trip", "saga": true, "steps": [
        { "name": "hotel", "kind": "echo", "undo": undo },
        { "name": "card", "kind": "fail", "after": ["hotel"], "nothing_to_undo": true },
    ] });
    let id = started(&kit, flow).await;
    let view = in_state(&kit, &id, "stuck").await;
    let job = view["steps"][2]["first"].as_str().unwrap().to_owned();
    let (retry, again) = (format!("/v1/flows/{id}/retry"), format!("/v1/jobs/{job}/retry"));
    let resolve = format!("/v1/flows/{id}/resolve");
    for blank in [json!({}), json!({ "why": " " })] {
        kit.post(&retry, blank.clone()).await.refused(400, "why_missing", &id);
        kit.post(&again, blank).await.refused(400, "why_missing", &id);
    }
    kit.post("/v1/dead/replay", json!({ "ids": [job] })).await.refused(400, "why_missing", &id);
    let mended = json!({ "step": "undo hotel", "why": "" });
    kit.post(&resolve, mended).await.refused(400, "why_missing", &id);
    let mut expected = Vec::new();
    for (path, body, note) in [
        (&retry, json!({ "why": "it is back" }), "replayed: it is back"),
        (
            &again,
            json!({ "why": "by phone", "payload": { "booking": 8 } }),
            "replayed with another payload: by phone",
        ),
    ] {
        kit.post(path, body).await.is(200);
        expected.push(note);
        let dead = format!("/v1/dead?ids={job}");
        let notes = eventually("it is dead again", Duration::from_secs(30), async || {
            in_state(&kit, &id, "stuck").await;
            let letter = kit.get(&dead).await.is(200).body["letters"][0].clone();
            Some(letter).filter(|letter| letter["triage"] == "new")
        });
        let letter = notes.await;
        let notes: Vec<_> =
            letter["notes"].as_array().unwrap().iter().map(|note| &note["text"]).collect();
        assert_eq!(notes, expected);
    }
    let told = kit.get(&format!("/v1/jobs/{job}")).await.is(200).body;
    let payload = json!({
        "step": "hotel", "outcome": "done", "payload": { "booking": 8 }, "output": null,
    });
    assert_eq!(told["payload"], payload, "what it is told of its step stays");
    worker.stop().await;
    kit.close().await;
}
