//! The WebSocket of a job: its events, and messages to it by those who may.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use reqwest::Method;
use serde_json::{Value, json};
use tidemill::{Fail, Grant, Payload, Role};
use tidemill_server::{Server, Settings};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame, FrameHeader};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::kit::{Kit, settings};
use super::streams::Talker;

over_both_stores!(
    events_come_and_the_socket_is_closed_at_the_end,
    signals_answers_and_approvals_reach_the_run,
    a_job_is_moved_and_called_off_by_messages,
    what_is_not_understood_is_refused_and_the_rest_goes_on,
    each_message_is_for_those_its_operation_is_for,
    a_credential_that_has_ended_acts_no_more_over_an_open_socket,
    a_socket_is_closed_when_the_server_stops,
    what_is_no_message_closes_the_socket_with_the_code_for_it,
    a_client_that_closes_is_answered,
);

struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(server: &Server, path: &str, secret: Option<&str>) -> Result<Self, Error> {
        let mut request = format!("ws://{}{path}", server.address()).into_client_request()?;
        if let Some(secret) = secret {
            request
                .headers_mut()
                .insert("authorization", format!("Bearer {secret}").parse().unwrap());
        }
        connect_async(request).await.map(|(socket, _)| Self(socket))
    }

    async fn live(server: &Server, id: &str) -> Self {
        Self::open(server, &format!("/v1/jobs/{id}/live"), None).await.unwrap()
    }

    async fn message(&mut self) -> Message {
        let next = tokio::time::timeout(Duration::from_secs(30), self.0.next()).await;
        next.expect("something comes").expect("it goes on").unwrap()
    }

    /// The next document.
    async fn document(&mut self) -> Value {
        loop {
            match self.message().await {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a message, and answers what it is told; other events are passed over.
    async fn ask(&mut self, mut message: Value) -> Value {
        message["ref"] = json!("m");
        self.0.send(Message::text(message.to_string())).await.unwrap();
        loop {
            let document = self.document().await;
            if document["ref"] == "m" {
                return document;
            }
        }
    }

    async fn closed(&mut self) -> CloseCode {
        loop {
            if let Message::Close(frame) = self.message().await {
                return frame.unwrap().code;
            }
        }
    }
}

async fn events_come_and_the_socket_is_closed_at_the_end(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "talk" })).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    talker.say("a");
    let mut socket = Socket::live(&kit.server, &id).await;
    let first = socket.document().await;
    assert_eq!(
        (&first["number"], &first["event"], &first["text"]),
        (&json!(1), &json!("text"), &json!("a"))
    );
    talker.say("b");
    assert_eq!(socket.document().await["text"], "b");
    let path = format!("/v1/jobs/{id}/live?after=1");
    let mut late = Socket::open(&kit.server, &path, None).await.unwrap();
    assert_eq!(late.document().await["number"], 2);
    talker.end();
    for socket in [&mut socket, &mut late] {
        let end = socket.document().await;
        assert_eq!((&end["event"], &end["state"]), (&json!("end"), &json!("done")));
        assert_eq!(socket.closed().await, CloseCode::Normal);
    }
    let plain = kit.get(&format!("/v1/jobs/{id}/live")).await;
    plain.refused(426, "upgrade_required", "WebSocket");
    let unknown = format!("/v1/jobs/{}/live", tidemill::JobId::new());
    let refused = Socket::open(&kit.server, &unknown, None).await.err().unwrap();
    assert!(matches!(refused, Error::Http(response) if response.status() == 404));
    worker.stop().await;
    kit.close().await;
}

async fn signals_answers_and_approvals_reach_the_run(kit: Kit) {
    let handler = |_: Payload, cx: tidemill::Context| async move {
        let go: Value = cx.signal("go").await?;
        let answer: String = cx.signal("answer").await?;
        let approved: bool = cx.signal("approve").await?;
        let second: bool = cx.signal("second").await?;
        Ok::<_, Fail>(
            Payload::parse(&json!([go, answer, approved, second]).to_string(), &limits()).unwrap(),
        )
    };
    let settings = tidemill::Settings::default();
    let worker = kit.mill.worker().handle_raw("run", settings, handler).start().await.unwrap();
    let id = kit.enqueue(json!({ "kind": "run" })).await;
    let mut socket = Socket::live(&kit.server, &id).await;
    for message in [
        json!({ "do": "signal", "name": "go", "payload": { "n": 1 }, "id": "click-1" }),
        json!({ "do": "signal", "name": "go", "payload": { "n": 2 }, "id": "click-1" }),
        json!({ "do": "answer", "payload": "blue" }),
        json!({ "do": "approve", "approved": true }),
        json!({ "do": "approve", "name": "second", "approved": false }),
    ] {
        assert_eq!(socket.ask(message).await, json!({ "event": "taken", "ref": "m" }));
    }
    assert_eq!(socket.document().await["state"], "done");
    let output = &kit.finished(&id).await["output"];
    assert_eq!(
        *output,
        json!([{ "n": 1 }, "blue", true, false]),
        "sent twice under one id, heard once"
    );
    worker.stop().await;
    kit.close().await;
}

