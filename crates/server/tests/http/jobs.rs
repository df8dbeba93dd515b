//! Jobs, from their enqueue to their end.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Payload, Role, Settings};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Notify;

use super::kit::Kit;

over_both_stores!(
    a_job_travels_with_the_trace_of_its_request,
    a_job_is_enqueued_worked_and_waited_for,
    who_prefers_to_wait_gets_the_result,
    a_request_that_is_sent_twice_makes_one_job,
    a_batch_is_written_wholly_or_not_at_all,
    a_batch_that_is_sent_twice_makes_its_jobs_once,
    a_batch_that_is_refused_for_its_key_is_not_written_in_part,
    pages_follow_each_other_without_a_gap,
    a_job_that_waits_is_called_off,
    a_dead_job_is_let_go_again_with_another_payload,
    a_job_that_waits_is_changed_and_what_stays_is_named,
    it_is_told_why_a_job_is_not_running,
    who_holds_a_unique_key_is_told_to_those_who_may_know,
    a_job_that_a_full_queue_diverts_says_where_it_is,
    a_duplicate_is_told_which_job_it_is_of,
    a_full_queue_says_when_to_come_back,
);

async fn a_job_is_enqueued_worked_and_waited_for(kit: Kit) {
    let wish =
        json!({ "kind": "echo", "payload": { "n": 9_007_199_254_740_993_u64 }, "tags": ["a"] });
    let told = kit.post("/v1/jobs", wish).await.is(201);
    assert_eq!(told.body["answer"], "enqueued");
    let id = told.body["id"].as_str().unwrap().to_owned();
    assert_eq!(told.header("location"), format!("/v1/jobs/{id}"));
    let view = kit.get(&format!("/v1/jobs/{id}")).await.is(200).body;
    assert_eq!((&view["state"], &view["options"]["tags"]), (&json!("ready"), &json!(["a"])));
    let late = kit.get(&format!("/v1/jobs/{id}/wait?timeout=1ms")).await.is(202);
    assert_eq!(late.body["state"], "ready");

    let worker = kit.work().await;
    let view = kit.finished(&id).await;
    assert_eq!(view["state"], "done");
    assert_eq!(view["output"], json!({ "n": 9_007_199_254_740_993_u64 }), "to the last digit");
    worker.stop().await;
    kit.close().await;
}

async fn who_prefers_to_wait_gets_the_result(kit: Kit) {
    let wish = json!({ "kind": "echo", "payload": "hello" });
    let prefer = async |prefer: &str, wish: &Value| {
        kit.send(Method::POST, "/v1/jobs", &[("prefer", prefer)], wish.clone()).await
    };
    let told = prefer("respond-async", &wish).await.is(202);
    assert_eq!(told.header("preference-applied"), "respond-async");
    let worker = kit.work().await;
    let told = prefer("wait=30", &wish).await.is(200);
    assert_eq!(
        (told.header("preference-applied"), &told.body["output"]),
        ("wait=30", &json!("hello"))
    );
    worker.stop().await;
    let told = prefer("wait=0", &wish).await.is(202);
    assert_eq!(told.body["answer"], "enqueued", "it is there, whoever gives up waiting");
    kit.close().await;
}

async fn a_request_that_is_sent_twice_makes_one_job(kit: Kit) {
    let send = async |key: &str, payload: u32| {
        let wish = json!({ "kind": "echo", "payload": { "n": payload } });
        kit.send(Method::POST, "/v1/jobs", &[("idempotency-key", key)], wish).await
    };
    let first = send("order-1", 1).await.is(201);
    let again = send("order-1", 1).await.is(201);
    assert_eq!(first.body["id"], again.body["id"]);
    assert_ne!(send("order-2", 1).await.is(201).body["id"], first.body["id"]);
    let reused = send("order-1", 2).await.refused(422, "idempotency_key_reused", "another job");
    assert_eq!(reused.body["job"], first.body["id"]);
    // Also when retention has left its result alone.
    let worker = kit.work().await;
    let id = first.body["id"].as_str().unwrap();
    assert_eq!(kit.finished(id).await["output"], json!({ "n": 1 }));
    worker.stop().await;
    assert_eq!(kit.mill.store().purge(&[id.parse().unwrap()]).await.unwrap(), 1);
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["bare"], true);
    let again = send("order-1", 1).await.is(201);
    assert_eq!(first.body["id"], again.body["id"]);
    // A job that had no payload says nothing of those that have one.
    let send_any = async |payload: Value| {
        let wish = json!({ "kind": "echo", "payload": payload });
        kit.send(Method::POST, "/v1/jobs", &[("idempotency-key", "none")], wish).await
    };
    let id = send_any(json!(null)).await.is(201).body["id"].clone();
    let worker = kit.work().await;
    kit.finished(id.as_str().unwrap()).await;
    worker.stop().await;
    send_any(json!(1)).await.refused(422, "idempotency_key_reused", "another job");
    send("", 1).await.refused(400, "idempotency_key_invalid", "between 1 and 128");
    let own = json!({ "kind": "echo", "unique_key": "u" });
    let own = kit.send(Method::POST, "/v1/jobs", &[("idempotency-key", "k")], own).await;
    own.refused(400, "wish_contradiction", "of its own");
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"].as_array().unwrap().len(), 3);
    kit.close().await;
}

