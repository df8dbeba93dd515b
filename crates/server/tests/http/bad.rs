//! Bad input: a problem document of the 400s, whatever it is, and nothing is written.

use reqwest::Method;
use serde_json::{Value, json};
use tidemill_server::{Access, Error, Server, Settings};

use super::kit::{Kit, Told, settings};

over_both_stores!(
    wishes_that_cannot_be_are_refused,
    bodies_that_are_no_json_are_refused,
    what_is_not_there_is_told,
    strangers_are_refused,
);

async fn wishes_that_cannot_be_are_refused(kit: Kit) {
    let long = "x".repeat(201);
    for (wish, code, says) in [
        (json!({}), "request_invalid", "kind"),
        (json!([]), "request_invalid", "not as it should be"),
        (json!({ "kind": "k", "dealy": "5m" }), "request_invalid", "dealy"),
        (json!({ "kind": "k", "delay": "5" }), "request_invalid", "not a duration"),
        (json!({ "kind": "k", "priority": "fast" }), "request_invalid", "fast"),
        (json!({ "kind": long }), "name_too_long", "201"),
        (json!({ "kind": "k\n" }), "name_invalid", "kind"),
        (json!({ "kind": "k", "run_at": "2999-01-01T00:00:00Z" }), "due_too_far", "2999"),
        (json!({ "kind": "k", "payload": "a\u{0}" }), "payload_nul", "U+0000"),
        (json!({ "kind": "k", "attempts": 0 }), "wish_contradiction", "at least 1"),
        (json!({ "kind": "k", "id": "x" }), "request_invalid", "UUID"),
    ] {
        kit.post("/v1/jobs", wish).await.refused(400, code, says);
    }
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn bodies_that_are_no_json_are_refused(kit: Kit) {
    let send = async |kind: Option<&str>, body: Vec<u8>| {
        let request = kit.request(Method::POST, "/v1/jobs").body(body);
        let request =
            kind.into_iter().fold(request, |request, kind| request.header("content-type", kind));
        Told::of(request.send().await.unwrap()).await
    };
    let json = Some("application/json");
    send(json, b"{".to_vec()).await.refused(400, "request_invalid", "EOF");
    send(json, b"{\"kind\":\"\xff\"}".to_vec()).await.refused(400, "request_invalid", "");
    send(json, Vec::new()).await.refused(400, "request_invalid", "EOF");
    send(Some("text/plain"), b"{}".to_vec()).await.refused(415, "content_type_unsupported", "JSON");
    send(None, b"{}".to_vec()).await.refused(415, "content_type_unsupported", "JSON");
    let large = format!("{{\"kind\":\"k\",\"payload\":\"{}\"}}", "x".repeat(100_000));
    send(json, large.into_bytes()).await.refused(413, "body_too_large", "bytes");
    let deep = format!("{{\"kind\":\"k\",\"payload\":{}{}}}", "[".repeat(2000), "]".repeat(2000));
    send(json, deep.into_bytes()).await.is(400);
    kit.close().await;
}

async fn what_is_not_there_is_told(kit: Kit) {
    let id = tidemill::JobId::new();
    kit.get(&format!("/v1/jobs/{id}")).await.refused(404, "job_unknown", &id.to_string());
    kit.get(&format!("/v1/jobs/{id}/why")).await.refused(404, "job_unknown", "");
    kit.get(&format!("/v1/jobs/{id}/wait?timeout=1s")).await.refused(404, "job_unknown", "");
    kit.get("/v1/jobs/7").await.refused(400, "request_invalid", "\"7\"");
    kit.get("/v1/job").await.refused(404, "route_unknown", "/v1/job");
    kit.get("/v1/jobs?limit=0").await.refused(400, "request_invalid", "1000");
    kit.get("/v1/jobs?limit=many").await.refused(400, "request_invalid", "");
    kit.get("/v1/jobs?cursor=x").await.refused(400, "request_invalid", "UUID");
    kit.get("/v1/jobs?colour=red").await.refused(400, "request_invalid", "colour");
    let cancel = kit.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await;
    cancel.refused(404, "job_unknown", "");
    let signal = kit.post(&format!("/v1/jobs/{id}/signal"), json!({ "name": "go" })).await;
    signal.is(404);
    kit.send(Method::PATCH, "/v1/jobs", &[], Value::Null).await.refused(
        405,
        "method_not_allowed",
        "PATCH",
    );
    kit.close().await;
}

async fn strangers_are_refused(kit: Kit) {
    let get = async |name: &str, value: &str| {
        let request = kit.request(Method::GET, "/v1/jobs").header(name, value);
        Told::of(request.send().await.unwrap()).await
    };
    get("host", "evil.example").await.refused(421, "host_refused", "evil.example");
    get("host", "localhost.evil.example").await.refused(421, "host_refused", "");
    get("host", "localhost").await.is(200);
    get("origin", "https://evil.example").await.refused(403, "origin_refused", "evil.example");
    get("origin", "null").await.refused(403, "origin_refused", "null");
    let own = format!("http://{}", kit.server.address());
    get("origin", &own).await.is(200);
    kit.close().await;
}

#[tokio::test]
async fn an_address_that_others_reach_is_not_listened_on_unless_they_say_who_they_are() {
    let mill = tidemill::Tidemill::open("sqlite::memory:").await.unwrap();
    let open = Settings { listen: "0.0.0.0:0".parse().unwrap(), ..settings() };
    let error = Server::start(mill.clone(), open).await.unwrap_err();
    assert!(
        matches!(error, Error::BindRefused { .. }) && error.code() == "bind_refused",
        "{error}"
    );
    let first = Server::start(mill.clone(), settings()).await.unwrap();
    let same = Settings { listen: first.address(), ..settings() };
    let error = Server::start(mill.clone(), same).await.unwrap_err();
    assert_eq!(error.code(), "bind_failed");
    first.stop().await;
    let listen = "0.0.0.0:0".parse().unwrap();
    let known = Settings { listen, access: Access::Credentials, ..settings() };
    Server::start(mill.clone(), known).await.unwrap().stop().await;
    mill.close().await;
}
