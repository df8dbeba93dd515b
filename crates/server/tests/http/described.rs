//! The description of the API.

use serde_json::Value;
use tidemill_server::Server;

use super::kit::Kit;

const KEPT: &str = include_str!("../../openapi.json");

#[test]
fn the_description_is_the_one_that_was_looked_at() {
    assert!(
        Server::description().trim() == KEPT.trim(),
        "the API has changed; look at what `tidemill serve --describe > crates/server/openapi.json` changes"
    );
}

#[tokio::test]
async fn it_is_served_and_every_refusal_in_it_is_a_problem() {
    let kit = Kit::sqlite().await;
    let served = kit.get("/openapi.json").await.is(200).body;
    assert_eq!(served, serde_json::from_str::<Value>(KEPT).unwrap());
    assert_eq!(served["openapi"], "3.1.0");
    let mut refusals = 0;
    for (path, methods) in served["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(operation["operationId"].is_string(), "{method} {path}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                if status.as_str() >= "400" {
                    let content = &response["content"]["application/problem+json"];
                    assert!(content.is_object(), "{method} {path} {status}");
                    refusals += 1;
                }
            }
        }
    }
    assert!(refusals > 20);
    kit.close().await;
}
