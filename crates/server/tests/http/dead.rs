//! Dead letters.

use reqwest::Method;
use serde_json::json;
use tidemill::{Context, Enqueue, Fail, Grant, Role, Settings};

use super::kit::Kit;

over_both_stores!(
    letters_are_listed_grouped_noted_and_put_aside,
    letters_are_sampled_and_replayed,
    a_run_that_is_undone_is_not_replayed,
    rules_are_of_those_who_reach_their_queue,
);

async fn letters_are_listed_grouped_noted_and_put_aside(kit: Kit) {
    let worker = kit.work().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let id = kit.enqueue(json!({ "kind": "fail", "payload": n })).await;
        assert_eq!(kit.finished(&id).await["state"], "dead");
        ids.push(id);
    }
    worker.stop().await;
    let list = async |query: &str| kit.get(&format!("/v1/dead{query}")).await.is(200).body;
    let letters = list("?kind=fail").await["letters"].clone();
    let found: Vec<_> = letters.as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert_eq!(found, [json!(ids[2]), json!(ids[1]), json!(ids[0])], "latest death first");
    assert_eq!(letters[0]["error"], "no such thing");
    let first = list("?limit=2").await;
    let rest = list(&format!("?limit=2&cursor={}", first["next"].as_str().unwrap())).await;
    assert_eq!(
        (&first["letters"][1]["id"], &rest["letters"][0]["id"]),
        (&json!(ids[1]), &json!(ids[0]))
    );
    assert_eq!((rest["letters"].as_array().unwrap().len(), &rest["next"]), (1, &json!(null)));
    assert_eq!(list("?queue=other").await["letters"], json!([]));
    assert_eq!(list("?error_contains=other").await["letters"], json!([]));
    let groups = kit.get("/v1/dead/groups").await.is(200).body;
    assert_eq!((groups.as_array().unwrap().len(), &groups[0]["count"]), (1, &json!(3)));

    let note = async |body| kit.post("/v1/dead/notes", body).await;
    let told =
        note(json!({ "ids": [ids[0]], "text": "seen", "triage": "investigated" })).await.is(200);
    assert_eq!(told.body["letters"], 1);
    let letters = list("?triage=investigated").await["letters"].clone();
    assert_eq!(letters[0]["notes"][0]["by"], "http");
    assert!(letters[0]["notes"][0]["text"].as_str().unwrap().contains("seen"));
    note(json!({ "ids": ids, "text": "enough", "archive": true })).await.is(200);
    assert_eq!(list("").await["letters"], json!([]));
    assert_eq!(list("?archived=true").await["letters"].as_array().unwrap().len(), 3);

    note(json!({ "ids": [], "text": "x" })).await.refused(400, "request_invalid", "1000");
    let sent = json!({ "ids": [ids[1]], "text": "x", "triage": "retrying" });
    note(sent).await.refused(400, "word_unknown", "replay");
    let both = json!({ "ids": ids, "text": "x", "archive": true, "triage": "new" });
    note(both).await.refused(400, "request_invalid", "one after the other");
    kit.get("/v1/dead?limit=1001").await.refused(400, "request_invalid", "1000");
    kit.get("/v1/dead?cursor=66").await.refused(400, "request_invalid", "cursor");
    kit.get("/v1/dead?triage=lost").await.refused(400, "request_invalid", "");
    kit.close().await;
}

async fn letters_are_sampled_and_replayed(kit: Kit) {
    let worker = kit.work().await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let id = kit.enqueue(json!({ "kind": "fail", "payload": n })).await;
        assert_eq!(kit.finished(&id).await["state"], "dead");
        ids.push(id);
    }
    worker.stop().await;
    let drawn = kit.get("/v1/dead/sample?limit=2").await.is(200).body;
    let drawn: Vec<_> = drawn.as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
    assert!(drawn.len() == 2 && drawn[0] != drawn[1], "{drawn:?}");
    kit.get("/v1/dead/sample?limit=0").await.refused(400, "request_invalid", "1000");

    let replay = async |body| kit.post("/v1/dead/replay", body).await;
    let two = json!({ "ids": ids, "payload": 1 });
    replay(two).await.refused(400, "request_invalid", "one letter alone");
    replay(json!({ "ids": [] })).await.refused(400, "request_invalid", "1000");
    let told = replay(json!({ "ids": [ids[0]], "payload": { "n": 1.5 } })).await.is(200);
    assert_eq!(told.body["replayed"], json!([ids[0]]));
    let job = kit.get(&format!("/v1/jobs/{}", ids[0])).await.is(200).body;
    assert_eq!((&job["state"], &job["payload"]), (&json!("ready"), &json!({ "n": 1.5 })));
    let told = replay(json!({ "ids": ids })).await.is(200);
    let mut went: Vec<_> = told.body["replayed"].as_array().unwrap().clone();
    went.sort_by_key(ToString::to_string);
    assert_eq!(went, [json!(ids[1]), json!(ids[2])], "the first is on its way already");
    assert_eq!(replay(json!({ "ids": ids })).await.is(200).body["replayed"], json!([]));

    let note = async |body| kit.post("/v1/dead/notes", body).await;
    let abandon = json!({ "ids": [ids[0]], "text": "no", "triage": "abandoned" });
    note(abandon).await.refused(409, "job_not_now", "on its way");
    note(json!({ "ids": [ids[0]], "text": "no", "archive": true })).await.refused(
        409,
        "job_not_now",
        &ids[0],
    );
    note(json!({ "ids": [ids[0]], "text": "it was the disk" })).await.is(200);
    assert_eq!(kit.get("/v1/dead/groups").await.is(200).body, json!([]), "none is dead now");
    let sent = kit.get("/v1/dead?triage=retrying").await.is(200).body["letters"].clone();
    assert_eq!((sent.as_array().unwrap().len(), &sent[0]["dead"]), (3, &json!(false)));
    kit.close().await;
}

