//! Ids and keys that others have: what is refused, and what is not told.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{FlowId, Grant, JobId, Role};

use super::kit::{Kit, Told};

over_both_stores!(
    a_job_is_not_told_to_a_tenant_who_knows_its_id,
    a_job_is_not_told_to_who_has_its_unique_key_and_not_its_queue,
    an_id_that_another_job_has_is_refused,
    a_batch_that_is_written_is_answered_and_tells_nothing_of_others,
    a_job_is_known_by_its_id_where_it_was_diverted_or_replaced,
    an_id_that_another_flow_has_is_refused,
    unique_keys_are_of_a_tenant,
    lines_are_of_a_tenant,
    no_idempotency_key_is_that_of_another,
    a_flow_of_another_tenant_keeps_its_id,
);

const SECRET: &str = "tulips-and-roses";

/// Of a tenant, or of some queues, or of neither.
fn producer(tenant: Option<&str>, queues: &[&str]) -> Grant {
    Grant {
        tenant: tenant.map(str::to_owned),
        queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
        ..Grant::new(Role::Producer)
    }
}

/// Sends as the holder of a credential, who would wait for the end.
async fn wait(kit: &Kit, who: &str, path: &str, body: Value) -> Told {
    let bearer = format!("Bearer {who}");
    kit.send(Method::POST, path, &[("authorization", &bearer), ("prefer", "wait=30")], body).await
}

fn id_of(told: &Told) -> String {
    told.body["id"].as_str().unwrap().to_owned()
}

/// Nothing of the other's job.
#[track_caller]
fn says_nothing(told: &Told, secrets: &[&str]) {
    let text = format!("{} {:?}", told.body, told.headers);
    assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
}

async fn a_job_is_not_told_to_a_tenant_who_knows_its_id(kit: Kit) {
    let kit = kit.closed().await;
    let one = kit.credential("one", producer(Some("one"), &[])).await;
    let two = kit.credential("two", producer(Some("two"), &[])).await;
    let worker = kit.work().await;
    let wish = json!({ "kind": "echo", "payload": SECRET });
    let id = id_of(&wait(&kit, &one, "/v1/jobs", wish).await.is(200));
    worker.stop().await;
    let other = json!({ "id": id, "kind": "echo" });
    let told = wait(&kit, &two, "/v1/jobs", other.clone()).await.refused(409, "id_taken", &id);
    says_nothing(&told, &[SECRET]);
    let jobs = json!({ "jobs": [{ "kind": "echo" }, other] });
    let told = wait(&kit, &two, "/v1/jobs/batch", jobs).await.refused(409, "id_taken", "job 1");
    assert_eq!(told.body["index"], 1);
    // Also what is the same but for its tenant.
    let same = json!({ "id": id, "kind": "echo", "payload": SECRET });
    wait(&kit, &two, "/v1/jobs", same.clone()).await.refused(409, "id_taken", &id);
    let told = wait(&kit, &one, "/v1/jobs", same).await.is(200);
    assert_eq!(told.body["output"], SECRET, "its own tenant may ask again");
    kit.close().await;
}

async fn a_job_is_not_told_to_who_has_its_unique_key_and_not_its_queue(kit: Kit) {
    let kit = kit.closed().await;
    let all = kit.credential("all", producer(None, &[])).await;
    let some = kit.credential("some", producer(None, &["mine"])).await;
    let held =
        json!({ "kind": "echo", "payload": SECRET, "unique_key": "u", "unique_scope": "forever" });
    let id = id_of(&kit.ask(&all, Method::POST, "/v1/jobs", held).await.is(201));
    let worker = kit.work().await;
    kit.mill.wait(id.parse().unwrap(), std::time::Duration::from_secs(30)).await.unwrap();
    worker.stop().await;
    for policy in ["reject", "join", "throttle"] {
        let wish =
            json!({ "kind": "echo", "queue": "mine", "unique_key": "u", "on_duplicate": policy });
        let told = wait(&kit, &some, "/v1/jobs", wish.clone()).await;
        let told = told.refused(409, "duplicate_rejected", "does not reach");
        says_nothing(&told, &[SECRET, &id]);
        let told = wait(&kit, &some, "/v1/jobs/batch", json!({ "jobs": [wish] })).await;
        let told = told.refused(409, "duplicate_rejected", "job 0");
        says_nothing(&told, &[SECRET, &id]);
    }
    let wish = json!({ "kind": "echo", "unique_key": "u", "on_duplicate": "join" });
    assert_eq!(wait(&kit, &all, "/v1/jobs", wish).await.is(200).body["output"], SECRET);
    kit.close().await;
}

