//! A worker in any language: register, claim, settle, beat, keep a journal.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};

use super::kit::{Kit, Told};

over_both_stores!(
    a_worker_claims_runs_and_settles,
    an_attempt_started_no_sooner_than_it_was_claimed_and_no_later_than_it_ended,
    a_claim_stands_until_a_job_comes,
    another_node_settles_what_this_one_gave,
    a_token_that_does_not_hold_is_told_so,
    a_job_that_is_called_off_is_told_with_the_next_beat,
    failures_and_follow_ups_are_settled_as_they_say,
    a_workflow_is_run_by_its_journal,
    a_step_reads_what_came_before_it,
    what_a_worker_says_is_in_the_stream,
    a_run_that_a_worker_parks_is_told_of,
    what_makes_no_sense_is_refused_and_changes_nothing,
    a_worker_takes_from_its_own_queues_alone,
    a_worker_is_of_the_credential_that_has_registered_it,
);

struct Hand<'a> {
    kit: &'a Kit,
    id: String,
}

impl<'a> Hand<'a> {
    async fn new(kit: &'a Kit) -> Self {
        let card = json!({ "name": "curl", "queues": ["default"], "lease": "10m" });
        let told = kit.post("/v1/workers", card).await.is(201);
        Self { kit, id: told.body["id"].as_str().unwrap().to_owned() }
    }

    async fn post(&self, verb: &str, body: Value) -> Told {
        self.kit.post(&format!("/v1/workers/{}/{verb}", self.id), body).await
    }

    /// Claims one job, and waits for it.
    async fn claim(&self) -> (Value, Value) {
        let ask = json!({ "queues": ["default"], "wait": "30s" });
        let told = self.post("claim", ask).await.is(200);
        (told.body["token"].clone(), told.body["jobs"][0].clone())
    }

    async fn settle(&self, token: &Value, id: &Value, outcome: Value) -> Told {
        let report = json!({ "id": id, "token": token, "outcome": outcome });
        self.post("settle", json!({ "reports": [report] })).await
    }

    async fn accepted(&self, token: &Value, id: &Value, outcome: Value) {
        let told = self.settle(token, id, outcome).await.is(200);
        assert_eq!(told.body, json!({ "answers": ["accepted"] }));
    }
}

async fn a_worker_claims_runs_and_settles(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit
        .enqueue(json!({ "kind": "sum", "payload": { "a": 2, "b": 3 }, "run_timeout": "5s" }))
        .await;
    let (token, job) = hand.claim().await;
    assert_eq!(job["id"], id.as_str());
    assert_eq!(job["payload"], json!({ "a": 2, "b": 3 }));
    assert_eq!((&job["attempt"], &job["run_timeout_ms"]), (&json!(1), &json!(5000)));
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["state"], "running");
    hand.accepted(&token, &job["id"], json!({ "done": { "output": 5 } })).await;
    hand.accepted(&token, &job["id"], json!({ "done": { "output": 5 } })).await;
    let view = kit.finished(&id).await;
    assert_eq!((&view["state"], &view["output"]), (&json!("done"), &json!(5)));
    let told = kit.send(Method::DELETE, &format!("/v1/workers/{}", hand.id), &[], json!({})).await;
    assert_eq!(told.is(200).body, json!({ "given_back": 0 }));
    hand.post("beat", json!({})).await.refused(409, "worker_lost", "register anew");
    kit.close().await;
}

async fn an_attempt_started_no_sooner_than_it_was_claimed_and_no_later_than_it_ended(kit: Kit) {
    let hand = Hand::new(&kit).await;
    for started_at in [json!(null), json!("1970-01-01T00:00:00Z"), json!("9999-01-01T00:00:00Z")] {
        let id = kit.enqueue(json!({ "kind": "sum" })).await;
        let (token, _) = hand.claim().await;
        let outcome = json!({ "failed": { "class": "permanent", "message": "no" } });
        let mut report = json!({ "id": id, "token": token, "outcome": outcome });
        if !started_at.is_null() {
            report["started_at"] = started_at;
        }
        hand.post("settle", json!({ "reports": [report] })).await.is(200);
        let job = kit.get(&format!("/v1/jobs/{id}")).await.is(200).body;
        let attempts = kit.get(&format!("/v1/jobs/{id}/attempts")).await.is(200).body;
        let moment =
            |value: &Value| value.as_str().unwrap().parse::<tidemill::Timestamp>().unwrap();
        let attempt = &attempts[0];
        let (created, started) = (moment(&job["created_at"]), moment(&attempt["started_at"]));
        assert!(created <= started && started <= moment(&attempt["ended_at"]), "{attempt}");
    }
    kit.close().await;
}