fn limits() -> tidemill::Limits {
    tidemill::Limits::default()
}

async fn a_job_is_moved_and_called_off_by_messages(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "talk" })).await;
    let mut socket = Socket::live(&kit.server, &id).await;
    let order = json!({ "do": "set_priority", "priority": "urgent" });
    assert_eq!(socket.ask(order).await["event"], "taken");
    assert_eq!(kit.get(&format!("/v1/jobs/{id}")).await.body["priority"], "urgent");
    let taken = socket.ask(json!({ "do": "cancel", "reason": "enough" })).await;
    assert_eq!((&taken["event"], &taken["answer"]), (&json!("taken"), &json!("cancelled")));
    let end = socket.document().await;
    assert_eq!((&end["state"], &end["error"]), (&json!("cancelled"), &json!("enough")));
    assert_eq!(socket.closed().await, CloseCode::Normal);
    kit.close().await;
}

async fn what_is_not_understood_is_refused_and_the_rest_goes_on(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "talk" })).await;
    let mut socket = Socket::live(&kit.server, &id).await;
    for wrong in [
        json!({}),
        json!({ "do": "dance" }),
        json!({ "do": "cancel", "raeson": "x" }),
        json!({ "do": "signal" }),
        json!({ "do": "approve" }),
        json!({ "do": "approve", "payload": false }),
        json!({ "do": "approve", "approved": true, "payload": false }),
        json!({ "do": "answer", "approved": false }),
        json!({ "do": "set_priority", "priority": "high", "reason": "x" }),
    ] {
        let refused = socket.ask(wrong).await;
        assert_eq!(
            (&refused["event"], &refused["code"]),
            (&json!("refused"), &json!("request_invalid"))
        );
    }
    let refused = socket.ask(json!({ "do": "signal", "name": "" })).await;
    assert_eq!(refused["code"], "name_empty");
    for text in ["", "[]", "{"] {
        socket.0.send(Message::text(text)).await.unwrap();
        assert_eq!(socket.document().await["code"], "request_invalid");
    }
    assert_eq!(socket.ask(json!({ "do": "cancel" })).await["event"], "taken");
    kit.close().await;
}

async fn each_message_is_for_those_its_operation_is_for(kit: Kit) {
    let kit = kit.closed().await;
    let mut secrets = Vec::new();
    for role in Role::ALL {
        secrets.push((role, kit.credential(role.word(), Grant::new(role)).await));
    }
    let (_, admin) = secrets.iter().find(|(role, _)| *role == Role::Admin).unwrap();
    for (role, secret) in &secrets {
        let told =
            kit.ask(admin, Method::POST, "/v1/jobs", json!({ "kind": "talk" })).await.is(201);
        let path = format!("/v1/jobs/{}/live", told.body["id"].as_str().unwrap());
        let nobody = Socket::open(&kit.server, &path, None).await.err().unwrap();
        assert!(matches!(nobody, Error::Http(response) if response.status() == 401));
        let mut socket = Socket::open(&kit.server, &path, Some(secret)).await.unwrap();
        for message in ["signal", "answer", "approve", "set_priority", "cancel"] {
            let order = match message {
                "signal" => json!({ "do": "signal", "name": "x" }),
                "set_priority" => json!({ "do": "set_priority", "priority": "high" }),
                "approve" => json!({ "do": "approve", "approved": true }),
                other => json!({ "do": other }),
            };
            let may = match role {
                Role::Viewer => false,
                Role::Producer | Role::Worker => !["cancel", "set_priority"].contains(&message),
                Role::Operator | Role::Admin => true,
            };
            let told = socket.ask(order).await;
            assert_eq!(
                told["event"],
                if may { "taken" } else { "refused" },
                "{role:?} {message} {told}"
            );
            assert!(may || told["code"] == "role_refused", "{told}");
        }
    }
    let grant = Grant { tenant: Some("acme".into()), ..Grant::new(Role::Operator) };
    let acme = kit.credential("acme", grant).await;
    let told = kit.ask(admin, Method::POST, "/v1/jobs", json!({ "kind": "talk" })).await.is(201);
    for what in ["live", "stream"] {
        let path = format!("/v1/jobs/{}/{what}", told.body["id"].as_str().unwrap());
        let refused = Socket::open(&kit.server, &path, Some(&acme)).await.err().unwrap();
        assert!(matches!(refused, Error::Http(response) if response.status() == 404), "{what}");
    }
    kit.close().await;
}