async fn an_id_that_another_job_has_is_refused(kit: Kit) {
    let id = JobId::new().to_string();
    let wish = json!({ "id": id, "kind": "echo", "payload": { "a": 1, "b": [2] }, "tenant": "t" });
    let but = |name: &str, value: Value| {
        let mut wish = wish.clone();
        wish[name] = value;
        wish
    };
    for _ in 0..2 {
        assert_eq!(kit.enqueue(wish.clone()).await, id, "sent twice, enqueued once");
        let told = kit.post("/v1/jobs/batch", json!({ "jobs": [wish, wish] })).await.is(201);
        assert_eq!(told.body["receipts"][1], json!({ "answer": "enqueued", "id": id }));
    }
    kit.enqueue(but("payload", json!({ "b": [2], "a": 1 }))).await;
    for (name, value) in [
        ("kind", json!("other")),
        ("queue", json!("other")),
        ("tenant", json!("other")),
        ("tenant", json!(null)),
        ("payload", json!({ "a": 1, "b": [3] })),
    ] {
        let other = but(name, value);
        let told = kit.post("/v1/jobs", other.clone()).await.refused(409, "id_taken", &id);
        assert_eq!(told.body["job"], json!(null));
        let batch = json!({ "jobs": [{ "kind": "never" }, other] });
        let told = kit.post("/v1/jobs/batch", batch).await.refused(409, "id_taken", "job 1");
        assert_eq!(told.body["index"], 1);
    }
    let fresh = JobId::new();
    let twice =
        json!({ "jobs": [{ "id": fresh, "kind": "never" }, { "id": fresh, "kind": "echo" }] });
    kit.post("/v1/jobs/batch", twice).await.refused(409, "id_taken", "job 1");
    let page = kit.get("/v1/jobs").await.is(200).body;
    assert_eq!(page["jobs"].as_array().unwrap().len(), 1, "{page}");
    kit.close().await;
}

/// A job that stands where a full queue would have sent it is looked at after the batch is written.
async fn a_batch_that_is_written_is_answered_and_tells_nothing_of_others(kit: Kit) {
    let kit = kit.closed().await;
    let all = kit.credential("all", Grant::new(Role::Admin)).await;
    let some = kit.credential("some", producer(None, &["mine"])).await;
    let rules = json!({ "depth_max": 9, "overflow": { "policy": "divert", "queue": "theirs" } });
    kit.ask(&all, Method::PUT, "/v1/queues/mine/rules", rules).await.is(200);
    let held = json!({ "kind": "echo", "queue": "theirs", "payload": SECRET, "unique_key": "u" });
    let theirs = id_of(&kit.ask(&all, Method::POST, "/v1/jobs", held).await.is(201));
    for policy in ["join", "reject"] {
        let wish = json!({ "kind": "echo", "queue": "mine" });
        let id = JobId::new().to_string();
        let other = json!({ "id": id, "kind": "echo", "queue": "mine", "unique_key": "u", "on_duplicate": policy });
        let batch = json!({ "jobs": [wish, other] });
        let told = kit.ask(&some, Method::POST, "/v1/jobs/batch", batch).await.is(201);
        says_nothing(&told, &[SECRET, &theirs]);
        let receipts = &told.body["receipts"];
        assert_eq!(receipts[0]["answer"], "enqueued", "{policy}: {told:?}");
        assert_eq!(receipts[1], json!({ "answer": "rejected", "id": id }));
        let first = receipts[0]["id"].as_str().unwrap().parse().unwrap();
        assert!(kit.mill.job(first).await.unwrap().is_some());
    }
    kit.close().await;
}

async fn a_job_is_known_by_its_id_where_it_was_diverted_or_replaced(kit: Kit) {
    let rules = json!({ "depth_max": 1, "overflow": { "policy": "divert", "queue": "spill" } });
    kit.send(Method::PUT, "/v1/queues/mail/rules", &[], rules).await.is(200);
    kit.enqueue(json!({ "kind": "echo", "queue": "mail" })).await;
    let wish = json!({ "id": JobId::new(), "kind": "echo", "queue": "mail", "payload": 1 });
    for _ in 0..2 {
        let told = kit.post("/v1/jobs", wish.clone()).await.is(201).body;
        assert_eq!((&told["answer"], &told["queue"]), (&json!("diverted"), &json!("spill")));
    }
    let wish = json!({ "kind": "echo", "queue": "mail", "payload": 2 });
    let send = async || {
        kit.send(Method::POST, "/v1/jobs", &[("idempotency-key", "k")], wish.clone()).await.is(201)
    };
    assert_eq!(id_of(&send().await), id_of(&send().await));

    let id = JobId::new();
    let wish = json!({ "id": id, "kind": "echo", "payload": 1, "unique_key": "u" });
    kit.enqueue(wish.clone()).await;
    let newer =
        json!({ "kind": "echo", "payload": 2, "unique_key": "u", "on_duplicate": "replace" });
    assert_eq!(kit.post("/v1/jobs", newer).await.is(201).body["answer"], "replaced");
    assert_eq!(kit.enqueue(wish).await, id.to_string(), "it is the same, with the newer payload");
    kit.close().await;
}