async fn a_claim_stands_until_a_job_comes(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let ((token, job), id) = tokio::join!(hand.claim(), kit.enqueue(json!({ "kind": "k" })));
    assert_eq!(job["id"], id.as_str());
    hand.accepted(&token, &job["id"], json!({ "done": {} })).await;
    let told = hand.post("claim", json!({ "queues": ["default"], "wait": "20ms" })).await.is(200);
    assert_eq!((&told.body["token"], &told.body["jobs"]), (&Value::Null, &json!([])));
    kit.close().await;
}

async fn another_node_settles_what_this_one_gave(kit: Kit) {
    let twin = kit.twin().await;
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let (token, job) = hand.claim().await;
    let there = Hand { kit: &twin, id: hand.id.clone() };
    there.post("beat", json!({ "tokens": [token] })).await.is(200);
    there.accepted(&token, &job["id"], json!({ "done": { "output": "there" } })).await;
    assert_eq!(kit.finished(&id).await["output"], "there");
    twin.close().await;
    kit.close().await;
}

async fn a_token_that_does_not_hold_is_told_so(kit: Kit) {
    let (one, two) = (Hand::new(&kit).await, Hand::new(&kit).await);
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let (token, job) = one.claim().await;
    let done = json!({ "done": {} });
    let other = json!(token.as_i64().unwrap() + 1);
    for forged in [&other, &json!(token.as_i64().unwrap() + 1000)] {
        one.settle(forged, &job["id"], done.clone()).await.refused(409, "lease_lost", &id);
    }
    two.settle(&token, &job["id"], done.clone()).await.refused(409, "lease_lost", &id);
    let entry = json!({ "number": 1, "entry": { "pivot": { "key": "p" } } });
    let append = |token: Value| {
        let writes = json!({ "begins": "v1", "entries": [entry.clone()] });
        json!({ "id": id, "token": token, "writes": writes })
    };
    two.post("journal", append(token.clone())).await.refused(409, "lease_lost", &id);
    one.post("journal", append(other.clone())).await.refused(409, "lease_lost", &id);
    let journal = kit.get(&format!("/v1/jobs/{id}/journal")).await.is(200).body;
    assert_eq!(journal["entries"], json!([]), "nothing was written");
    let mixed = json!({ "reports": [
        { "id": id, "token": other, "outcome": done }, { "id": id, "token": token, "outcome": done },
    ] });
    let told = one.post("settle", mixed).await.is(200);
    assert_eq!(told.body, json!({ "answers": ["stale", "accepted"] }));
    kit.close().await;
}

async fn a_job_that_is_called_off_is_told_with_the_next_beat(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let (token, job) = hand.claim().await;
    let beaten = hand.post("beat", json!({})).await.is(200);
    assert_eq!(beaten.body, json!({ "cancelled": [], "waited_ms": 0 }));
    let path = format!("/v1/jobs/{id}/cancel");
    let beat = hand.post("beat", json!({ "wait": "30s" }));
    let (beat, _) = tokio::join!(beat, async { kit.post(&path, json!({})).await.is(200) });
    assert_eq!(beat.is(200).body["cancelled"], json!([id]));
    hand.accepted(&token, &job["id"], json!({ "cancel": { "reason": "told to" } })).await;
    assert_eq!(kit.finished(&id).await["state"], "cancelled");
    kit.close().await;
}

async fn failures_and_follow_ups_are_settled_as_they_say(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let (token, job) = hand.claim().await;
    let failed = json!({ "failed": { "message": "not yet", "retry_after": "1ms" } });
    hand.accepted(&token, &job["id"], failed).await;
    let (token, job) = hand.claim().await;
    assert_eq!((&job["id"], &job["attempt"]), (&json!(id), &json!(2)));
    hand.accepted(&token, &job["id"], json!({ "snooze": { "delay": "1ms" } })).await;
    let (token, job) = hand.claim().await;
    assert_eq!(job["attempt"], 2, "a snooze spends nothing");
    hand.accepted(&token, &job["id"], json!({ "give_back": {} })).await;
    let (token, job) = hand.claim().await;
    let follow_ups = json!([{ "kind": "next", "payload": 1 }]);
    hand.accepted(&token, &job["id"], json!({ "done": { "follow_ups": follow_ups } })).await;
    let (token, next) = hand.claim().await;
    assert_eq!((&next["kind"], &next["payload"]), (&json!("next"), &json!(1)));
    let permanent = json!({ "failed": { "class": "permanent", "message": "never" } });
    hand.accepted(&token, &next["id"], permanent).await;
    let view = kit.finished(next["id"].as_str().unwrap()).await;
    assert_eq!((&view["state"], &view["error"]), (&json!("dead"), &json!("never")));
    kit.close().await;
}