async fn a_run_that_is_undone_is_not_replayed(kit: Kit) {
    let book = |_, cx: Context| async move {
        let undo = Enqueue::raw("give_back", "null");
        cx.step("book").undo(undo).run(|_| async { Ok(()) }).await?;
        Err(Fail::permanent("no money"))
    };
    let worker = kit.mill.worker().handle_raw("book", Settings::default(), book);
    let worker = worker.start().await.unwrap();
    let id = kit.enqueue(json!({ "kind": "book", "payload": null })).await;
    assert_eq!(kit.finished(&id).await["state"], "dead");
    // From its death on, whether somebody has seen to it or not.
    for payload in [json!({ "ids": [id] }), json!({ "ids": [id], "payload": 1 })] {
        kit.post("/v1/dead/replay", payload).await.refused(409, "run_not_now", "undone");
    }
    kit.post(&format!("/v1/jobs/{id}/retry"), json!({})).await.refused(409, "run_not_now", "");
    let other = kit.enqueue(json!({ "kind": "book", "payload": null })).await;
    assert_eq!(kit.finished(&other).await["state"], "dead");
    let many = kit.post("/v1/dead/replay", json!({ "ids": [id, other] })).await.is(200);
    assert_eq!(many.body["replayed"], json!([]));
    worker.stop().await;
    kit.close().await;
}

async fn rules_are_of_those_who_reach_their_queue(kit: Kit) {
    let kit = kit.closed().await;
    let admin = kit.credential("admin", Grant::new(Role::Admin)).await;
    let grant = Grant { queues: vec!["mail".into()], ..Grant::new(Role::Operator) };
    let mail = kit.credential("mail", grant).await;
    let rule = async |secret: &str, method, name: &str, body| {
        kit.ask(secret, method, &format!("/v1/dead/rules/{name}"), body).await
    };
    let flaky = json!({ "queue": "mail", "class": "transient", "delay": "90s" });
    let told = rule(&mail, Method::PUT, "flaky", flaky).await.is(200).body;
    assert_eq!((&told["delay_ms"], &told["redrives_max"]), (&json!(90_000), &json!(1)));
    rule(&admin, Method::PUT, "all", json!({})).await.is(200);
    let seen = kit.ask(&mail, Method::GET, "/v1/dead/rules", json!({})).await.is(200).body;
    assert_eq!((seen.as_array().unwrap().len(), &seen[0]["name"]), (1, &json!("flaky")));
    let other = json!({ "queue": "other" });
    rule(&mail, Method::PUT, "mine", other).await.refused(403, "queue_refused", "other");
    let own = json!({ "queue": "mail" });
    rule(&mail, Method::PUT, "all", own).await.refused(403, "queue_refused", "");
    rule(&mail, Method::DELETE, "all", json!({})).await.refused(403, "queue_refused", "");
    rule(&mail, Method::DELETE, "flaky", json!({})).await.is(204);
    rule(&mail, Method::DELETE, "flaky", json!({})).await.is(204);
    let never = json!({ "delay": "9000000d" });
    rule(&admin, Method::PUT, "x", never).await.refused(400, "request_invalid", "a year");
    let seen = kit.ask(&admin, Method::GET, "/v1/dead/rules", json!({})).await.is(200).body;
    assert_eq!((seen.as_array().unwrap().len(), &seen[0]["name"]), (1, &json!("all")));
    kit.close().await;
}
