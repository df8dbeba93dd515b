//! What a worker writes of a run beside its entries: undos and children become jobs, and are checked as jobs are.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Enqueue, Grant, JobId, Role};

use tidemill_testkit::eventually::eventually;

use super::kit::{Kit, Told};

over_both_stores!(
    an_undo_that_could_be_no_job_is_refused,
    a_worker_has_undone_in_its_own_queues_alone,
    a_worker_calls_off_what_it_may_see_or_has_started,
    an_object_without_a_key_is_refused,
    what_nests_too_deep_is_not_kept,
);

/// A worker of a credential, with the only job of a queue in its hands.
struct Hand<'a> {
    kit: &'a Kit,
    secret: String,
    path: String,
    job: Value,
    token: Value,
}

impl<'a> Hand<'a> {
    async fn new(kit: &'a Kit, grant: Grant) -> Self {
        let secret = kit.credential("hand", grant).await;
        let post = async |path: &str, body: Value| kit.ask(&secret, Method::POST, path, body).await;
        let job = json!({ "kind": "order", "queue": "mail:eu" });
        let job = post("/v1/jobs", job).await.is(201).body["id"].clone();
        let card = json!({ "name": "w", "queues": ["mail:*"], "lease": "10m" });
        let id = post("/v1/workers", card).await.is(201).body["id"].clone();
        let path = format!("/v1/workers/{}", id.as_str().unwrap());
        let ask = json!({ "queues": ["mail:*"], "wait": "30s" });
        let token = post(&format!("{path}/claim"), ask).await.is(200).body["token"].clone();
        Self { kit, secret, path, job, token }
    }

    async fn post(&self, verb: &str, body: Value) -> Told {
        self.kit.ask(&self.secret, Method::POST, &format!("{}/{verb}", self.path), body).await
    }

    async fn write(&self, writes: Value) -> Told {
        let body = json!({ "id": self.job, "token": self.token, "writes": writes });
        self.post("journal", body).await
    }

    /// Begins a step that this undoes.
    async fn begin(&self, undo: Value) -> Told {
        let entry = json!({ "began": { "key": "pay", "undo": undo } });
        self.write(
            json!({ "begins": "v1", "owes": true, "entries": [{ "number": 1, "entry": entry }] }),
        )
        .await
    }

    async fn fail(&self) {
        let outcome = json!({ "failed": { "class": "permanent", "message": "no" } });
        let report = json!({ "id": self.job, "token": self.token, "outcome": outcome,
            "run": { "owes": true } });
        self.post("settle", json!({ "reports": [report] })).await.is(200);
    }
}

async fn an_undo_that_could_be_no_job_is_refused(kit: Kit) {
    let kit = kit.closed().await;
    let hand = Hand::new(&kit, Grant::new(Role::Worker)).await;
    let sum = |options: Value| json!({ "kind": "refund", "queue": "mail:eu", "payload": 1, "options": options });
    for (undo, code, says) in [
        (json!({ "kind": "", "queue": "q", "payload": 1 }), "name_empty", "entry 1: "),
        (json!({ "kind": "k", "queue": "", "payload": 1 }), "name_empty", "queue"),
        (
            json!({ "kind": "tidemill:webhook", "queue": "q", "payload": 1 }),
            "name_reserved",
            "kind",
        ),
        (
            json!({ "kind": "k", "queue": "tidemill:webhooks", "payload": 1 }),
            "name_reserved",
            "queue",
        ),
        (
            json!({ "kind": "k", "queue": "q", "payload": 1, "delay": 1 }),
            "request_invalid",
            "delay",
        ),
        (sum(json!({ "tag": ["a"] })), "request_invalid", "undo.options: unknown field `tag`"),
        (
            sum(json!({ "retry": { "attempts": 3 } })),
            "request_invalid",
            "retry: unknown field `attempts`",
        ),
        (sum(json!({ "parent": JobId::new() })), "wish_contradiction", "`parent`"),
        (sum(json!({ "turn": 2 })), "wish_contradiction", "`turn`"),
        (sum(json!({ "webhook": { "to": "nobody" } })), "webhook_unknown", "nobody"),
        (sum(json!({ "tags": [""] })), "name_empty", "tag"),
        (sum(json!({ "ordered": "skip" })), "key_missing", "no key"),
    ] {
        let status = if code == "webhook_unknown" { 404 } else { 400 };
        hand.begin(undo.clone()).await.refused(status, code, says);
    }
    let journal = format!("/v1/jobs/{}/journal", hand.job.as_str().unwrap());
    let told = kit.ask(&hand.secret, Method::GET, &journal, json!(null)).await.is(200).body;
    assert_eq!(told["entries"], json!([]));
    hand.begin(sum(json!({ "tags": ["late"], "retry": { "attempts_max": 3 } }))).await.is(204);
    kit.close().await;
}