async fn a_workflow_is_run_by_its_journal(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "order" })).await;
    let (token, job) = hand.claim().await;
    assert_eq!(job["has_run"], false);
    let ended = json!({ "ended": { "key": "charge", "hash": "", "tries": 1, "took_ms": 1, "ending": { "ok": 42 } } });
    let writes = json!({ "begins": "v1", "entries": [{ "number": 1, "entry": ended }] });
    let append = json!({ "id": id, "token": token, "writes": writes });
    hand.post("journal", append.clone()).await.is(204);
    hand.post("journal", append).await.is(204);
    let wait = json!({ "wait": { "mail_min": 1, "what": ["signal approve"] } });
    hand.accepted(&token, &job["id"], wait).await;
    let signal = json!({ "name": "approve", "payload": { "by": "ada" } });
    kit.post(&format!("/v1/jobs/{id}/signal"), signal).await.is(202);
    let (token, job) = hand.claim().await;
    assert_eq!(
        (&job["id"], &job["has_run"], &job["attempt"]),
        (&json!(id), &json!(true), &json!(1))
    );
    let journal = kit.get(&format!("/v1/jobs/{id}/journal")).await.is(200).body;
    assert_eq!(journal["entries"].as_array().unwrap().len(), 1, "kept once");
    assert_eq!(journal["entries"][0]["entry"]["ended"]["ending"]["ok"], 42);
    assert_eq!(journal["run"]["version"], "v1");
    let mail = kit.get(&format!("/v1/jobs/{id}/mail")).await.is(200).body;
    assert_eq!(mail["mail"][0]["content"]["signal"]["payload"]["by"], "ada");
    let number = mail["mail"][0]["number"].as_i64().unwrap();
    let later = kit.get(&format!("/v1/jobs/{id}/mail?after={number}")).await.is(200).body;
    assert_eq!(later, json!({ "mail": [] }));
    let signal = json!({ "name": "more" });
    kit.post(&format!("/v1/jobs/{id}/signal"), signal).await.is(202);
    let page = kit.get(&format!("/v1/jobs/{id}/mail?limit=1")).await.is(200).body;
    assert_eq!((&page["mail"][0]["number"], &page["next"]), (&json!(number), &json!(number)));
    let page = kit.get(&format!("/v1/jobs/{id}/mail?limit=1&after={number}")).await.is(200).body;
    assert_eq!((page["mail"].as_array().unwrap().len(), &page["next"]), (1, &Value::Null));
    kit.get(&format!("/v1/jobs/{id}/mail?limit=0")).await.is(400);
    let number = page["mail"][0]["number"].as_i64().unwrap();
    let children = json!([{ "kind": "receipt", "payload": 42 }]);
    let report = json!({ "id": id, "token": token, "outcome": { "wait": { "mail_min": 1, "read": number } },
        "run": { "children": children, "owes": true } });
    hand.post("settle", json!({ "reports": [report] })).await.is(200);
    let (token, child) = hand.claim().await;
    assert_eq!(child["kind"], "receipt");
    hand.accepted(&token, &child["id"], json!({ "done": { "output": "sent" } })).await;
    let (token, job) = hand.claim().await;
    let mail = kit.get(&format!("/v1/jobs/{id}/mail?after={number}")).await.is(200).body;
    assert_eq!(mail["mail"][0]["content"]["child"]["output"], "sent", "{mail}");
    hand.accepted(&token, &job["id"], json!({ "done": { "output": "ordered" } })).await;
    assert_eq!(kit.finished(&id).await["output"], "ordered");
    let none = format!("/v1/jobs/{id}/journal/1");
    kit.get(&none).await.refused(404, "value_unknown", "entry 1");
    kit.close().await;
}