async fn a_credential_that_has_ended_acts_no_more_over_an_open_socket(kit: Kit) {
    let kit = kit.closed().await;
    let (credentials, operator) = (kit.mill.credentials(), || Grant::new(Role::Operator));
    let admin = kit.credential("admin", Grant::new(Role::Admin)).await;
    let told = kit.ask(&admin, Method::POST, "/v1/jobs", json!({ "kind": "talk" })).await.is(201);
    let job = format!("/v1/jobs/{}", told.body["id"].as_str().unwrap());
    let path = format!("{job}/live");
    let open = async |secret: &str| Socket::open(&kit.server, &path, Some(secret)).await.unwrap();
    let urgent = json!({ "do": "set_priority", "priority": "urgent" });
    let cancel = Message::text(json!({ "do": "cancel" }).to_string());

    let (made, secret) = credentials.create("revoked", operator(), None).await.unwrap();
    let mut socket = open(secret.reveal()).await;
    assert_eq!(socket.ask(urgent.clone()).await["event"], "taken");
    credentials.revoke(made.id).await.unwrap();
    socket.0.send(cancel.clone()).await.unwrap();
    assert_eq!(socket.closed().await, CloseCode::Policy);

    // Another node knows of it a second later, and what is over is over everywhere: until then messages are taken.
    let twin = kit.twin().await;
    let (made, elsewhere) = credentials.create("elsewhere", operator(), None).await.unwrap();
    let soon = Some(Duration::from_secs(3));
    let (_, short) = credentials.create("short", operator(), soon).await.unwrap();
    let mut sockets = [open(elsewhere.reveal()).await, open(short.reveal()).await];
    twin.mill.credentials().revoke(made.id).await.unwrap();
    let begun = std::time::Instant::now();
    for socket in &mut sockets {
        let code = loop {
            socket.0.send(Message::text(urgent.to_string())).await.unwrap();
            match socket.message().await {
                Message::Close(frame) => break frame.unwrap().code,
                _ => assert!(begun.elapsed() < Duration::from_secs(20), "it goes on acting"),
            }
        };
        assert_eq!(code, CloseCode::Policy);
    }
    let told = kit.ask(&admin, Method::GET, &job, json!({})).await.is(200);
    assert_eq!(told.body["state"], "ready", "nobody called it off");
    twin.close().await;
    kit.close().await;
}

async fn a_socket_is_closed_when_the_server_stops(kit: Kit) {
    let heartbeat = Duration::from_millis(20);
    let server =
        Server::start(kit.mill.clone(), Settings { heartbeat, ..settings() }).await.unwrap();
    let id = kit.enqueue(json!({ "kind": "talk" })).await;
    let mut socket = Socket::live(&server, &id).await;
    assert!(matches!(socket.message().await, Message::Ping(_)), "there is a sign of life");
    let (code, ()) = tokio::join!(socket.closed(), server.stop());
    assert_eq!(code, CloseCode::Restart, "it is told to come again");
    kit.close().await;
}

async fn what_is_no_message_closes_the_socket_with_the_code_for_it(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let text = OpCode::Data(Data::Text);
    let large = vec![b' '; 1024 * 1024 + 1];
    let reserved = Frame::message("{}", text, true);
    let reserved = Frame::from_payload(
        FrameHeader { rsv1: true, ..reserved.header().clone() },
        reserved.into_payload(),
    );
    for (frame, code) in [
        (Frame::message(&b"\xff\xfe"[..], text, true), CloseCode::Invalid),
        (Frame::message(large, text, true), CloseCode::Size),
        (Frame::message("{}", OpCode::Data(Data::Continue), true), CloseCode::Protocol),
        (reserved, CloseCode::Protocol),
        (Frame::message("{}", OpCode::Data(Data::Binary), true), CloseCode::Unsupported),
    ] {
        let mut socket = Socket::live(&kit.server, &id).await;
        socket.0.send(Message::Frame(frame)).await.unwrap();
        assert_eq!(socket.closed().await, code);
    }
    kit.close().await;
}

async fn a_client_that_closes_is_answered(kit: Kit) {
    let id = kit.enqueue(json!({ "kind": "k" })).await;
    let mut socket = Socket::live(&kit.server, &id).await;
    let frame = CloseFrame { code: CloseCode::Away, reason: "seen enough".into() };
    socket.0.send(Message::Close(Some(frame))).await.unwrap();
    assert_eq!(socket.closed().await, CloseCode::Away);
    kit.close().await;
}