async fn a_batch_is_written_wholly_or_not_at_all(kit: Kit) {
    let bad = json!({ "jobs": [{ "kind": "echo" }, { "kind": "" }] });
    let told = kit.post("/v1/jobs/batch", bad).await.refused(400, "name_empty", "job 1");
    assert_eq!(told.body["index"], 1);
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    let jobs: Vec<_> = (0..250).map(|n| json!({ "kind": "echo", "payload": n })).collect();
    let told = kit.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.is(201);
    let receipts = told.body["receipts"].as_array().unwrap();
    assert!(
        receipts.len() == 250 && receipts.iter().all(|receipt| receipt["answer"] == "enqueued")
    );
    kit.close().await;
}

async fn a_batch_that_is_sent_twice_makes_its_jobs_once(kit: Kit) {
    let send = async |last: u32| {
        let jobs = json!({ "jobs": [{ "kind": "echo", "payload": 1 }, { "kind": "echo", "payload": last }] });
        kit.send(Method::POST, "/v1/jobs/batch", &[("idempotency-key", "b")], jobs).await
    };
    let ids = |told: &super::kit::Told| {
        let receipts = told.body["receipts"].as_array().unwrap();
        receipts.iter().map(|receipt| receipt["id"].clone()).collect::<Vec<_>>()
    };
    let (first, again) = (send(2).await.is(201), send(2).await.is(201));
    assert_eq!(ids(&first), ids(&again));
    assert_eq!(
        send(3).await.refused(422, "idempotency_key_reused", "another job").body["index"],
        1
    );
    kit.close().await;
}

async fn a_batch_that_is_refused_for_its_key_is_not_written_in_part(kit: Kit) {
    let send = async |key: &str, payloads: &[u32]| {
        let job = |n: &u32| json!({ "kind": "echo", "payload": n });
        let jobs = json!({ "jobs": payloads.iter().map(job).collect::<Vec<_>>() });
        kit.send(Method::POST, "/v1/jobs/batch", &[("idempotency-key", key)], jobs).await
    };
    let count = async || {
        kit.get("/v1/jobs?limit=1000").await.is(200).body["jobs"].as_array().unwrap().len()
    };
    send("k", &[1, 2]).await.is(201);
    for other in [&[1, 99, 3][..], &[1, 2, 3], &[99, 2], &[99, 98, 97]] {
        send("k", other).await.refused(422, "idempotency_key_reused", "key");
        assert_eq!(count().await, 2, "{other:?}");
    }
    send("k", &[1, 2]).await.is(201);
    assert_eq!(count().await, 2);
    // Two that come at once, and differ.
    for round in 0..20 {
        let (before, key) = (count().await, format!("race-{round}"));
        let (one, other) = tokio::join!(send(&key, &[1, 2]), send(&key, &[1, 99, 3]));
        let written = if one.status == 201 { 2 } else { 3 };
        let (won, lost) = if one.status == 201 { (one, other) } else { (other, one) };
        won.is(201);
        // The shorter one may have come second: all that it names is there, but not as it says.
        lost.refused(422, "idempotency_key_reused", "key");
        assert_eq!(count().await, before + written);
    }
    kit.close().await;
}

async fn pages_follow_each_other_without_a_gap(kit: Kit) {
    let jobs: Vec<_> =
        (0..7).map(|n| json!({ "kind": "echo", "payload": n, "queue": "q" })).collect();
    let receipts = kit.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.is(201).body;
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = kit.get(&format!("/v1/jobs?queue=q&limit=3{cursor}")).await.is(200).body;
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
        let Some(next) = page.get("next") else { break };
        cursor = format!("&cursor={}", next.as_str().unwrap());
    }
    let mut all: Vec<_> = receipts["receipts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|receipt| receipt["id"].clone())
        .collect();
    all.reverse();
    assert_eq!(seen, all, "newest first");
    assert_eq!(kit.get("/v1/jobs?state=done").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn a_job_that_waits_is_called_off(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "echo", "delay": "1h" })).await;
    let told = kit.post(&format!("/v1/jobs/{id}/cancel"), json!({ "reason": "no more" })).await;
    assert_eq!(told.is(200).body["answer"], "cancelled");
    let view = kit.get(&format!("/v1/jobs/{id}")).await.is(200).body;
    assert_eq!((&view["state"], &view["error"]), (&json!("cancelled"), &json!("no more")));
    let again = kit.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.is(200);
    assert_eq!(again.body["answer"], "finished");
    let retry = kit.post(&format!("/v1/jobs/{id}/retry"), json!({})).await;
    retry.refused(409, "job_not_now", "cancelled");
    kit.close().await;
}

