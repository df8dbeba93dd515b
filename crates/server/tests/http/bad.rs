//! Bad input: a problem document of the 400s, whatever it is, and nothing is written.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Fail, Payload};
use tidemill_server::{Access, Error, Server, Settings};

use super::kit::{Kit, Told, settings};

over_both_stores!(
    wishes_that_cannot_be_are_refused,
    bodies_that_are_no_json_are_refused,
    signals_that_nobody_takes_are_refused_when_there_is_no_room_for_more,
    what_is_not_there_is_told,
    pages_and_cursors_that_cannot_be_are_refused,
    parameters_that_an_operation_does_not_have_are_refused,
    batches_that_are_too_long_or_half_wrong_write_nothing,
    batches_say_which_of_them_is_refused,
    ids_that_were_used_or_forged_change_nothing,
    bytes_that_are_no_text_are_refused,
    heads_that_say_two_things_are_refused,
    heads_that_are_too_large_are_refused,
    heads_that_cannot_be_read_are_refused,
    bodies_that_do_not_come_in_time_are_refused,
    strangers_are_refused,
    times_beyond_all_databases_are_times,
    nobody_brings_jobs_where_webhooks_are_signed,
    nobody_changes_what_a_webhook_is_told,
    bodies_that_nobody_reads_are_refused,
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
        (json!({ "kind": "k", "id": "x" }), "request_invalid", "\"x\" is not an id; one is a UUID"),
        (
            json!({ "kind": "k", "run_at": "soon" }),
            "request_invalid",
            "\"soon\" is not a time; write",
        ),
        (json!({ "kind": " k" }), "name_invalid", "white space"),
        (json!({ "kind": "k", "start_within": "0s" }), "rule_invalid", "at least 1 ms"),
        (json!({ "kind": "k", "unique_key": "u", "unique_scope": "0s" }), "rule_invalid", "1 ms"),
        (json!({ "kind": "k", "trace": "junk" }), "trace_invalid", "traceparent"),
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
    for (kind, nothing) in [(json, ""), (json, " \n"), (None, ""), (Some("text/plain"), "")] {
        let told = send(kind, nothing.into()).await;
        told.refused(400, "request_invalid", "the body is empty");
    }
    send(Some("text/plain"), b"{}".to_vec()).await.refused(415, "content_type_unsupported", "JSON");
    send(None, b"{}".to_vec()).await.refused(415, "content_type_unsupported", "JSON");
    let large = format!("{{\"kind\":\"k\",\"payload\":\"{}\"}}", "x".repeat(100_000));
    send(json, large.into_bytes()).await.refused(413, "body_too_large", "bytes");
    let deep = format!("{{\"kind\":\"k\",\"payload\":{}{}}}", "[".repeat(2000), "]".repeat(2000));
    send(json, deep.into_bytes()).await.is(400);
    kit.close().await;
}

async fn signals_that_nobody_takes_are_refused_when_there_is_no_room_for_more(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "deaf", "payload": null })).await;
    let run = id.parse().unwrap();
    let large = "x".repeat(1_000_000);
    let rest = "x".repeat(100_000);
    for payload in std::iter::repeat_n(&large, 67).chain([&rest]) {
        kit.mill.signal(run, tidemill::Signal::new("go", payload)).await.unwrap();
    }
    let path = format!("/v1/jobs/{id}/signal");
    let signal = json!({ "name": "go", "payload": "x".repeat(10_000) });
    kit.post(&path, signal).await.refused(429, "mailbox_full", &id);
    kit.post(&path, json!({ "name": "go" })).await.is(202);
    let told = kit.get(&format!("/v1/workflows/{id}")).await.is(200);
    assert_eq!(told.body["signals_unread"], 69, "{:?}", told.body);
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

async fn pages_and_cursors_that_cannot_be_are_refused(kit: Kit) {
    for list in ["jobs", "dead", "flows", "workflows", "schedules"] {
        for limit in ["0", "1001", "-1", "4294967296", "many", ""] {
            let told = kit.get(&format!("/v1/{list}?limit={limit}")).await;
            told.refused(400, "request_invalid", "");
        }
    }
    for list in ["jobs", "flows", "workflows", "schedules"] {
        for cursor in ["", "x", "ffff", "%00", "%27%20OR%201", &"0".repeat(5000)] {
            let told = kit.get(&format!("/v1/{list}?cursor={cursor}")).await;
            told.refused(400, "request_invalid", "");
        }
    }
    kit.close().await;
}

