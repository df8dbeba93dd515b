//! Who is waited for, and for how long: connections on which nobody asks or takes anything are closed, over both
//! versions of HTTP, and those that wait for us stay.

use std::time::Duration;

use serde_json::json;
use tidemill_server::{Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::kit::{Kit, settings};

/// More than enough for what should happen soon.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any test.
const NEVER: Duration = Duration::from_hours(1);
/// A time that is over soon.
const SOON: Duration = Duration::from_millis(200);

/// Only these times are short.
fn patient() -> Settings {
    Settings { head_timeout: NEVER, write_timeout: NEVER, heartbeat: NEVER, ..settings() }
}

/// What a client of HTTP/2 begins with, and its settings.
fn greeting(settings: &[u8]) -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, settings)].concat()
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The head of a GET on the first stream, as HPACK has it without any table of its own.
fn get(path: &str, flags: u8) -> Vec<u8> {
    let text = |name: u8, value: &str| {
        [&[name, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
    };
    let head = [vec![0x82, 0x86], text(0x04, path), text(0x01, "localhost")].concat();
    frame(1, flags, 1, &head)
}

/// The whole head of a request without a body.
const WHOLE: u8 = 0x4 | 0x1;
/// The same, of which more would follow.
const MORE_FOLLOWS: u8 = 0x1;

/// Connects, says this and nothing more.
async fn says(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Completes when the other side has closed; a connection that stays open is a failure.
async fn closed(mut stream: TcpStream, who: &str) {
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    let _closed_or_reset = read.unwrap_or_else(|_| panic!("{who} stays"));
}

#[tokio::test]
async fn who_asks_nothing_over_http_2_is_let_go() {
    let kit = Kit::sqlite().await;
    let hurried = Settings { head_timeout: SOON, ..patient() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    let greeting = greeting(&[]);
    let (preface, _) = greeting.split_at(24);
    for (bytes, who) in [
        (preface.to_vec(), "who says the preface alone"),
        (greeting.clone(), "who says its settings alone"),
        ([&greeting[..], &get("/livez", MORE_FOLLOWS)].concat(), "who does not end a head"),
        ([&greeting[..], &get("/livez", WHOLE)[..20]].concat(), "who does not end a frame"),
    ] {
        closed(says(&server, &bytes).await, who).await;
    }
    server.stop().await;
    kit.close().await;
}

#[tokio::test]
async fn who_only_answers_pings_is_let_go() {
    let kit = Kit::sqlite().await;
    let heartbeat = Duration::from_millis(20);
    let hurried = Settings { head_timeout: SOON, write_timeout: PATIENCE, heartbeat, ..patient() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    for asks in [false, true] {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        if asks {
            let request = http::Request::get("http://localhost/livez").body(()).unwrap();
            let (answer, _) = sender.send_request(request, true).unwrap();
            assert_eq!(answer.await.unwrap().status(), 200);
        }
        let ended = tokio::time::timeout(PATIENCE / 2, connection).await;
        let ended = ended.expect("the connection stays").unwrap();
        // It was told to go if it had asked before: what it asks meanwhile would have been answered.
        assert!(!asks || ended.is_ok(), "{ended:?}");
        drop(sender);
    }
    server.stop().await;
    kit.close().await;
}

#[tokio::test]
async fn who_takes_nothing_is_let_go() {
    let kit = Kit::sqlite().await;
    let hurried = Settings { write_timeout: SOON, ..patient() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    let mut stream = says(&server, b"").await;
    let asks = async {
        while stream
            .write_all(b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n")
            .await
            .is_ok()
        {}
    };
    tokio::time::timeout(PATIENCE, asks).await.expect("who asks on and reads nothing stays");
    server.stop().await;

    let hurried = Settings { head_timeout: SOON, write_timeout: SOON, ..patient() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    let no_room = greeting(&[0, 4, 0, 0, 0, 0]);
    let bytes = [&no_room[..], &get("/openapi.json", WHOLE)].concat();
    closed(says(&server, &bytes).await, "who opens no window").await;
    server.stop().await;
    kit.close().await;
}

#[tokio::test]
async fn who_waits_for_us_stays_and_who_is_gone_does_not() {
    let kit = Kit::sqlite().await;
    let (head_timeout, write_timeout, heartbeat) = (SOON, SOON, SOON / 4);
    let hurried = Settings { head_timeout, write_timeout, heartbeat, ..settings() };
    let server = Server::start(kit.mill.clone(), hurried).await.unwrap();
    let id = kit.enqueue(json!({ "kind": "echo", "payload": "done" })).await;
    let paths = [format!("/v1/jobs/{id}/wait?timeout=60s"), format!("/v1/jobs/{id}/stream")];

    let mut waiting = Vec::new();
    for path in &paths {
        let url = format!("http://{}{path}", server.address());
        waiting.push(tokio::spawn(async move {
            let answer = reqwest::get(url).await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.text().await.unwrap()
        }));
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
        let request = http::Request::get(format!("http://localhost{path}")).body(()).unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        let connection = tokio::spawn(connection);
        waiting.push(tokio::spawn(async move {
            let answer = answer.await.unwrap();
            assert_eq!(answer.status(), 200);
            let (mut body, mut text) = (answer.into_body(), Vec::new());
            while let Some(data) = body.data().await {
                let data = data.unwrap();
                body.flow_control().release_capacity(data.len()).unwrap();
                text.extend_from_slice(&data);
            }
            drop((sender, connection));
            String::from_utf8(text).unwrap()
        }));
    }
    // Whoever comes after them asks for the same, and does not answer when asked for a sign of life: once they are
    // gone, those who do have waited for as long.
    for path in &paths {
        let bytes = [greeting(&[]), get(path, WHOLE)].concat();
        closed(says(&server, &bytes).await, "who gives no sign of life").await;
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "who waits for us is let go");
    let worker = kit.work().await;
    for waiting in waiting {
        let text = tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap();
        assert!(text.contains("\"state\":\"done\"") || text.contains("event: end"), "{text}");
    }
    worker.stop().await;
    server.stop().await;
    kit.close().await;
}