async fn a_dead_job_is_let_go_again_with_another_payload(kit: Kit) {
    let worker = kit.work().await;
    let id = kit.enqueue(json!({ "kind": "fail", "payload": 1 })).await;
    assert_eq!(kit.finished(&id).await["state"], "dead");
    let attempts = kit.get(&format!("/v1/jobs/{id}/attempts")).await.is(200).body;
    assert_eq!(attempts[0]["error"], "no such thing");
    worker.stop().await;
    let told = kit.post(&format!("/v1/jobs/{id}/retry"), json!({ "payload": { "n": 2 } })).await;
    let view = told.is(200).body;
    assert_eq!((&view["state"], &view["payload"]), (&json!("ready"), &json!({ "n": 2 })));

    let later = kit.enqueue(json!({ "kind": "echo", "delay": "1h" })).await;
    let told = kit.post(&format!("/v1/jobs/{later}/retry"), json!({})).await.is(200);
    assert_eq!(told.body["state"], "ready", "it need not wait for the clock");
    kit.close().await;
}

async fn a_job_that_waits_is_changed_and_what_stays_is_named(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "echo", "payload": 1, "attempts": 3 })).await;
    let path = format!("/v1/jobs/{id}");
    let tag = kit.get(&path).await.is(200).header("etag").to_owned();
    let edit = async |tag: &str, body| {
        let headers = [("if-match", tag)];
        kit.send(Method::PATCH, &path, &headers[..usize::from(!tag.is_empty())], body).await
    };
    let told = edit(&tag, json!({ "payload": { "n": 2 }, "priority": "urgent" })).await.is(200);
    assert_eq!(
        (&told.body["payload"], &told.body["priority"]),
        (&json!({ "n": 2 }), &json!("urgent"))
    );
    assert_eq!(told.body["options"]["retry"]["attempts_max"], 3, "what is not said stays");
    assert_ne!(told.header("etag"), tag);
    edit(&tag, json!({ "payload": 3 })).await.refused(412, "job_changed", &id);
    edit("x", json!({})).await.refused(400, "request_invalid", "ETag");
    let now = told.header("etag").to_owned();
    edit(&format!("W/{now}"), json!({ "payload": 3 })).await.refused(412, "job_changed", &id);
    edit(&format!("{tag}, {now}"), json!({ "priority": "urgent" })).await.is(200);
    edit("*", json!({ "priority": "urgent" })).await.is(200);
    for fixed in ["kind", "queue", "tenant", "key", "run_at", "unique_key"] {
        let told = edit("", json!({ fixed: "x" })).await;
        told.refused(400, "request_invalid", &format!("{fixed} cannot be changed"));
    }
    edit("", json!({ "paylod": 1 })).await.refused(400, "request_invalid", "paylod");
    edit("", json!({ "attempts": 0 })).await.refused(400, "wish_contradiction", "at least 1");
    let worker = kit.work().await;
    assert_eq!(kit.finished(&id).await["output"], json!({ "n": 2 }));
    edit("", json!({ "priority": "low" })).await.refused(409, "job_not_now", "has finished");
    worker.stop().await;
    kit.close().await;
}

async fn it_is_told_why_a_job_is_not_running(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "echo", "queue": "mail" })).await;
    kit.post("/v1/queues/mail/pause", json!({})).await.is(200);
    let why = kit.get(&format!("/v1/jobs/{id}/why")).await.is(200).body;
    let gates: Vec<_> = why["gates"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gate| gate["gate"].as_str().unwrap())
        .collect();
    assert!(gates.contains(&"paused"), "{why}");
    assert_eq!(why["sentences"].as_array().unwrap().len(), gates.len());
    kit.close().await;
}

