//! Queues and their rules.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidemill::{Grant, Role};
use tidemill_testkit::eventually::eventually;

use super::kit::Kit;

over_both_stores!(
    jobs_are_diverted_to_where_their_sender_may_send_them,
    rules_that_somebody_else_has_set_meanwhile_are_not_overwritten,
    who_has_read_that_there_are_no_rules_gives_the_first_ones,
    rules_that_somebody_else_has_set_meanwhile_are_not_taken_away,
    a_misspelt_rule_is_named_and_changes_nothing,
    a_queue_is_explained,
    a_producer_is_told_to_pause_and_to_go_on,
);

const SOON: Duration = Duration::from_mins(1);

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
    for unmet in ["W/\"2\"", "\"1\", W/\"2\"", "\"soon\"", "\"\""] {
        put(unmet, 7).await.refused(412, "rule_changed", "mail");
    }
    assert_eq!(kit.get(path).await.is(200).body["concurrency"], 6);
    put("\"7\", \"2\"", 6).await.is(200);
    put("*", 6).await.is(200);
    assert_eq!(kit.get(path).await.is(200).header("etag"), "\"4\"");
    let gone = kit.request(Method::DELETE, path).send().await.unwrap();
    assert_eq!(gone.status().as_u16(), 204);
    assert_eq!(kit.get(path).await.is(200).body["concurrency"], json!(null));
    kit.close().await;
}

async fn who_has_read_that_there_are_no_rules_gives_the_first_ones(kit: Kit) {
    let path = "/v1/queues/mail/rules";
    let tag = kit.get(path).await.is(200).header("etag").to_owned();
    let put = async |jobs: u32| {
        kit.send(Method::PUT, path, &[("if-match", &tag)], json!({ "concurrency": jobs })).await
    };
    let (one, other) = tokio::join!(put(1), put(2));
    let (won, lost) = if one.status == 200 { (one, other) } else { (other, one) };
    lost.refused(412, "rule_changed", "mail");
    let kept = kit.get(path).await.is(200);
    assert_eq!(kept.header("etag"), "\"1\"");
    assert_eq!(kept.body, won.is(200).body);
    // Who has read nothing sets them whatever is there; who sends what was read is told of others as well.
    let mut read = kit.send(Method::PUT, path, &[], json!({ "concurrency": 3 })).await.is(200).body;
    read["concurrency"] = json!(4);
    kit.send(Method::PUT, path, &[], read.clone()).await.is(200);
    kit.send(Method::PUT, path, &[], read.clone()).await.refused(412, "rule_changed", "mail");
    kit.send(Method::PUT, path, &[("if-match", "*")], read).await.is(200);
    kit.close().await;
}

async fn rules_that_somebody_else_has_set_meanwhile_are_not_taken_away(kit: Kit) {
    let path = "/v1/queues/mail/rules";
    let delete =
        async |tag: &str| kit.send(Method::DELETE, path, &[("if-match", tag)], json!({})).await;
    delete("\"1\"").await.refused(412, "rule_changed", "mail");
    delete("\"0\"").await.is(204);
    for jobs in 1..3 {
        kit.send(Method::PUT, path, &[], json!({ "concurrency": jobs })).await.is(200);
    }
    for old in ["\"0\"", "\"1\""] {
        delete(old).await.refused(412, "rule_changed", "mail");
    }
    delete("soon").await.refused(400, "request_invalid", "soon");
    let read = kit.get(path).await.is(200);
    assert_eq!(read.body["concurrency"], 2);
    delete(read.header("etag")).await.is(204);
    assert_eq!(kit.get(path).await.is(200).header("etag"), "\"0\"");
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

async fn a_producer_is_told_to_pause_and_to_go_on(kit: Kit) {
    let (depth, wait) = ("/v1/queues/default/depth", "/v1/queues/default/wait");
    let marks = json!({ "high_water": 2, "low_water": 0 });
    kit.send(Method::PUT, "/v1/queues/default/rules", &[], marks).await.is(200);
    assert_eq!(kit.get(wait).await.is(200).body["is_above"], false, "nobody has to wait");
    for _ in 0..2 {
        kit.enqueue(json!({ "kind": "echo", "payload": 1 })).await;
    }
    let deep = eventually("a queue above its watermark", SOON, async || {
        let deep = kit.get(depth).await.is(200).body;
        (deep["is_above"] == true).then_some(deep)
    })
    .await;
    assert_eq!((&deep["queue"], &deep["depth"]), (&json!("default"), &json!(2)));
    assert!(deep["above_since"].is_string(), "{deep}");
    let still = kit.get(&format!("{wait}?timeout=10ms")).await.is(202).body;
    assert_eq!((&still["is_above"], &still["depth"]), (&json!(true), &json!(2)));
    let long = format!("{wait}?timeout=50s");
    let goes_on = async { kit.get(&long).await.is(200).body };
    let (goes_on, worker) = tokio::join!(goes_on, kit.work());
    assert_eq!((&goes_on["is_above"], &goes_on["depth"]), (&json!(false), &json!(0)));
    worker.stop().await;
    kit.get("/v1/queues/mail:*/depth").await.refused(400, "rule_invalid", "by its name");
    kit.get(&format!("{wait}?timeout=soon")).await.refused(400, "request_invalid", "soon");
    kit.get(&format!("{wait}?patience=1s")).await.refused(400, "request_invalid", "patience");
    kit.close().await;
}

async fn jobs_are_diverted_to_where_their_sender_may_send_them(kit: Kit) {
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Operator) };
    let (own, root) =
        (kit.credential("own", grant).await, kit.credential("root", Grant::new(Role::Admin)).await);
    let set = async |who: &str, to: &str| {
        let rules = json!({ "depth_max": 1, "overflow": { "policy": "divert", "queue": to } });
        kit.ask(who, Method::PUT, "/v1/queues/mail:eu/rules", rules).await
    };
    set(&own, "pay").await.refused(403, "queue_refused", "pay");
    for who in [&own, &root] {
        let told = set(who, "tidemill:webhooks").await;
        assert!(told.status == 403 || told.body["code"] == "name_reserved", "{told:?}");
    }
    set(&own, "mail:uk").await.is(200);
    set(&root, "pay").await.is(200);
    kit.close().await;
}