async fn an_id_that_another_flow_has_is_refused(kit: Kit) {
    let id = FlowId::new();
    let flow = json!({ "id": id, "name": "mails", "steps": [
        { "name": "all", "kind": "echo", "payloads": [1, 2] },
        { "name": "report", "kind": "echo", "after": ["all"], "payload": { "to": "ada" } },
    ] });
    let but = |place: &str, value: Value| {
        let mut flow = flow.clone();
        *flow.pointer_mut(place).unwrap() = value;
        flow
    };
    for (status, answer) in [(201, "started"), (200, "existing")] {
        let told = kit.post("/v1/flows", flow.clone()).await.is(status);
        assert_eq!(told.body["answer"], answer);
    }
    for (place, value) in [
        ("/name", json!("other")),
        ("/steps/0/payloads", json!([3, 4])),
        ("/steps/0/payloads", json!([1, 2, 3])),
        ("/steps/1/name", json!("other")),
        ("/steps/1/kind", json!("other")),
        ("/steps/1/payload", json!({ "to": "eve" })),
        (
            "/steps/1",
            json!({ "name": "report", "kind": "echo", "queue": "other", "payload": { "to": "ada" } }),
        ),
        (
            "/steps/1",
            json!({ "name": "report", "kind": "echo", "tenant": "other", "payload": { "to": "ada" } }),
        ),
    ] {
        let told = kit.post("/v1/flows", but(place, value)).await;
        told.refused(409, "id_taken", &id.to_string());
    }
    // Also when it has gone on.
    let worker = kit.work().await;
    kit.mill.wait_flow(id, std::time::Duration::from_secs(30)).await.unwrap();
    worker.stop().await;
    kit.post("/v1/flows", flow.clone()).await.is(200);

    let job = kit.enqueue(json!({ "kind": "echo" })).await;
    let flow =
        json!({ "name": "f", "steps": [{ "name": "a", "jobs": [{ "kind": "echo", "id": job }] }] });
    kit.post("/v1/flows", flow).await.refused(409, "id_taken", "another job");

    let id = FlowId::new();
    let built =
        json!({ "id": id, "name": "b", "building": true, "steps": [{ "name": "a", "jobs": [] }] });
    kit.post("/v1/flows", built.clone()).await.is(201);
    let part = json!({ "step": "a", "jobs": [{ "kind": "echo", "id": JobId::new() }] });
    kit.post(&format!("/v1/flows/{id}/jobs"), part).await.is(200);
    kit.post("/v1/flows", built).await.is(200);
    kit.close().await;
}

async fn a_flow_of_another_tenant_keeps_its_id(kit: Kit) {
    let kit = kit.closed().await;
    let one = kit.credential("one", producer(Some("one"), &[])).await;
    let two = kit.credential("two", producer(Some("two"), &[])).await;
    let id = FlowId::new();
    let flow = json!({ "id": id, "name": "f", "steps": [{ "name": "a", "kind": "echo", "payload": SECRET }] });
    let start = async |who: &str| kit.ask(who, Method::POST, "/v1/flows", flow.clone()).await;
    start(&one).await.is(201);
    let told = start(&two).await.refused(409, "id_taken", &id.to_string());
    says_nothing(&told, &[SECRET]);
    start(&one).await.is(200);
    kit.close().await;
}