async fn a_step_reads_what_came_before_it(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let job = |n: u32| tidemill::Enqueue::raw("part", n.to_string());
    let flow = tidemill::Flow::new("sum")
        .fan_out("parts", (1..=2).map(job))
        .then("total", tidemill::Enqueue::raw("total", "null"));
    kit.mill.start(flow).await.unwrap();
    for _ in 0..2 {
        let (token, part) = hand.claim().await;
        hand.accepted(&token, &part["id"], json!({ "done": { "output": part["payload"] } })).await;
    }
    let (token, total) = hand.claim().await;
    let path = format!("/v1/jobs/{}/inputs", total["id"].as_str().unwrap());
    let inputs = kit.get(&path).await.is(200).body;
    assert_eq!(
        (&inputs["inputs"][0]["step"], &inputs["inputs"][0]["done"]),
        (&json!("parts"), &json!(2))
    );
    let outputs = kit.get(&format!("{path}/parts")).await.is(200).body;
    let outputs = outputs["outputs"].as_array().unwrap();
    let sum: i64 = outputs.iter().map(|one| one["output"].as_i64().unwrap()).sum();
    kit.get(&format!("{path}/nothing")).await.refused(404, "step_unknown", "nothing");
    hand.accepted(&token, &total["id"], json!({ "done": { "output": sum } })).await;
    assert_eq!(kit.finished(total["id"].as_str().unwrap()).await["output"], 3);
    kit.close().await;
}

async fn what_a_worker_says_is_in_the_stream(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "chat" })).await;
    let (token, job) = hand.claim().await;
    let said =
        json!([{ "event": "progress", "step": 1, "total": 2 }, { "event": "text", "text": "Hel" }]);
    let item = json!({ "id": id, "token": token, "said": said });
    let told = hand.post("stream", json!({ "items": [item] })).await.is(200);
    assert_eq!(told.body, json!({ "answers": ["written"] }));
    for (event, field) in [("text", "text"), ("log", "message"), ("progress", "status")] {
        let said = json!([{ "event": event, field: "no", "colour": "red" }]);
        for kept in ["said", "ephemeral"] {
            let item = json!({ "id": id, "token": token, kept: said });
            let told = hand.post("stream", json!({ "items": [item] })).await;
            told.refused(400, "request_invalid", "colour");
        }
    }
    let forged = token.as_i64().unwrap() + 1;
    let forged = json!({ "id": id, "token": forged, "said": [{ "event": "text", "text": "no" }] });
    hand.post("stream", json!({ "items": [forged] })).await.refused(409, "lease_lost", &id);
    hand.accepted(&token, &job["id"], json!({ "done": {} })).await;
    let told = kit.get(&format!("/v1/jobs/{id}/stream")).await.is(200);
    let events = told.body.as_str().unwrap();
    assert!(events.contains("Hel") && !events.contains("\"no\""), "{events}");
    kit.close().await;
}

async fn a_run_that_a_worker_parks_is_told_of(kit: Kit) {
    let hook = json!({ "url": "https://example.com/in", "queues": ["*"], "events": ["parked"] });
    let told = kit.send(Method::PUT, "/v1/webhooks/ops", &[], hook).await.is(201);
    assert_eq!(told.body["events"], json!(["parked"]));
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "order" })).await;
    let (token, _) = hand.claim().await;
    let said = json!([{ "event": "parked", "code": "parked_differs", "why": "no" }]);
    let item = json!({ "id": id, "token": token, "said": said });
    let told = hand.post("stream", json!({ "items": [item] })).await;
    told.refused(400, "request_invalid", "parked");
    let parks = json!({ "wait": { "parked": "no such tool", "read": 0 } });
    for _ in 0..2 {
        hand.accepted(&token, &json!(id), parks.clone()).await;
    }
    let told = kit.get("/v1/webhooks/ops/deliveries").await.is(200).body;
    let told = told["deliveries"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!((&told[0]["event"], &told[0]["job"]), (&json!("job.parked"), &json!(id)));
    kit.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.is(200);
    let told = kit.get(&format!("/v1/jobs/{id}/stream")).await.is(200);
    let events = told.body.as_str().unwrap();
    let parked = r#""event":"parked","code":"parked_by_worker","why":"no such tool""#;
    assert!(events.contains("event: parked\nid: 1\n") && events.contains(parked), "{events}");
    assert_eq!(events.matches("event: parked").count(), 1, "{events}");
    kit.close().await;
}

