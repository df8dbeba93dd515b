//! Limits with a name.

use reqwest::Method;
use serde_json::json;
use tidemill::{Grant, Role};

use super::kit::Kit;

over_both_stores!(a_limit_is_set_seen_and_taken_away, a_limit_beyond_a_credential_is_out_of_reach,);

async fn a_limit_is_set_seen_and_taken_away(kit: Kit) {
    let put = async |path: &str, body| kit.send(Method::PUT, path, &[], body).await;
    let limit = json!({ "concurrency": 5, "kind": "charge" });
    put("/v1/limits/stripe?queue=pay", limit.clone()).await.is(204);
    put("/v1/limits/all", json!({ "concurrency": 100 })).await.is(204);
    let limits = kit.get("/v1/limits").await.is(200).body;
    let of = |name: &str| {
        limits.as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap().clone()
    };
    let stripe = of("stripe");
    assert_eq!((&stripe["queue"], &stripe["concurrency"]), (&json!("pay"), &json!(5)));
    assert_eq!((&stripe["inside"], &stripe["held"]), (&json!(0), &json!(0)));
    assert_eq!(of("all")["queue"], "*");
    put("/v1/limits/x", json!({ "concurency": 5 })).await.refused(
        400,
        "request_invalid",
        "concurency",
    );
    put("/v1/limits/x", json!({ "concurrency": 0 })).await.refused(400, "rule_invalid", "");
    let delete = async |path: &str| kit.send(Method::DELETE, path, &[], json!({})).await;
    delete("/v1/limits/stripe").await.refused(404, "limit_unknown", "stripe");
    delete("/v1/limits/stripe?queue=pay").await.is(204);
    assert_eq!(kit.get("/v1/limits").await.is(200).body.as_array().unwrap().len(), 1);
    kit.close().await;
}

async fn a_limit_beyond_a_credential_is_out_of_reach(kit: Kit) {
    let kit = kit.closed().await;
    let grant = Grant { queues: vec!["mail:*".into()], ..Grant::new(Role::Operator) };
    let secret = kit.credential("mailer", grant).await;
    let limit = json!({ "concurrency": 5 });
    let put = async |path: &str| kit.ask(&secret, Method::PUT, path, limit.clone()).await;
    put("/v1/limits/a").await.refused(403, "queue_refused", "*");
    put("/v1/limits/a?queue=mail:eu").await.is(204);
    kit.mill.set_limit("pay", "b", serde_json::from_value(limit.clone()).unwrap()).await.unwrap();
    let seen = kit.ask(&secret, Method::GET, "/v1/limits", json!({})).await.is(200).body;
    assert_eq!((seen.as_array().unwrap().len(), &seen[0]["name"]), (1, &json!("a")));
    kit.close().await;
}
