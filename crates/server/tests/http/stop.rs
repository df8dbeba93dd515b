//! Health, and the beginning and the end of a server.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tidemill::{JobId, Payload};
use tidemill_server::Door;
use tokio::sync::Notify;

use super::kit::{Kit, Told, settings};

over_both_stores!(
    who_waits_for_a_job_is_answered_before_the_server_ends,
    a_store_that_cannot_write_is_not_ready,
    before_its_store_is_open_a_server_says_that_it_starts,
);

async fn who_waits_for_a_job_is_answered_before_the_server_ends(kit: Kit) {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (Arc::clone(&started), Arc::clone(&release));
    let handler = move |payload: Payload, _| {
        let (begins, goes_on) = (Arc::clone(&begins), Arc::clone(&goes_on));
        async move {
            begins.notify_one();
            goes_on.notified().await;
            Ok(payload)
        }
    };
    let worker = kit.mill.worker().handle_raw("slow", tidemill::Settings::default(), handler);
    let worker = worker.start().await.unwrap();
    let wish = json!({ "kind": "slow", "payload": 1 });
    let request = kit.request(Method::POST, "/v1/jobs").header("prefer", "wait=30").json(&wish);
    let waiting = tokio::spawn(async move { Told::of(request.send().await.unwrap()).await });
    started.notified().await;
    let livez = kit.request(Method::GET, "/livez");
    let Kit { mill, server, .. } = kit;
    // The job goes on; who waits for it learns at once which one it is, and can ask elsewhere.
    let (told, ()) = tokio::join!(async { waiting.await.unwrap() }, server.stop());
    let id: JobId = told.is(202).body["id"].as_str().unwrap().parse().unwrap();
    assert!(livez.send().await.is_err(), "nobody listens");
    release.notify_one();
    let view = mill.wait(id, Duration::from_secs(30)).await.unwrap();
    assert_eq!(view.output.unwrap().as_str(), "1");
    worker.stop().await;
    mill.close().await;
}

async fn a_store_that_cannot_write_is_not_ready(kit: Kit) {
    for path in ["/livez", "/startupz", "/readyz"] {
        assert_eq!(kit.get(path).await.is(200).body, "ok");
    }
    kit.mill.close().await;
    let told = kit.get("/readyz").await.refused(503, "not_ready", "");
    assert_eq!(told.header("retry-after"), "1");
    kit.get("/livez").await.is(200);
    kit.server.stop().await;
}

async fn before_its_store_is_open_a_server_says_that_it_starts(kit: Kit) {
    let door = Door::open(settings()).await.unwrap();
    let (client, base) = (reqwest::Client::new(), format!("http://{}", door.address()));
    let ask = async |method, path: &str| {
        Told::of(client.request(method, format!("{base}{path}")).send().await.unwrap()).await
    };
    assert_eq!(ask(Method::GET, "/livez").await.is(200).body, "ok");
    let asked = [
        (Method::GET, "/startupz"),
        (Method::GET, "/readyz"),
        (Method::POST, "/v1/jobs"),
        (Method::POST, "/livez"),
        (Method::GET, "/nowhere"),
    ];
    for (method, path) in asked {
        let told = ask(method, path).await.refused(503, "starting", "its store is not open yet");
        assert_eq!(told.header("retry-after"), "1");
    }
    // The same client goes on: it was told to keep no connection, and its next one finds the server.
    let server = door.serve(kit.mill.clone());
    for path in ["/livez", "/startupz", "/readyz"] {
        assert_eq!(ask(Method::GET, path).await.is(200).body, "ok");
    }
    assert_eq!(server.address().to_string(), base.trim_start_matches("http://"));
    server.stop().await;
    kit.server.stop().await;
}

#[tokio::test]
async fn a_door_that_never_opens_is_closed_with_its_owner() {
    let door = Door::open(settings()).await.unwrap();
    let url = format!("http://{}/livez", door.address());
    reqwest::get(&url).await.unwrap();
    drop(door);
    // The listener goes when the one who told them to wait has heard of it.
    while reqwest::get(&url).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// The runtime has one thread: whoever is put off is not looked at between the connection and the opening.
#[tokio::test]
async fn who_comes_when_the_door_has_opened_finds_the_server() {
    let kit = Kit::sqlite().await;
    for _ in 0..20 {
        let door = Door::open(settings()).await.unwrap();
        let address = door.address();
        reqwest::get(format!("http://{address}/livez")).await.unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let server = door.serve(kit.mill.clone());
        let head =
            format!("GET /startupz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let told = tokio::task::spawn_blocking(move || {
            stream.write_all(head.as_bytes())?;
            std::io::read_to_string(stream)
        });
        let told = told.await.unwrap().unwrap();
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
        server.stop().await;
    }
    kit.close().await;
}
