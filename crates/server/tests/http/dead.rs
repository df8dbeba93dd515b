//! Dead letters.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Grant, Role};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

over_both_stores!(
    letters_are_listed_grouped_noted_and_put_aside,
    rules_say_what_is_sent_on_its_way_again,
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
    let both = json!({ "ids": ids, "text": "x", "archive": true, "triage": "new" });
    note(both).await.refused(400, "request_invalid", "one after the other");
    kit.get("/v1/dead?limit=1001").await.refused(400, "request_invalid", "1000");
    kit.get("/v1/dead?cursor=66").await.refused(400, "request_invalid", "cursor");
    kit.get("/v1/dead?triage=lost").await.refused(400, "request_invalid", "");
    kit.close().await;
}

async fn rules_say_what_is_sent_on_its_way_again(kit: Kit) {
    let put = async |body| kit.send(Method::PUT, "/v1/dead/rules/again", &[], body).await;
    put(json!({ "redrives_max": 0 })).await.refused(400, "request_invalid", "redrives_max");
    put(json!({ "class": "odd" })).await.refused(400, "request_invalid", "odd");
    put(json!({ "kinds": "fail" })).await.refused(400, "request_invalid", "kinds");
    assert_eq!(kit.get("/v1/dead/rules").await.is(200).body, json!([]));
    put(json!({ "kind": "fail", "error_contains": "no such", "delay": "0s" })).await.is(204);
    let rules = kit.get("/v1/dead/rules").await.is(200).body;
    assert_eq!((&rules[0]["name"], &rules[0]["redrives_max"]), (&json!("again"), &json!(1)));
    assert_eq!((&rules[0]["delay_ms"], &rules[0]["queue"]), (&json!(0), &Value::Null));

    let worker = kit.work().await;
    let id = kit.enqueue(json!({ "kind": "fail" })).await;
    eventually("it to be sent on its way again, once", Duration::from_mins(1), async || {
        let dead = kit.get("/v1/dead").await.is(200).body["letters"][0].clone();
        (dead["id"] == id && dead["redrives"] == 1).then_some(())
    })
    .await;
    worker.stop().await;

    let kit = kit.closed().await;
    let mailer = Grant { queues: vec!["mail".into()], ..Grant::new(Role::Operator) };
    let mailer = kit.credential("mailer", mailer).await;
    let path = "/v1/dead/rules/again";
    let ask = async |method, path: &str, body| kit.ask(&mailer, method, path, body).await;
    assert_eq!(ask(Method::GET, "/v1/dead/rules", json!({})).await.is(200).body, json!([]));
    let theirs = json!({ "queue": "mail" });
    ask(Method::PUT, path, theirs.clone()).await.refused(403, "queue_refused", "*");
    ask(Method::DELETE, path, json!({})).await.refused(403, "queue_refused", "*");
    ask(Method::PUT, "/v1/dead/rules/mail", theirs).await.is(204);
    let root = kit.credential("root", Grant::new(Role::Admin)).await;
    kit.ask(&root, Method::DELETE, path, json!({})).await.is(204);
    let left = kit.ask(&root, Method::GET, "/v1/dead/rules", json!({})).await.is(200).body;
    assert_eq!((left.as_array().unwrap().len(), &left[0]["name"]), (1, &json!("mail")));
    kit.close().await;
}
