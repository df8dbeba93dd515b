//! Streams as clients see them: events that can be resumed anywhere, and that end with the job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tidemill::{Context, Fail, Payload, Running, Said, Tidemill};
use tidemill_server::{Server, Settings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Mutex, mpsc};

use super::kit::{Kit, Told, settings};

over_both_stores!(
    a_stream_is_followed_and_ends_with_the_job,
    a_stream_is_resumed_at_another_server_and_long_after,
    who_has_seen_the_end_hears_what_was_said_after_it,
    who_listens_hears_a_heartbeat,
    what_is_ephemeral_has_no_number_and_is_not_kept,
    a_reader_that_stands_still_costs_nobody_anything,
    streams_end_with_the_server,
    only_so_many_follow_at_once,
    a_chunk_reaches_another_server_at_once,
);

/// What a job is told to say: a text, an ephemeral one, or to end.
pub enum Order {
    Text(String),
    Ephemeral(String),
    End,
    Fail,
}

/// A job that says what it is told.
pub struct Talker(mpsc::UnboundedSender<Order>);

impl Talker {
    pub async fn start(mill: &Tidemill) -> (Self, Running) {
        let (orders, told) = mpsc::unbounded_channel();
        let told = Arc::new(Mutex::new(told));
        let worker =
            mill.worker().state(told).handle_raw("talk", tidemill::Settings::default(), talk);
        (Self(orders), worker.start().await.unwrap())
    }

    pub fn say(&self, text: &str) {
        self.0.send(Order::Text(text.to_owned())).ok().unwrap();
    }

    pub fn end(&self) {
        self.0.send(Order::End).ok().unwrap();
    }
}

async fn talk(payload: Payload, cx: Context) -> Result<Payload, Fail> {
    let orders = cx.state::<Arc<Mutex<mpsc::UnboundedReceiver<Order>>>>()?;
    let mut orders = orders.lock().await;
    while let Some(order) = orders.recv().await {
        match order {
            Order::Text(text) => cx.text(text).await?,
            Order::Ephemeral(text) => cx.ephemeral(Said::text(text)).await?,
            Order::End => break,
            Order::Fail => return Err(Fail::permanent("told to fail")),
        }
    }
    Ok(payload)
}

/// An event as it came.
#[derive(Debug, Default, Clone, PartialEq)]
struct Sent {
    id: Option<String>,
    event: String,
    data: Value,
}

/// The events of an answer.
struct Events {
    response: Response,
    text: String,
    /// Comment lines that were seen.
    heartbeats: usize,
}

impl Events {
    /// Follows a stream at a server.
    async fn of(server: &Server, id: &str, headers: &[(&str, &str)]) -> Self {
        let request = get(server, &format!("/v1/jobs/{id}/stream"));
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new(), heartbeats: 0 }
    }

    /// The next event; `None` when the answer is over.
    async fn next(&mut self) -> Option<Sent> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(event) = self.read(&block) {
                    return Some(event);
                }
            }
            let piece = tokio::time::timeout(Duration::from_secs(30), self.response.chunk());
            let piece = piece.await.expect("something comes").ok()??;
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    fn read(&mut self, block: &str) -> Option<Sent> {
        let mut event = Sent::default();
        for line in block.lines() {
            match line.split_once(':').unwrap() {
                ("", _) => self.heartbeats += 1,
                ("id", id) => event.id = Some(id.trim().to_owned()),
                ("event", name) => name.trim().clone_into(&mut event.event),
                ("data", data) => event.data = serde_json::from_str(data).unwrap(),
                ("retry", _) => {}
                other => panic!("{other:?}"),
            }
        }
        (!event.event.is_empty()).then_some(event)
    }

    /// The text of the next event, which has this number.
    async fn text(&mut self, number: u64) -> String {
        let sent = self.next().await.expect("it goes on");
        assert_eq!(sent.id, Some(number.to_string()), "{sent:?}");
        assert_eq!((&sent.data["number"], &sent.data["event"]), (&json!(number), &json!("text")));
        sent.data["text"].as_str().unwrap().to_owned()
    }

    /// The end comes next, and nothing after it.
    async fn end(&mut self) -> Sent {
        let sent = self.next().await.expect("it goes on");
        assert_eq!(sent.event, "end", "{sent:?}");
        assert_eq!(self.next().await, None);
        sent
    }
}

fn get(server: &Server, path: &str) -> reqwest::RequestBuilder {
    reqwest::Client::new().request(Method::GET, format!("http://{}{path}", server.address()))
}

async fn enqueue(kit: &Kit) -> String {
    kit.enqueue(json!({ "kind": "talk" })).await
}