async fn who_holds_a_unique_key_is_told_to_those_who_may_know(kit: Kit) {
    let kit = kit.closed().await;
    let of = |queues: &[&str]| Grant {
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        ..Grant::new(Role::Operator)
    };
    let all = kit.credential("all", of(&[])).await;
    let some = kit.credential("some", of(&["mine"])).await;
    let go = Arc::new(Notify::new());
    let held = Arc::clone(&go);
    let handler = move |payload: Payload, _| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            Ok(payload)
        }
    };
    let worker = kit.mill.worker().queues(["*"]).handle_raw("k", Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let wish = |queue: &str| json!({ "kind": "k", "queue": queue, "unique_key": "u", "on_duplicate": "run_once_more" });
    let post = async |queue: &str| {
        let told = kit.ask(&all, Method::POST, "/v1/jobs", wish(queue)).await.is(201);
        told.body["id"].as_str().unwrap().to_owned()
    };
    let get = async |secret: &str, path: &str| {
        kit.ask(secret, Method::GET, path, json!(null)).await.is(200).body
    };
    let first = post("other").await;
    eventually("it runs", Duration::from_secs(20), async || {
        (get(&all, &format!("/v1/jobs/{first}")).await["state"] == "running").then_some(())
    })
    .await;
    let path = format!("/v1/jobs/{}/why", post("mine").await);
    let why = get(&all, &path).await;
    let holder = json!({ "gate": "blocked", "holder": { "id": first, "state": "running" } });
    assert_eq!(why["gates"][0], holder, "{why}");
    assert!(why["sentences"][0].as_str().unwrap().contains(&first), "{why}");
    let why = get(&some, &path).await;
    assert_eq!(why["gates"][0], json!({ "gate": "blocked", "holder": null }), "{why}");
    assert!(!why.to_string().contains(&first), "{why}");
    go.notify_one();
    go.notify_one();
    worker.stop().await;
    kit.close().await;
}

async fn a_job_that_a_full_queue_diverts_says_where_it_is(kit: Kit) {
    let rules = json!({ "depth_max": 1, "overflow": { "policy": "divert", "queue": "spill" } });
    kit.send(Method::PUT, "/v1/queues/mail/rules", &[], rules).await.is(200);
    let wish = json!({ "kind": "echo", "queue": "mail" });
    let told = kit.post("/v1/jobs", wish.clone()).await.is(201).body;
    assert_eq!((&told["answer"], &told["queue"]), (&json!("enqueued"), &json!(null)));
    let told = kit.post("/v1/jobs", wish.clone()).await.is(201).body;
    assert_eq!((&told["answer"], &told["queue"]), (&json!("diverted"), &json!("spill")));
    let batch = json!({ "jobs": [wish] });
    let told = kit.post("/v1/jobs/batch", batch).await.body;
    assert!(told.to_string().contains(r#""queue":"spill""#), "{told}");
    kit.close().await;
}

async fn a_duplicate_is_told_which_job_it_is_of(kit: Kit) {
    let wish = json!({ "kind": "echo", "unique_key": "today" });
    let id = kit.enqueue(wish.clone()).await;
    let told = kit.post("/v1/jobs", wish).await.refused(409, "duplicate_rejected", &id);
    assert_eq!(told.body["job"], id);
    kit.close().await;
}

async fn a_full_queue_says_when_to_come_back(kit: Kit) {
    let rules = json!({ "depth_max": 1 });
    kit.send(Method::PUT, "/v1/queues/small/rules", &[], rules).await.is(200);
    let wish = json!({ "kind": "echo", "queue": "small" });
    kit.enqueue(wish.clone()).await;
    let told = kit.post("/v1/jobs", wish).await.refused(429, "queue_full", "small");
    let after: u64 = told.header("retry-after").parse().unwrap();
    assert!(after >= 1);
    assert_eq!(told.header("ratelimit"), format!("\"depth\";r=0;t={after}"));
    kit.close().await;
}

async fn a_job_travels_with_the_trace_of_its_request(kit: Kit) {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let own = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00";
    let trace = async |id: &str| {
        kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["options"]["trace"].clone()
    };
    for (header, wish, expected) in [
        (parent, json!({ "kind": "echo" }), json!(parent)),
        (parent, json!({ "kind": "echo", "trace": own }), json!(own)),
        ("no such thing", json!({ "kind": "echo" }), json!(null)),
    ] {
        let headers = [("traceparent", header)];
        let told = kit.send(Method::POST, "/v1/jobs", &headers, wish.clone()).await.is(201);
        assert_eq!(trace(told.body["id"].as_str().unwrap()).await, expected);
        let batch = json!({ "jobs": [wish.clone()] });
        let told = kit.send(Method::POST, "/v1/jobs/batch", &headers, batch).await.is(201);
        assert_eq!(trace(told.body["receipts"][0]["id"].as_str().unwrap()).await, expected);
        let mut step = wish;
        step["name"] = json!("only");
        let flow = json!({ "name": "traced", "steps": [step] });
        let told = kit.send(Method::POST, "/v1/flows", &headers, flow).await.is(201);
        let flow = kit.get(&format!("/v1/flows/{}", told.body["id"].as_str().unwrap())).await;
        let first = flow.is(200).body["steps"][0]["first"].clone();
        assert_eq!(trace(first.as_str().unwrap()).await, expected);
    }
    kit.close().await;
}
