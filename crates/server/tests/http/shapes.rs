//! Lists in the place of objects: refused wherever the description has an object, and nowhere else.

use reqwest::Method;
use serde_json::{Value, json};

use super::kit::Kit;

over_both_stores!(
    a_list_is_no_object_anywhere_in_what_is_described,
    what_a_list_would_have_been_taken_for_is_not_written,
    lists_that_are_a_jobs_own_are_taken,
);

/// Everything of a schema that has one list where an object should be, and nothing else.
fn with_a_list(description: &Value, schema: &Value, above: &mut Vec<String>) -> Vec<Value> {
    if !schema.is_object() {
        return Vec::new();
    }
    if let Some(place) = schema["$ref"].as_str() {
        if above.iter().any(|known| known == place) {
            return Vec::new();
        }
        above.push(place.to_owned());
        let meant = description.pointer(place.trim_start_matches('#')).unwrap();
        let made = with_a_list(description, meant, above);
        above.pop();
        return made;
    }
    let parts = ["oneOf", "anyOf", "allOf"].map(|word| schema[word].as_array());
    let mut made = Vec::new();
    for part in parts.into_iter().flatten().flatten() {
        made.extend(with_a_list(description, part, above));
    }
    if schema["type"] == "object" {
        made.push(json!([]));
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let within = with_a_list(description, field, above).into_iter();
            made.extend(within.map(|value| json!({ name.clone(): value })));
        }
        let within = with_a_list(description, &schema["additionalProperties"], above).into_iter();
        made.extend(within.map(|value| json!({ "x": value })));
    }
    let within = with_a_list(description, &schema["items"], above).into_iter();
    made.extend(within.map(|value| json!([value])));
    made
}

async fn a_list_is_no_object_anywhere_in_what_is_described(kit: Kit) {
    let description = kit.get("/openapi.json").await.is(200).body;
    let id = tidemill::JobId::new().to_string();
    let mut refused = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let path = path.replace("{id}", &id).replace(['{', '}'], "");
            for body in with_a_list(&description, schema, &mut Vec::new()) {
                let told = kit.send(method.clone(), &path, &[], body.clone()).await;
                let says = if body.is_array() { "not a JSON object" } else { "it is a list" };
                assert_eq!(told.status, 400, "{method} {path} {body}: {told:?}");
                told.refused(400, "request_invalid", says);
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused}");
    kit.close().await;
}

async fn what_a_list_would_have_been_taken_for_is_not_written(kit: Kit) {
    for (body, place) in [
        (json!({ "retention": [1, 2, 3] }), "retention"),
        (json!({ "weights": [8, 4, 2, 1] }), "weights"),
        (json!({ "retry": { "backoff": ["fixed", 1] } }), "retry.backoff"),
        (json!({ "limits": { "a": {}, "b": [null, "all"] } }), "limits.b"),
    ] {
        let told = kit.send(Method::PUT, "/v1/queues/q/rules", &[], body).await;
        let says = format!("{place}: it is a list, and should be an object");
        told.refused(400, "request_invalid", &says);
    }
    assert_eq!(kit.get("/v1/queues/q/rules").await.is(200).body["version"], 0);
    let jobs = json!({ "jobs": [{ "kind": "k" }, ["k"], { "kind": "k" }] });
    kit.post("/v1/jobs/batch", jobs).await.refused(400, "request_invalid", "jobs[1]: it is a list");
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn lists_that_are_a_jobs_own_are_taken(kit: Kit) {
    let payload = json!([{ "retention": [1] }, [[]], []]);
    let id = kit.enqueue(json!({ "kind": "echo", "payload": payload, "tags": ["a"] })).await;
    let worker = kit.work().await;
    assert_eq!(kit.finished(&id).await["output"], payload);
    worker.stop().await;
    kit.close().await;
}