async fn who_has_seen_the_end_hears_what_was_said_after_it(kit: Kit) {
    let id = enqueue(&kit).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    talker.say("first");
    talker.0.send(Order::Fail).ok().unwrap();
    let mut events = Events::of(&kit.server, &id, &[]).await;
    assert_eq!(events.text(1).await, "first");
    assert_eq!(events.end().await.id.as_deref(), Some("1.end"));
    kit.post(&format!("/v1/jobs/{id}/retry"), json!({})).await.is(200);
    talker.say("second");
    talker.end();
    kit.finished(&id).await;
    let mut again = Events::of(&kit.server, &id, &[("last-event-id", "1.end")]).await;
    assert_eq!(again.text(2).await, "second");
    let end = again.end().await;
    assert_eq!((end.id.as_deref(), &end.data["state"]), (Some("2.end"), &json!("done")));
    let over = get(&kit.server, &format!("/v1/jobs/{id}/stream")).header("last-event-id", "2.end");
    assert_eq!(over.send().await.unwrap().status(), 204);
    worker.stop().await;
    kit.close().await;
}

async fn a_stream_is_followed_and_ends_with_the_job(kit: Kit) {
    let id = enqueue(&kit).await;
    let mut early = Events::of(&kit.server, &id, &[]).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    for text in ["a", "b\nb", "c\0\u{1f980}"] {
        talker.say(text);
    }
    for (number, text) in [(1, "a"), (2, "b\nb"), (3, "c\0\u{1f980}")] {
        assert_eq!(early.text(number).await, text);
    }
    talker.end();
    let end = early.end().await;
    assert_eq!((end.id.as_deref(), &end.data["state"]), (Some("3.end"), &json!("done")));
    let mut late = Events::of(&kit.server, &id, &[]).await;
    assert_eq!(late.text(1).await, "a");
    kit.get(&format!("/v1/jobs/{id}/stream?after=x")).await.refused(
        400,
        "request_invalid",
        "query",
    );
    kit.get(&format!("/v1/jobs/{}/stream", tidemill::JobId::new())).await.refused(
        404,
        "job_unknown",
        "",
    );
    let wrong = get(&kit.server, &format!("/v1/jobs/{id}/stream")).header("last-event-id", "x");
    Told::of(wrong.send().await.unwrap()).await.refused(400, "request_invalid", "Last-Event-ID");
    worker.stop().await;
    kit.close().await;
}

async fn a_stream_is_resumed_at_another_server_and_long_after(kit: Kit) {
    let elsewhere = Tidemill::open(kit.url()).await.unwrap();
    let other = Server::start(elsewhere.clone(), settings()).await.unwrap();
    let id = enqueue(&kit).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    (1..=10).for_each(|n| talker.say(&n.to_string()));
    let mut here = Events::of(&kit.server, &id, &[]).await;
    for n in 1..=5 {
        assert_eq!(here.text(n).await, n.to_string());
    }
    drop(here);
    (11..=20).for_each(|n| talker.say(&n.to_string()));
    let mut there = Events::of(&other, &id, &[("last-event-id", "5")]).await;
    for n in 6..=20 {
        assert_eq!(there.text(n).await, n.to_string());
    }
    talker.say("21");
    assert_eq!(there.text(21).await, "21", "also what comes while it is followed there");
    talker.end();
    let end = there.end().await;
    worker.stop().await;
    // Long after: the worker is gone, and the job has ended.
    let mut after = Events::of(&other, &id, &[("last-event-id", "19")]).await;
    assert_eq!((after.text(20).await, after.text(21).await), ("20".to_owned(), "21".to_owned()));
    assert_eq!(after.end().await, end);
    let seen = end.id.unwrap();
    let again = get(&other, &format!("/v1/jobs/{id}/stream")).header("last-event-id", &seen);
    assert_eq!(again.send().await.unwrap().status(), 204, "a browser stops coming then");
    other.stop().await;
    elsewhere.close().await;
    kit.close().await;
}

async fn who_listens_hears_a_heartbeat(kit: Kit) {
    let heartbeat = Duration::from_millis(20);
    let server =
        Server::start(kit.mill.clone(), Settings { heartbeat, ..settings() }).await.unwrap();
    let id = enqueue(&kit).await;
    let mut events = Events::of(&server, &id, &[]).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    while events.heartbeats < 3 {
        let piece = events.response.chunk().await.unwrap().unwrap();
        let text = std::str::from_utf8(&piece).unwrap().to_owned();
        text.split_terminator("\n\n").for_each(|block| drop(events.read(block)));
    }
    talker.say("still here");
    assert_eq!(events.text(1).await, "still here");
    talker.end();
    events.end().await;
    worker.stop().await;
    server.stop().await;
    kit.close().await;
}