async fn what_makes_no_sense_is_refused_and_changes_nothing(kit: Kit) {
    let hand = Hand::new(&kit).await;
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let (token, job) = hand.claim().await;
    for (verb, body, says) in [
        ("claim", json!({ "queues": ["default"], "jobs_max": 0 }), "between 1 and 500"),
        ("claim", json!({ "queues": ["default"], "jobs_max": 501 }), "between 1 and 500"),
        ("claim", json!({ "queues": ["default"], "weight": 1 }), "weight"),
        ("beat", json!({ "tokens": "all" }), "tokens"),
        ("settle", json!({ "reports": [{ "id": id, "token": token }] }), "outcome"),
    ] {
        hand.post(verb, body).await.refused(400, "request_invalid", says);
    }
    hand.post("claim", json!({ "queues": [] })).await.refused(
        400,
        "work_invalid",
        "between 1 and 100",
    );
    for (outcome, says) in [
        (json!({ "won": {} }), "won"),
        (json!({ "done": { "result": 1 } }), "result"),
        (json!({ "failed": { "class": "poison", "message": "x" } }), "for the store to say"),
    ] {
        hand.settle(&token, &job["id"], outcome).await.refused(400, "request_invalid", says);
    }
    let failed = json!({ "failed": { "class": "permanent", "message": "x" } });
    for (outcome, run, says) in [
        (
            json!({ "done": {} }),
            json!({ "renewal": { "payload": 1, "version": "v", "taken": [] } }),
            "`wait` alone",
        ),
        (failed.clone(), json!({ "object": { "this": 1 } }), "`done` alone"),
        (
            json!({ "wait": { "mail_min": 1, "read": 0 } }),
            json!({ "object": "nothing" }),
            "`done` alone",
        ),
    ] {
        let report = json!({ "id": id, "token": token, "outcome": outcome, "run": run });
        let told = hand.post("settle", json!({ "reports": [report] })).await;
        told.refused(400, "request_invalid", says);
    }
    let two = json!({ "done": {}, "failed": { "message": "x" } });
    let told = hand.settle(&token, &job["id"], two).await;
    let says = "reports[0].outcome: an attempt ends with one outcome, and \"failed\" is a second";
    told.refused(400, "request_invalid", says);
    let noted =
        |number: u32| json!({ "number": number, "entry": { "noted": { "key": "a", "value": 1 } } });
    for (entries, says) in [
        (json!([noted(1 << 31)]), "entry 2147483648: numbers end at 2147483647"),
        (json!([noted(2), noted(2)]), "entry 2 is given twice"),
        (
            json!([{ "number": 2, "entry": { "noted": { "key": "a", "value": 1, "zzz": 2 } } }]),
            "zzz",
        ),
    ] {
        let body = json!({ "id": job["id"], "token": token, "writes": { "entries": entries } });
        hand.post("journal", body).await.refused(400, "request_invalid", says);
    }
    let follow_ups = json!([{ "kind": "" }]);
    let told =
        hand.settle(&token, &job["id"], json!({ "done": { "follow_ups": follow_ups } })).await;
    assert!((400..500).contains(&told.status), "{told:?}");
    let step = json!([{ "name": "s", "jobs": [{ "kind": "k" }] }]);
    let told = hand.settle(&token, &job["id"], json!({ "done": { "steps": step } })).await;
    told.refused(400, "flow_invalid", "in no flow");
    let report = json!({ "id": id, "token": token, "outcome": { "done": {} } });
    let many = json!({ "reports": vec![report; 1001] });
    let told = hand.post("settle", many).await;
    assert_eq!(told.status, 413, "{told:?}");
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["state"], "running");
    for (part, value, says) in [
        ("lease", json!("1ms"), "between 1s and"),
        ("slots_of", json!({ "p": { "own": 1 } }), "slots of \"p\", and does not take from it"),
        ("slots_of", json!({ "q": {} }), "takes from \"q\", and has no slots for it"),
        ("slots_of", json!({ "q": { "own": 4 } }), "has 3 slots, and 4 are queues' own"),
        (
            "slots_of",
            json!({ "q": { "own": 2, "shared": 2 } }),
            "shares 1 of 3 slots, and \"q\" may take 2",
        ),
    ] {
        let card = json!({ "name": "x", "queues": ["q"], "slots": 3, part: value });
        kit.post("/v1/workers", card).await.refused(400, "work_invalid", says);
    }
    kit.close().await;
}