/// Every operation, also those that take no parameters at all.
async fn parameters_that_an_operation_does_not_have_are_refused(kit: Kit) {
    let described = kit.get("/openapi.json").await.is(200).body;
    let mut refused = 0;
    for (path, methods) in described["paths"].as_object().unwrap() {
        if !path.starts_with("/v1/") {
            continue;
        }
        for method in methods.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let asked = format!("{}?colour=red", path.replace(['{', '}'], "x"));
            let told = kit.send(method, &asked, &[], json!({})).await;
            told.refused(400, "request_invalid", "\"colour\"");
            refused += 1;
        }
    }
    assert!(refused > 80, "{refused}");
    kit.get("/v1/queues?limit=5").await.refused(400, "request_invalid", "nor any");
    kit.get("/v1/audit?colour=red").await.refused(400, "request_invalid", "only who, act");
    // Probes and scrapes have words of their own.
    kit.get("/livez?colour=red").await.is(200);
    kit.close().await;
}

async fn batches_that_are_too_long_or_half_wrong_write_nothing(kit: Kit) {
    let jobs: Vec<_> = (0..10_001).map(|_| json!({})).collect();
    let told = kit.post("/v1/jobs/batch", json!({ "jobs": jobs })).await;
    assert!(told.status == 400 || told.status == 413, "{told:?}");
    for wrong in [json!({}), json!({ "kind": "k", "dealy": "1s" }), json!({ "kind": "" }), json!(7)]
    {
        let jobs = json!({ "jobs": [{ "kind": "k" }, wrong, { "kind": "k" }] });
        kit.post("/v1/jobs/batch", jobs).await.is(400);
    }
    let long = json!({ "kind": "k", "payload": "x".repeat(200_000) });
    kit.post("/v1/jobs/batch", json!({ "jobs": [{ "kind": "k" }, long] })).await.is(413);
    let steps = json!([{ "name": "a", "kind": "k" }, { "name": "b", "kind": "k", "after": ["c"] }]);
    kit.post("/v1/flows", json!({ "name": "f", "steps": steps })).await.is(400);
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn batches_say_which_of_them_is_refused(kit: Kit) {
    let like_encrypted = format!("tdm1:k:{}", "A".repeat(120));
    for (wrong, status, code) in [
        (json!({ "kind": "" }), 400, "name_empty"),
        (json!({ "kind": "k", "webhook": "nobody" }), 404, "webhook_unknown"),
        (json!({ "kind": "k", "payload": like_encrypted }), 400, "payload_reserved"),
    ] {
        let alone = kit.post("/v1/jobs", wrong.clone()).await;
        assert_eq!(alone.refused(status, code, "").body["index"], Value::Null, "{code}");
        let jobs = json!({ "jobs": [{ "kind": "k" }, wrong] });
        let told = kit.post("/v1/jobs/batch", jobs).await.refused(status, code, "job 1: ");
        assert_eq!(told.body["index"], 1, "{code}");
        let told = kit.post("/v1/jobs/batch", json!({ "jobs": [wrong] })).await;
        assert_eq!(told.refused(status, code, "job 0: ").body["index"], 0, "{code}");
    }
    for wrong in [json!({ "kind": "k", "delay": "5x" }), json!({ "kind": "k", "colour": "red" })] {
        let told = kit.post("/v1/jobs/batch", json!({ "jobs": [{ "kind": "k" }, wrong] })).await;
        assert_eq!(told.refused(400, "request_invalid", "jobs[1]").body["index"], 1);
    }
    let worker = kit.post("/v1/workers", json!({ "name": "w", "queues": ["default"] })).await;
    let worker = worker.is(201).body["id"].as_str().unwrap().to_owned();
    let id = tidemill::JobId::new();
    let item = |bytes: usize| {
        let said = json!({ "event": "text", "text": "x".repeat(bytes) });
        json!({ "id": id, "token": 1, "ephemeral": [said] })
    };
    let items = json!({ "items": [item(1), item(5_000)] });
    let told = kit.post(&format!("/v1/workers/{worker}/stream"), items).await;
    assert_eq!(told.refused(400, "chunk_too_large", "job 1: ").body["index"], 1);
    let report = json!({ "id": id, "token": 1, "outcome": { "done": {} } });
    let reports = json!({ "reports": [report, report] });
    let told = kit.post(&format!("/v1/workers/{worker}/settle"), reports).await;
    assert_eq!(told.refused(400, "work_invalid", "job 1: ").body["index"], 1);
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn ids_that_were_used_or_forged_change_nothing(kit: Kit) {
    let id = tidemill::JobId::new().to_string();
    let first = kit.post("/v1/jobs", json!({ "id": id, "kind": "k", "payload": 1 })).await.is(201);
    assert_eq!(first.body["id"], id);
    let again = kit.post("/v1/jobs", json!({ "id": id, "kind": "k", "payload": 2 })).await;
    assert!((200..500).contains(&again.status), "{again:?}");
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["payload"], 1, "{again:?}");
    let forged = tidemill::JobId::new();
    for act in ["cancel", "retry", "signal"] {
        let body = if act == "signal" { json!({ "name": "go" }) } else { json!({}) };
        let told = kit.post(&format!("/v1/jobs/{forged}/{act}"), body).await;
        told.refused(404, "job_unknown", &forged.to_string());
    }
    let beat = kit.post(&format!("/v1/workers/{forged}/beat"), json!({})).await;
    beat.refused(409, "worker_lost", &forged.to_string());
    let outcome = json!({ "done": { "output": null } });
    let report = json!({ "reports": [{ "id": id, "token": 1, "outcome": outcome }] });
    let settled = kit.post(&format!("/v1/workers/{forged}/settle"), report).await;
    settled.refused(409, "lease_lost", &id);
    let jobs = kit.get("/v1/jobs").await.is(200).body["jobs"].as_array().unwrap().len();
    assert_eq!(jobs, 1);
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.is(200).body["state"], "ready");
    kit.close().await;
}

