//! Dead letters.

use serde_json::json;

use super::kit::Kit;

over_both_stores!(letters_are_listed_grouped_noted_and_put_aside);

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