async fn what_is_ephemeral_has_no_number_and_is_not_kept(kit: Kit) {
    let id = enqueue(&kit).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    let mut events = Events::of(&kit.server, &id, &[]).await;
    talker.say("kept");
    assert_eq!(events.text(1).await, "kept");
    talker.0.send(Order::Ephemeral("gone".to_owned())).ok().unwrap();
    let sent = events.next().await.unwrap();
    assert_eq!((sent.id, sent.event.as_str()), (None, "text"));
    assert_eq!((&sent.data["text"], &sent.data["number"]), (&json!("gone"), &Value::Null));
    talker.say("kept too");
    assert_eq!(events.text(2).await, "kept too");
    talker.end();
    events.end().await;
    let mut again = Events::of(&kit.server, &id, &[]).await;
    assert_eq!(
        (again.text(1).await, again.text(2).await),
        ("kept".to_owned(), "kept too".to_owned())
    );
    again.end().await;
    worker.stop().await;
    kit.close().await;
}

/// One that reads nothing while far more is said than any buffer holds: others are served, and it finds all of it
/// when it goes on.
async fn a_reader_that_stands_still_costs_nobody_anything(kit: Kit) {
    const CHUNKS: u64 = 240;
    let id = enqueue(&kit).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    let mut slow = tokio::net::TcpStream::connect(kit.server.address()).await.unwrap();
    let request = format!(
        "GET /v1/jobs/{id}/stream HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    slow.write_all(request.as_bytes()).await.unwrap();
    let mut begun = [0; 15];
    slow.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    let mut quick = Events::of(&kit.server, &id, &[]).await;
    let large = "x".repeat(60_000);
    for number in 1..=CHUNKS {
        talker.say(&large);
        assert_eq!(quick.text(number).await.len(), large.len());
    }
    talker.end();
    quick.end().await;
    let mut rest = String::new();
    slow.read_to_string(&mut rest).await.unwrap();
    let ids = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect::<Vec<_>>();
    let expected = (1..=CHUNKS).map(|n| n.to_string()).chain([format!("{CHUNKS}.end")]);
    assert_eq!(ids, expected.collect::<Vec<_>>());
    worker.stop().await;
    kit.close().await;
}

async fn streams_end_with_the_server(kit: Kit) {
    let id = enqueue(&kit).await;
    let mut events = Events::of(&kit.server, &id, &[]).await;
    let began = Instant::now();
    let Kit { mill, server, .. } = kit;
    let (ended, ()) = tokio::join!(events.next(), server.stop());
    assert_eq!(ended, None, "it is let go, and comes again elsewhere");
    assert!(began.elapsed() < settings().drain, "nothing was waited for");
    mill.close().await;
}

async fn only_so_many_follow_at_once(kit: Kit) {
    let few = Settings { streams_max: 2, ..settings() };
    let server = Server::start(kit.mill.clone(), few).await.unwrap();
    let id = enqueue(&kit).await;
    let one = Events::of(&server, &id, &[]).await;
    let _two = Events::of(&server, &id, &[]).await;
    let ask = async || {
        Told::of(get(&server, &format!("/v1/jobs/{id}/stream")).send().await.unwrap()).await
    };
    let told = ask().await.refused(503, "streams_too_many", "2 streams");
    assert_eq!(told.header("retry-after"), "5");
    let jobs = get(&server, "/v1/jobs").send().await.unwrap();
    assert_eq!(jobs.status(), 200, "there is room for requests");
    drop(one);
    tidemill_testkit::eventually::eventually(
        "a place is free",
        Duration::from_secs(20),
        async || {
            let request = get(&server, &format!("/v1/jobs/{id}/stream"));
            (request.send().await.unwrap().status() == 200).then_some(())
        },
    )
    .await;
    server.stop().await;
    kit.close().await;
}

/// The claim is less than 50 ms on an idle machine; this one may be busy. Who only looked by itself, once a second,
/// would be far above.
async fn a_chunk_reaches_another_server_at_once(kit: Kit) {
    let elsewhere = Tidemill::open(kit.url()).await.unwrap();
    let other = Server::start(elsewhere.clone(), settings()).await.unwrap();
    let id = enqueue(&kit).await;
    let (talker, worker) = Talker::start(&kit.mill).await;
    let mut events = Events::of(&other, &id, &[]).await;
    talker.say("0");
    events.text(1).await;
    let mut took = Vec::new();
    for number in 2..=41 {
        let said = Instant::now();
        talker.say("x");
        events.text(number).await;
        took.push(said.elapsed());
    }
    took.sort();
    println!("a chunk took {:?} at the median, {:?} at most", took[20], took[39]);
    assert!(took[20] < Duration::from_millis(250), "{took:?}");
    talker.end();
    worker.stop().await;
    other.stop().await;
    elsewhere.close().await;
    kit.close().await;
}
