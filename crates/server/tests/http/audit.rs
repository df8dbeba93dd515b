//! The record of who did what.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::audit::AuditFilter;
use tidemill::{Grant, Role};
use tidemill_testkit::eventually::eventually;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::kit::Kit;

over_both_stores!(
    acts_are_recorded_with_who_what_and_what_became_of_them,
    the_record_is_paged_and_filtered_and_for_admins_alone,
    a_refusal_is_completed_although_nobody_waits_for_it,
);

async fn acts(kit: &Kit, secret: &str, query: &str) -> Value {
    let path = format!("/v1/audit{query}");
    kit.ask(secret, Method::GET, &path, json!({})).await.is(200).body
}

async fn acts_are_recorded_with_who_what_and_what_became_of_them(kit: Kit) {
    let dead = {
        let worker = kit.work().await;
        let id = kit.enqueue(json!({ "kind": "fail" })).await;
        kit.finished(&id).await;
        worker.stop().await;
        id
    };
    let waiting = kit.enqueue(json!({ "kind": "echo", "payload": { "card": "visa-old" } })).await;
    kit.post("/v1/queues/mail:eu/pause", json!({})).await.is(200);
    let kit = kit.closed().await;
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let operator = kit.credential("ada", Grant::new(Role::Operator)).await;
    let viewer = kit.credential("eve", Grant::new(Role::Viewer)).await;
    let ask = async |secret: &str, method: Method, path: &str, body: Value| {
        kit.ask(secret, method, path, body).await
    };
    let edit = json!({ "payload": { "card": "visa-new" }, "priority": "high" });
    ask(&operator, Method::PATCH, &format!("/v1/jobs/{waiting}"), edit).await.is(200);
    let cancel = format!("/v1/jobs/{waiting}/cancel");
    ask(&viewer, Method::POST, &cancel, json!({})).await.refused(403, "role_refused", "");
    ask(&operator, Method::POST, &cancel, json!({})).await.is(200);
    let nobody = tidemill::JobId::new();
    let retry = format!("/v1/jobs/{nobody}/retry");
    ask(&operator, Method::POST, &retry, json!({})).await.refused(404, "job_unknown", "");
    let note = json!({ "ids": [dead], "text": "seen" });
    ask(&operator, Method::POST, "/v1/dead/notes", note).await.is(200);
    let plan = json!({ "act": "archive", "filter": { "ids": [dead] } });
    let plan = ask(&operator, Method::POST, "/v1/dead/plans", plan).await.is(201).body;
    let plan = plan["id"].as_str().unwrap();
    let apply = format!("/v1/dead/plans/{plan}/apply");
    ask(&operator, Method::POST, &apply, json!({})).await.is(200);
    let flow =
        json!({ "name": "order", "steps": [{ "name": "ship", "kind": "echo", "queue": "slow" }] });
    let flow = ask(&operator, Method::POST, "/v1/flows", flow).await.is(201).body;
    let flow = flow["id"].as_str().unwrap();
    let why = json!({ "reason": "out of stock" });
    ask(&operator, Method::POST, &format!("/v1/flows/{flow}/cancel"), why).await.is(200);
    let preview = json!({ "schedules": {}, "dry_run": true });
    ask(&operator, Method::PUT, "/v1/owners/billing/schedules", preview).await.is(200);
    let made = json!({ "name": "bob", "role": "viewer" });
    let made = ask(&admin, Method::POST, "/v1/tokens", made).await.is(201).body;
    let (made, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    // Nobody whom it knows, and nothing that changes.
    kit.post(&cancel, json!({})).await.refused(401, "credential_missing", "");
    ask(&operator, Method::GET, "/v1/dead", json!({})).await.is(200);
    ask(&operator, Method::POST, "/v1/jobs", json!({ "kind": "echo" })).await.is(201);

    let page = acts(&kit, &admin, "").await;
    let told: Vec<_> = page["acts"].as_array().unwrap().iter().rev().collect();
    let expected = [
        ("anonymous", "pause_queue", "queue", "mail:eu", "ok", ""),
        ("ada", "edit_job", "job", waiting.as_str(), "ok", "payload priority"),
        ("eve", "cancel_job", "job", &waiting, "role_refused", ""),
        ("ada", "cancel_job", "job", &waiting, "ok", ""),
        ("ada", "retry_job", "job", &nobody.to_string(), "job_unknown", ""),
        ("ada", "note_dead", "dead", &dead, "ok", &format!("noted 1 letter: {dead}")),
        ("ada", "plan_dead", "plan", plan, "ok", "archive 1 letter"),
        ("ada", "apply_plan", "plan", plan, "ok", "archive 1 letter"),
        ("ada", "cancel_flow", "flow", flow, "ok", "out of stock; 1 job"),
        ("ada", "declare_schedules", "schedule", "billing", "ok", "dry run: nothing was changed"),
        ("root", "create_token", "token", made, "ok", "bob, viewer"),
    ];
    assert_eq!(told.len(), expected.len(), "{page}");
    for (told, (who, act, kind, target, result, detail)) in told.iter().zip(expected) {
        let fields = ["who", "act", "target_kind", "target", "result", "detail"];
        let found = fields.map(|field| told[field].as_str().unwrap());
        assert_eq!(found, [who, act, kind, target, result, detail]);
        assert_eq!(told["credential"].is_string(), who != "anonymous");
        assert!(told["ended_at"].is_string(), "{told}");
    }
    let text = page.to_string();
    assert!(!text.contains("visa-old") && !text.contains("visa-new"), "no payload is in it");
    assert!(!text.contains(secret), "no secret is in it");
    kit.close().await;
}

async fn the_record_is_paged_and_filtered_and_for_admins_alone(kit: Kit) {
    let kit = kit.closed().await;
    let admin = kit.credential("root", Grant::new(Role::Admin)).await;
    let operator = kit.credential("ada", Grant::new(Role::Operator)).await;
    for queue in ["a", "b", "c"] {
        let path = format!("/v1/queues/{queue}/pause");
        kit.ask(&operator, Method::POST, &path, json!({})).await.is(200);
    }
    kit.ask(&admin, Method::POST, "/v1/queues/a/resume", json!({})).await.is(200);
    let refused = kit.ask(&operator, Method::GET, "/v1/audit", json!({})).await;
    refused.refused(403, "role_refused", "admin");
    let first = acts(&kit, &admin, "?limit=3").await;
    let next = first["next"].as_str().unwrap();
    let rest = acts(&kit, &admin, &format!("?limit=3&cursor={next}")).await;
    assert_eq!((rest["acts"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
    assert_eq!(rest["acts"][0]["target"], "a");
    for (query, count) in [
        ("?who=ada", 3),
        ("?act=resume_queue", 1),
        ("?target=a", 2),
        ("?target=a&who=root", 1),
        ("?since=2100-01-01T00:00:00Z", 0),
        ("?until=2100-01-01T00:00:00Z", 4),
    ] {
        let found = acts(&kit, &admin, query).await;
        assert_eq!(found["acts"].as_array().unwrap().len(), count, "{query}");
    }
    let wrong = kit.ask(&admin, Method::GET, "/v1/audit?whom=ada", json!({})).await;
    wrong.refused(400, "request_invalid", "whom");
    kit.close().await;
}

async fn a_refusal_is_completed_although_nobody_waits_for_it(kit: Kit) {
    let kit = kit.closed().await;
    let viewer = kit.credential("eve", Grant::new(Role::Viewer)).await;
    for _ in 0..50 {
        let mut stream = TcpStream::connect(kit.server.address()).await.unwrap();
        let request = format!(
            "POST /v1/queues/mail/pause HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {viewer}\r\n\
             content-length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    kit.server.stop().await;
    // What was begun is completed soon; without a result it would stay so.
    let filter = AuditFilter { act: Some("pause_queue".into()), limit: 100, ..Default::default() };
    let complete = async || {
        let acts = kit.mill.audit().list(&filter).await.unwrap();
        acts.iter().all(|act| act.result.as_deref() == Some("role_refused")).then_some(())
    };
    eventually("all refusals to be complete", Duration::from_secs(10), complete).await;
    kit.mill.close().await;
}