async fn bytes_that_are_no_text_are_refused(kit: Kit) {
    kit.get("/v1/jobs/%ff").await.refused(400, "request_invalid", "UTF-8");
    kit.get("/v1/queues/%c3%28/rules").await.refused(400, "request_invalid", "UTF-8");
    kit.get("/v1/jobs?kind=%ff").await.refused(400, "request_invalid", "the query is not UTF-8");
    kit.get("/v1/jobs?%c3=x").await.refused(400, "request_invalid", "the query is not UTF-8");
    kit.get("/v1/jobs?kind=%C3%A9%25").await.is(200);
    let id = tidemill::JobId::new();
    kit.get(&format!("/v1/jobs/{id}/journal/-1")).await.refused(400, "request_invalid", "-1");
    kit.get(&format!("/v1/jobs/{id}/inputs/%ff")).await.refused(400, "request_invalid", "UTF-8");
    for name in ["idempotency-key", "if-match", "last-event-id", "prefer", "traceparent"] {
        let value = reqwest::header::HeaderValue::from_bytes(b"\xff\xfe").unwrap();
        let request = kit.request(Method::POST, "/v1/jobs").header(name, value);
        let told = Told::of(request.json(&json!({ "kind": "k" })).send().await.unwrap()).await;
        assert!((200..500).contains(&told.status), "{name}: {told:?}");
    }
    kit.close().await;
}

async fn heads_that_say_two_things_are_refused(kit: Kit) {
    let address = kit.server.address();
    let hosts = format!(
        "GET /v1/jobs HTTP/1.1\r\nhost: {address}\r\nhost: evil\r\nconnection: close\r\n\r\n"
    );
    let answer =
        tokio::task::spawn_blocking(move || said(address, hosts.as_bytes())).await.unwrap();
    assert_eq!(problem(&answer)["status"], 400, "{answer}");
    assert!(answer.contains("several Host headers"), "{answer}");
    let send = async |headers: &[(&str, &str)]| {
        kit.send(Method::POST, "/v1/jobs", headers, json!({ "kind": "k" })).await
    };
    let keys = [("idempotency-key", "a"), ("idempotency-key", "b")];
    send(&keys).await.refused(400, "idempotency_key_invalid", "several");
    for coding in ["gzip", "identity, br"] {
        let told = send(&[("content-encoding", coding)]).await;
        told.refused(415, "content_encoding_unsupported", "send it as it is");
    }
    let jobs = kit.get("/v1/jobs").await.is(200).body;
    assert_eq!(jobs["jobs"], json!([]));
    send(&[("content-encoding", "identity")]).await.is(201);
    kit.close().await;
}

async fn heads_that_are_too_large_are_refused(kit: Kit) {
    let many: Vec<_> = (0..1000).map(|number| format!("x-{number}: y\r\n")).collect();
    for head in [many.concat(), format!("x: {}\r\n", "y".repeat(100_000))] {
        let address = kit.server.address();
        let request = format!("GET /v1/jobs HTTP/1.1\r\nhost: {address}\r\n{head}\r\n");
        let answer = tokio::task::spawn_blocking(move || said(address, request.as_bytes()));
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer:?}");
        assert_eq!(problem(&answer)["code"], "head_too_large");
    }
    kit.get("/v1/jobs").await.is(200);
    kit.close().await;
}