async fn a_worker_has_undone_in_its_own_queues_alone(kit: Kit) {
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Worker) };
    let hand = Hand::new(&kit, grant).await;
    let undo = |queue: &str| json!({ "kind": "refund", "queue": queue, "payload": 1 });
    hand.begin(undo("pay")).await.refused(403, "queue_refused", "pay");
    hand.begin(undo("mail:uk")).await.is(204);
    hand.fail().await;
    let ask = json!({ "queues": ["mail:uk"], "wait": "30s" });
    let told = hand.post("claim", ask).await.is(200).body;
    let job = &told["jobs"][0];
    assert_eq!((&job["kind"], &job["payload"]["payload"]), (&json!("refund"), &json!(1)), "{told}");
    kit.close().await;
}

async fn a_worker_calls_off_what_it_may_see_or_has_started(kit: Kit) {
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Worker) };
    let hand = Hand::new(&kit, grant).await;
    let theirs = kit.mill.enqueue(Enqueue::raw("k", "1").queue("pay")).await.unwrap().id();
    let started = |id: JobId| {
        let entry = json!({ "started": { "key": "kids", "kind": "k", "ids": [id] } });
        json!({ "owes": true, "entries": [{ "number": 1, "entry": entry }] })
    };
    for writes in [json!({ "cancel": [theirs] }), started(theirs)] {
        hand.write(writes).await.refused(404, "job_unknown", &theirs.to_string());
    }
    let own = kit.mill.enqueue(Enqueue::raw("k", "1").queue("mail:uk")).await.unwrap().id();
    hand.write(json!({ "cancel": [own] })).await.is(204);
    // What others have made by the time the run ends is theirs.
    let later = JobId::new();
    hand.write(started(later)).await.is(204);
    kit.mill.enqueue(Enqueue::raw("k", "1").queue("pay").id(later)).await.unwrap();
    hand.fail().await;
    eventually("what the run owes to be seen to", Duration::from_mins(1), async || {
        let owing = kit.mill.store().debts(None, 1).await.unwrap();
        owing.is_empty().then_some(())
    })
    .await;
    let state = async |id| kit.mill.job(id).await.unwrap().unwrap().state;
    assert_eq!(state(own).await, tidemill::State::Cancelled);
    assert_eq!(state(theirs).await, tidemill::State::Ready);
    assert_eq!(state(later).await, tidemill::State::Ready);
    kit.close().await;
}

async fn an_object_without_a_key_is_refused(kit: Kit) {
    let kit = kit.closed().await;
    let hand = Hand::new(&kit, Grant::new(Role::Worker)).await;
    let report = json!({ "id": hand.job, "token": hand.token, "outcome": { "done": {} },
        "run": { "object": { "this": { "n": 1 } } } });
    let told = hand.post("settle", json!({ "reports": [report] })).await;
    told.refused(400, "work_invalid", "has no key");
    let path = format!("/v1/jobs/{}", hand.job.as_str().unwrap());
    let job = kit.ask(&hand.secret, Method::GET, &path, json!(null)).await.is(200).body;
    assert_eq!(job["state"], "running");
    kit.close().await;
}

async fn what_nests_too_deep_is_not_kept(kit: Kit) {
    let kit = kit.closed().await;
    let hand = Hand::new(&kit, Grant::new(Role::Worker)).await;
    let nested = |levels| (0..levels).fold(json!(7), |value, _| json!([value]));
    let entries = |payload: Value| {
        let ended = json!({ "ended": { "key": "a", "ending": { "ok": payload } } });
        json!({ "begins": "v1", "entries": [{ "number": 1, "entry": ended }] })
    };
    let told = hand.write(entries(nested(100))).await;
    told.refused(400, "payload_too_deep", "entry 1");
    let answer = json!({ "answers": [{ "number": 1, "ending": { "ok": nested(100) } }] });
    hand.write(answer).await.refused(400, "payload_too_deep", "deeper");
    hand.write(entries(nested(64))).await.is(204);
    kit.close().await;
}