async fn unique_keys_are_of_a_tenant(kit: Kit) {
    let kit = kit.closed().await;
    let one = kit.credential("one", producer(Some("one"), &[])).await;
    let two = kit.credential("two", producer(Some("two"), &[])).await;
    let held = json!({ "kind": "echo", "payload": SECRET, "unique_key": "u" });
    let id = id_of(&kit.ask(&one, Method::POST, "/v1/jobs", held.clone()).await.is(201));
    for policy in ["replace", "debounce", "run_once_more", "join", "reject"] {
        let key = format!("u-{policy}");
        let wish = json!({ "kind": "echo", "payload": SECRET, "unique_key": key });
        let first = id_of(&kit.ask(&one, Method::POST, "/v1/jobs", wish).await.is(201));
        let other =
            json!({ "kind": "echo", "payload": 2, "unique_key": key, "on_duplicate": policy });
        let told = kit.ask(&two, Method::POST, "/v1/jobs", other).await.is(201);
        assert_eq!(told.body["answer"], "enqueued", "{policy}: {told:?}");
        let job = kit.mill.job(first.parse().unwrap()).await.unwrap().unwrap().job;
        assert_eq!(job.payload.as_str(), format!("{SECRET:?}"), "{policy}");
        assert_eq!(json!(job)["unique_key"], key, "it is shown as it was given");
    }
    let told = kit.ask(&one, Method::POST, "/v1/jobs", held).await;
    assert_eq!(told.refused(409, "duplicate_rejected", &id).body["job"], id);
    kit.close().await;
}

async fn lines_are_of_a_tenant(kit: Kit) {
    let kit = kit.closed().await;
    let of = |tenant: &str| Grant { tenant: Some(tenant.into()), ..Grant::new(Role::Operator) };
    let one = kit.credential("one", of("one")).await;
    let two = kit.credential("two", of("two")).await;
    let put = async |secret: &str, kind: &str| {
        let wish = json!({ "kind": kind, "key": "order:42", "ordered": "block" });
        id_of(&kit.ask(secret, Method::POST, "/v1/jobs", wish).await.is(201))
    };
    let get =
        async |secret: &str, path: String| kit.ask(secret, Method::GET, &path, json!({})).await;
    let theirs = [put(&one, "fail").await, put(&one, "echo").await];
    let own = [put(&two, "echo").await, put(&two, "echo").await];
    let line = async |secret: &str, id: &str| {
        let why = get(secret, format!("/v1/jobs/{id}/why")).await.is(200).body;
        why["gates"][0].clone()
    };
    let gate = line(&two, &own[1]).await;
    assert_eq!((&gate["ahead"], &gate["head"]), (&json!(1), &json!(own[0])), "of its own: {gate}");
    let worker = kit.work().await;
    for id in &own {
        let told = get(&two, format!("/v1/jobs/{id}/wait?timeout=30s")).await.is(200);
        assert_eq!(told.body["state"], "done", "nobody else's holds it up");
    }
    let dead = get(&one, format!("/v1/jobs/{}/wait?timeout=30s", theirs[0])).await.is(200);
    assert_eq!(dead.body["state"], "dead");
    let gate = line(&one, &theirs[1]).await;
    assert_eq!((&gate["head"], &gate["dead"]), (&json!(theirs[0]), &json!(true)), "{gate}");
    for id in &theirs {
        get(&two, format!("/v1/jobs/{id}/why")).await.refused(404, "job_unknown", id);
    }
    let blocked = get(&two, "/v1/jobs?state=blocked".to_owned()).await.is(200).body;
    assert_eq!(blocked["jobs"], json!([]));
    worker.stop().await;
    kit.close().await;
}

async fn no_idempotency_key_is_that_of_another(kit: Kit) {
    let kit = kit.closed().await;
    let all = kit.credential("all", producer(None, &[])).await;
    let short = kit.credential("short", producer(Some("A"), &[])).await;
    let long = kit.credential("long", producer(Some("A:x"), &[])).await;
    let send = async |who: &str, path: &str, key: &str, body: Value| {
        let bearer = format!("Bearer {who}");
        let headers = [("authorization", bearer.as_str()), ("idempotency-key", key)];
        kit.send(Method::POST, path, &headers, body).await.is(201)
    };
    let wish = json!({ "kind": "echo" });
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..2 {
        for (who, key) in [(&all, "K#0"), (&all, "0K"), (&short, "x:k"), (&long, "k")] {
            ids.insert(id_of(&send(who, "/v1/jobs", key, wish.clone()).await));
        }
        let told = send(&all, "/v1/jobs/batch", "K", json!({ "jobs": [wish] })).await;
        ids.insert(told.body["receipts"][0]["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 5, "each once, and none for another");
    let posing =
        json!({ "kind": "echo", "unique_key": "idempotency-key::0K", "on_duplicate": "join" });
    let told = kit.ask(&all, Method::POST, "/v1/jobs", posing).await.is(201);
    assert_eq!(told.body["answer"], "enqueued");
    kit.close().await;
}