/// What a server answers to bytes; it may close before it has read all.
fn said(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut some = [0; 1024];
    // A connection may be reset once it has said everything.
    while let Ok(length @ 1..) = stream.read(&mut some) {
        answer.extend_from_slice(&some[..length]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The document of an answer that has one.
fn problem(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

async fn heads_that_cannot_be_read_are_refused(kit: Kit) {
    let address = kit.server.address();
    for (request, status) in [
        ("BAD\r\n\r\n".to_owned(), 400),
        ("G\u{1}T / HTTP/1.1\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/7.1\r\n\r\n".to_owned(), 400),
        (format!("GET /v1/jobs HTTP/1.1\r\nhost: {address}\r\nx y: z\r\n\r\n"), 400),
        (format!("GET /{} HTTP/1.1\r\nhost: {address}\r\n\r\n", "x".repeat(65_535)), 431),
    ] {
        let short = request.chars().take(60).collect::<String>();
        let answer = tokio::task::spawn_blocking(move || said(address, request.as_bytes()));
        let answer = answer.await.unwrap();
        assert_eq!(problem(&answer)["status"], status, "{short:?}: {answer}");
    }
    kit.close().await;
}

async fn bodies_that_do_not_come_in_time_are_refused(kit: Kit) {
    let hurried = Settings { body_timeout: Duration::from_millis(50), ..settings() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    let address = server.address();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
    );
    let request = format!("{head}{{\"kind\":\"k\",");
    let answer = tokio::task::spawn_blocking(move || said(address, request.as_bytes()));
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    assert_eq!(problem(&answer)["code"], "body_too_slow");
    server.stop().await;
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

#[tokio::test]
async fn names_that_no_request_has_are_refused_at_the_start() {
    let named = |text: &str| vec![text.to_owned()];
    let hosts = ["mill.example:80", "https://mill.example", "*", ""].map(|host| {
        (Settings { hosts: named(host), ..settings() }, "host_invalid", format!("{host:?}"))
    });
    let origins = ["app.example", "*", "https://app.example/x"].map(|origin| {
        (Settings { origins: named(origin), ..settings() }, "origin_invalid", format!("{origin:?}"))
    });
    for (settings, code, says) in hosts.into_iter().chain(origins) {
        let error = tidemill_server::Door::open(settings).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(&says), "{error}");
    }
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

async fn times_beyond_all_databases_are_times(kit: Kit) {
    // The calendar of requests begins before that of any database, and ends after it would matter.
    let (first, last) = ("-009999-01-02T01:59:59Z", "9999-12-30T22:00:00Z");
    for range in [(first, last), (first, first), (last, last)] {
        let (from, until) = range;
        let dead = json!({ "died_from": from, "died_until": until });
        for path in ["dead", "dead/groups", "dead/sample"] {
            kit.get(&format!("/v1/{path}?died_from={from}&died_until={until}")).await.is(200);
        }
        kit.get(&format!("/v1/audit?since={from}&until={until}")).await.is(200);
        let plan = json!({ "act": "archive", "filter": dead });
        kit.post("/v1/dead/plans", plan).await.below(500);
        let times =
            json!({ "starts": from, "ends": until, "every": "24h", "job": { "kind": "k" } });
        kit.send(Method::PUT, "/v1/schedules/s", &[], times.clone()).await.below(500);
        kit.post("/v1/schedule-preview", times).await.below(500);
        let daily = json!({ "every": "24h", "job": { "kind": "k" } });
        kit.send(Method::PUT, "/v1/schedules/daily", &[], daily).await.is(200);
        for dry_run in [true, false] {
            let range = json!({ "from": from, "to": until, "dry_run": dry_run });
            kit.post("/v1/schedules/daily/backfill", range).await.below(500);
        }
        for at in [from, until] {
            let once = json!({ "at": at, "job": { "kind": "k" } });
            kit.send(Method::PUT, "/v1/schedules/once", &[], once).await.below(500);
            kit.post("/v1/jobs", json!({ "kind": "k", "run_at": at })).await.below(500);
            let jobs = kit.post("/v1/jobs", json!({ "kind": "k" })).await.below(500).body;
            let path = format!("/v1/jobs/{}", jobs["id"].as_str().unwrap());
            kit.send(Method::PATCH, &path, &[], json!({ "run_at": at })).await.below(500);
        }
    }
    kit.close().await;
}

async fn nobody_brings_jobs_where_webhooks_are_signed(kit: Kit) {
    let job = json!({ "kind": "tidemill:webhook", "queue": "tidemill:webhooks", "payload": {} });
    let queue = json!({ "kind": "k", "queue": "tidemill:webhooks" });
    for job in [job, queue] {
        let reserved = |told: Told| told.refused(400, "name_reserved", "tidemill:");
        reserved(kit.post("/v1/jobs", job.clone()).await);
        reserved(kit.post("/v1/jobs/batch", json!({ "jobs": [job] })).await);
        let schedule = json!({ "every": "1h", "job": job });
        reserved(kit.send(Method::PUT, "/v1/schedules/s", &[], schedule).await);
        let mut step = job.clone();
        step["name"] = "s".into();
        reserved(kit.post("/v1/flows", json!({ "name": "f", "steps": [step] })).await);
    }
    assert_eq!(kit.get("/v1/jobs").await.is(200).body["jobs"], json!([]));
    kit.close().await;
}

async fn nobody_changes_what_a_webhook_is_told(kit: Kit) {
    let hook = json!({ "url": "https://example.com/in" });
    kit.send(Method::PUT, "/v1/webhooks/orders", &[], hook).await.is(201);
    let job = kit.enqueue(json!({ "kind": "k", "webhook": "orders" })).await;
    kit.post(&format!("/v1/jobs/{job}/cancel"), json!({})).await.is(200);
    let told =
        async || kit.get("/v1/jobs?queue=tidemill:webhooks").await.is(200).body["jobs"][0].clone();
    let delivery = told().await;
    let path = format!("/v1/jobs/{}", delivery["id"].as_str().unwrap());
    let mut forged = delivery["payload"].clone();
    forged["data"]["output"] = json!({ "paid": 1_000_000 });
    let forged = json!({ "payload": forged });
    let edit = kit.send(Method::PATCH, &path, &[], forged.clone()).await;
    edit.refused(400, "name_reserved", "tidemill:webhook");
    // Who works on all queues works on those of others, not on ours.
    let worker = kit.post("/v1/workers", json!({ "name": "w", "queues": ["*"] })).await;
    let worker = worker.is(201).body["id"].as_str().unwrap().to_owned();
    let claim = format!("/v1/workers/{worker}/claim");
    for queues in ["*", "t*"] {
        let claimed = kit.post(&claim, json!({ "queues": [queues] })).await.is(200).body;
        assert_eq!(claimed["jobs"], json!([]), "{queues}");
    }
    for queues in ["tidemill:*", "tidemill:webhooks"] {
        let claimed = kit.post(&claim, json!({ "queues": [queues] })).await;
        claimed.refused(400, "name_reserved", queues);
        let card = json!({ "name": "w", "queues": [queues] });
        kit.post("/v1/workers", card).await.refused(400, "name_reserved", queues);
    }
    let fails = |_: Payload, _| async { Err::<Payload, _>(Fail::permanent("no")) };
    let worker = kit.mill.worker().queues(["tidemill:*"]);
    let worker = worker.handle_raw("tidemill:webhook", tidemill::Settings::default(), fails);
    let worker = worker.start().await.unwrap();
    kit.finished(delivery["id"].as_str().unwrap()).await;
    worker.stop().await;
    let retry = kit.post(&format!("{path}/retry"), forged.clone()).await;
    retry.refused(400, "name_reserved", "tidemill:webhook");
    let replay = json!({ "ids": [delivery["id"]], "payload": forged["payload"] });
    let replay = kit.post("/v1/dead/replay", replay).await;
    replay.refused(400, "name_reserved", "tidemill:webhook");
    let still = told().await;
    assert_eq!((&still["state"], &still["payload"]), (&json!("dead"), &delivery["payload"]));
    kit.close().await;
}

async fn bodies_that_nobody_reads_are_refused(kit: Kit) {
    let pause = "/v1/queues/mail/pause";
    kit.post(pause, json!({ "for": "1h" })).await.refused(400, "request_invalid", "\"for\"");
    for body in ["garbage", "[]", "1"] {
        let told = kit.request(Method::POST, pause).body(body).send().await.unwrap();
        Told::of(told).await.refused(400, "request_invalid", "no body");
    }
    assert_eq!(kit.get("/v1/queues/mail/rules").await.is(200).body["paused"], json!(false));
    kit.post(pause, json!({})).await.is(200);
    let bare = kit.request(Method::POST, pause).send().await.unwrap();
    Told::of(bare).await.is(200);
    kit.close().await;
}