async fn a_worker_takes_from_its_own_queues_alone(kit: Kit) {
    let kit = kit.closed().await;
    let of = |queue: &str| Grant { queues: vec![queue.into()], ..Grant::new(Role::Worker) };
    let mail = kit.credential("mail", of("mail:*")).await;
    let pay = kit.credential("pay", of("pay")).await;
    let post = async |secret: &str, path: &str, body: Value| {
        kit.ask(secret, Method::POST, path, body).await
    };
    let card = json!({ "name": "w", "queues": ["mail:*"] });
    post(&pay, "/v1/workers", card.clone()).await.refused(403, "queue_refused", "mail:*");
    let id = post(&mail, "/v1/workers", card).await.is(201).body["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/workers/{id}");
    let ask = json!({ "queues": ["mail:eu", "pay"] });
    post(&mail, &format!("{path}/claim"), ask).await.refused(403, "queue_refused", "pay");
    let wish = json!({ "kind": "k", "queue": "mail:eu" });
    let job = post(&mail, "/v1/jobs", wish).await.is(201).body["id"].clone();
    let ask = json!({ "queues": ["mail:*"], "wait": "30s" });
    let told = post(&mail, &format!("{path}/claim"), ask).await.is(200);
    let token = &told.body["token"];
    let report =
        |outcome: Value| json!({ "reports": [{ "id": job, "token": token, "outcome": outcome }] });
    let settle = format!("{path}/settle");
    let pays = post(&pay, "/v1/workers", json!({ "name": "w", "queues": ["pay"] })).await.is(201);
    let pays = format!("/v1/workers/{}/settle", pays.body["id"].as_str().unwrap());
    post(&pay, &pays, report(json!({ "done": {} }))).await.refused(409, "lease_lost", "");
    let beyond = json!({ "done": { "follow_ups": [{ "kind": "k", "queue": "pay" }] } });
    post(&mail, &settle, report(beyond)).await.refused(403, "queue_refused", "pay");
    post(&mail, &settle, report(json!({ "done": {} }))).await.is(200);
    kit.close().await;
}

async fn a_worker_is_of_the_credential_that_has_registered_it(kit: Kit) {
    let kit = kit.closed().await;
    let node = kit.twin().await.closed().await;
    let ada = kit.credential("ada", Grant::new(Role::Worker)).await;
    let bob = kit.credential("bob", Grant::new(Role::Worker)).await;
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    let card = json!({ "name": "w", "queues": ["default"], "lease": "10m" });
    let told = kit.ask(&ada, Method::POST, "/v1/workers", card.clone()).await.is(201);
    let worker = told.body["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/workers/{worker}");
    let told = kit.ask(&ada, Method::POST, "/v1/jobs", json!({ "kind": "k" })).await.is(201);
    let job = told.body["id"].clone();
    let ask = json!({ "queues": ["default"], "wait": "30s" });
    let claimed = node.ask(&ada, Method::POST, &format!("{path}/claim"), ask.clone()).await.is(200);
    let token = &claimed.body["token"];
    let said = json!({ "event": "log", "message": "hello" });
    let acts = [
        ("beat", json!({})),
        ("claim", json!({ "queues": ["default"] })),
        (
            "settle",
            json!({ "reports": [{ "id": job, "token": token, "outcome": { "give_back": {} } }] }),
        ),
        ("journal", json!({ "id": job, "token": token, "writes": { "begins": "v1" } })),
        ("stream", json!({ "items": [{ "id": job, "token": token, "said": [said] }] })),
    ];
    for at in [&kit, &node] {
        for (act, body) in &acts {
            let told = at.ask(&bob, Method::POST, &format!("{path}/{act}"), body.clone()).await;
            told.refused(403, "worker_refused", &worker);
        }
        let told = at.ask(&bob, Method::DELETE, &path, json!({})).await;
        told.refused(403, "worker_refused", &worker);
    }
    let view = format!("/v1/jobs/{}", job.as_str().unwrap());
    let view = kit.ask(&ada, Method::GET, &view, json!(null)).await.is(200).body;
    assert_eq!(view["state"], "running", "it is still hers");
    // One that works beside the server, in a process that has the store, is nobody's.
    let beside = tidemill::WorkerId::new();
    let told = kit.ask(&bob, Method::DELETE, &format!("/v1/workers/{beside}"), json!({})).await;
    told.refused(403, "worker_refused", "of its own");
    node.ask(&ada, Method::POST, &format!("{path}/beat"), json!({})).await.is(200);
    let told = kit.ask(&root, Method::DELETE, &path, json!({})).await.is(200);
    assert_eq!(told.body["given_back"], 1, "an admin signs off what hangs");
    let told = kit.ask(&ada, Method::POST, &format!("{path}/beat"), json!({})).await;
    told.refused(409, "worker_lost", &worker);
    node.close().await;
    kit.close().await;
}
