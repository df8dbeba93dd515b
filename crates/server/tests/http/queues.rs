//! Queues and their rules.

use reqwest::Method;
use serde_json::json;

use super::kit::Kit;

over_both_stores!(
    rules_that_somebody_else_has_set_meanwhile_are_not_overwritten,
    a_misspelt_rule_is_named_and_changes_nothing,
    a_queue_is_explained,
);

async fn rules_that_somebody_else_has_set_meanwhile_are_not_overwritten(kit: Kit) {
    let path = "/v1/queues/mail/rules";
    let first = kit.get(path).await.is(200);
    assert_eq!(first.header("etag"), "\"0\"");
    let set = kit.send(Method::PUT, path, &[], json!({ "concurrency": 5 })).await.is(200);
    let tag = set.header("etag").to_owned();
    assert_eq!(set.body["concurrency"], 5);
    let put = async |tag: &str, jobs: u32| {
        kit.send(Method::PUT, path, &[("if-match", tag)], json!({ "concurrency": jobs })).await
    };
    put(&tag, 6).await.is(200);
    put(&tag, 7).await.refused(412, "rule_changed", "mail");
    put("soon", 7).await.refused(400, "request_invalid", "soon");
    assert_eq!(kit.get(path).await.is(200).body["concurrency"], 6);
    let gone = kit.request(Method::DELETE, path).send().await.unwrap();
    assert_eq!(gone.status().as_u16(), 204);
    assert_eq!(kit.get(path).await.is(200).body["concurrency"], json!(null));
    kit.close().await;
}

async fn a_misspelt_rule_is_named_and_changes_nothing(kit: Kit) {
    let path = "/v1/queues/mail/rules";
    for (rules, code, says) in [
        (json!({ "concurency": 5 }), "request_invalid", "concurency"),
        (json!({ "concurrency": "five" }), "request_invalid", "invalid type"),
        (json!({ "concurrency": 0 }), "rule_invalid", "pause the queue"),
        (json!({ "rate": { "jobs": 1, "per_ms": 9, "brust": 5 } }), "request_invalid", "brust"),
        (
            json!({ "depth_max": 9, "overflow": { "policy": "reject", "after": 5 } }),
            "request_invalid",
            "after",
        ),
        (
            json!({ "limits": { "x": { "rate": { "jobs": 1, "per_ms": 9, "brust": 5 } } } }),
            "request_invalid",
            "brust",
        ),
        (json!({ "retention": { "finished": 5 } }), "request_invalid", "finished"),
        (json!({ "retry": { "attempts_max": 0 } }), "rule_invalid", "at least 1"),
        (json!({ "retry": { "backoff": { "type": "fixed", "ms": 5 } } }), "request_invalid", "ms"),
        (json!({ "start_within_ms": 2, "finish_within_ms": 1 }), "rule_invalid", "finish within"),
        (json!([]), "request_invalid", "JSON object"),
    ] {
        kit.send(Method::PUT, path, &[], rules).await.refused(400, code, says);
    }
    assert_eq!(kit.get(path).await.is(200).header("etag"), "\"0\"");
    kit.close().await;
}

async fn a_queue_is_explained(kit: Kit) {
    kit.enqueue(json!({ "kind": "echo", "queue": "mail" })).await;
    let why = kit.get("/v1/queues/mail/why").await.is(200).body;
    assert_eq!(why["depth"], 1);
    assert!(why["sentence"].as_str().unwrap().starts_with("depth 1"), "{why}");
    let queues = kit.get("/v1/queues").await.is(200).body;
    assert_eq!(queues[0]["name"], "mail");
    let worker = kit.work().await;
    assert_eq!(kit.get("/v1/workers").await.is(200).body.as_array().unwrap().len(), 1);
    worker.stop().await;
    kit.close().await;
}
