//! Webhooks end to end: jobs end, a real endpoint is told, and everything that can go wrong there does.
//!
//! What was sent is verified by a library of others.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State as Shared;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::Value;
use standardwebhooks::Webhook as Verifier;
use tempfile::TempDir;
use tidemill::core::webhook::target::Policy;
use tidemill::core::webhook::{Event, QUEUE, Tell, Webhook};
use tidemill::{
    Alert, Delivery, Enqueue, JobFilter, JobId, Keyring, Payload, QueueRules, Running, Settings,
    State, Thresholds, Tidemill,
};
use tidemill_relay::webhook::send::Sender;
use tidemill_relay::webhook::start;
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tidemill_testkit::eventually::eventually;

mod webhook {
    mod send;
}

const SOON: Duration = Duration::from_secs(30);

/// What an endpoint was told, and what it answers.
#[derive(Default)]
struct Endpoint {
    told: Mutex<Vec<(HeaderMap, Bytes)>>,
    answers: Mutex<Vec<Response>>,
}

impl Endpoint {
    async fn open() -> (Arc<Self>, SocketAddr) {
        let endpoint = Arc::new(Self::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/in", post(take))
            .route("/other", post(take))
            .with_state(Arc::clone(&endpoint));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        (endpoint, address)
    }

    fn told(&self) -> Vec<(HeaderMap, Bytes)> {
        self.told.lock().unwrap().clone()
    }

    /// The next answers, in this order; then 204.
    fn answer(&self, answers: impl IntoIterator<Item = Response>) {
        let mut answers: Vec<_> = answers.into_iter().collect();
        answers.reverse();
        *self.answers.lock().unwrap() = answers;
    }
}

async fn take(
    Shared(endpoint): Shared<Arc<Endpoint>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    endpoint.told.lock().unwrap().push((headers, body));
    let next = endpoint.answers.lock().unwrap().pop();
    next.unwrap_or_else(|| StatusCode::NO_CONTENT.into_response())
}

struct Kit {
    store: String,
    mill: Tidemill,
    endpoint: Arc<Endpoint>,
    url: String,
    relay: Running,
    worker: Running,
    _folder: Option<TempDir>,
}

fn local() -> Policy {
    Policy { allow: vec!["127.0.0.1".parse().unwrap()], ports: Vec::new() }
}

impl Kit {
    async fn new(store: &str, folder: Option<TempDir>) -> Self {
        let mill = Tidemill::open(store).await.unwrap();
        let (endpoint, address) = Endpoint::open().await;
        let relay = start(&mill, Sender::new(local())).await.unwrap();
        let echo = |payload, _| async { Ok(payload) };
        let worker = mill.worker().handle_raw("echo", Settings::default(), echo);
        let worker = worker.start().await.unwrap();
        let url = format!("http://{address}/in");
        let store = store.to_owned();
        Self { store, mill, endpoint, url, relay, worker, _folder: folder }
    }

    async fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self::new(&url, Some(folder)).await
    }

    async fn postgres() -> Self {
        Self::new(&fresh_postgres_url(), None).await
    }

    fn all(&self) -> Webhook {
        Webhook { queues: vec!["*".into()], output: true, ..Webhook::new(&self.url) }
    }

    async fn echo(&self) -> JobId {
        self.mill.enqueue(Enqueue::raw("echo", r#"{"n":1}"#)).await.unwrap().id()
    }

    async fn heard(&self, number: usize) -> Vec<(HeaderMap, Bytes)> {
        eventually("the endpoint to be told", SOON, async || {
            let told = self.endpoint.told();
            (told.len() >= number).then_some(told)
        })
        .await
    }

    /// The first delivery, once it is so.
    async fn delivery(&self, is_so: impl Fn(&Delivery) -> bool) -> Delivery {
        eventually("the delivery", SOON, async || {
            let (all, _) = self.mill.webhooks().deliveries("w", None, None, 10).await.unwrap();
            all.last().filter(|delivery| is_so(delivery)).cloned()
        })
        .await
    }

    async fn stop(self) {
        self.worker.stop().await;
        self.relay.stop().await;
        self.mill.close().await;
    }
}

macro_rules! over_both_stores {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Kit::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Kit::postgres().await).await;
            })*
        }
    };
}

over_both_stores!(
    what_is_told_is_verified_by_a_library_of_others,
    both_secrets_sign_while_one_takes_over,
    a_failed_delivery_is_tried_again_under_the_same_id,
    what_was_delivered_can_be_sent_again_under_the_same_id,
    an_endpoint_that_asks_for_time_gets_it_and_one_that_is_gone_is_left_alone,
    an_endpoint_that_asks_for_no_time_is_not_called_at_once,
    what_a_paused_webhook_was_to_be_told_waits,
    an_endpoint_that_fails_is_spared,
    an_endpoint_that_hangs_does_not_hold_up_a_stop,
    what_is_kept_encrypted_is_told_as_it_is,
    an_alert_is_told_once_when_it_begins_and_once_when_it_is_over,
    both_watermarks_of_a_queue_are_told,
    a_webhook_that_is_gone_is_told_nothing_more,
    a_job_that_asks_for_a_webhook_which_is_not_there_is_refused,
);

fn verified(secret: &str, told: &(HeaderMap, Bytes)) -> bool {
    Verifier::new(secret).unwrap().verify(&told.1, &told.0).is_ok()
}

async fn what_is_told_is_verified_by_a_library_of_others(kit: Kit) {
    let (_, secret) = kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let secret = secret.unwrap();
    let id = kit.echo().await;
    let told = kit.heard(1).await;
    assert!(verified(secret.reveal(), &told[0]));
    let mut forged = told[0].clone();
    forged.1 = Bytes::from(String::from_utf8(forged.1.to_vec()).unwrap().replace("done", "dead"));
    assert!(!verified(secret.reveal(), &forged), "another body has another signature");
    let body: Value = serde_json::from_slice(&told[0].1).unwrap();
    assert_eq!((&body["type"], &body["data"]["id"]), (&"job.done".into(), &id.to_string().into()));
    assert_eq!(body["data"]["output"]["n"], 1);
    assert_eq!(told[0].0["content-type"], "application/json");
    let delivery = kit.delivery(|delivery| delivery.state == State::Done).await;
    assert_eq!((delivery.status, delivery.job), (Some(204), Some(id.to_string())));
    assert_eq!(told[0].0["webhook-id"], delivery.message.as_str());
    let (view, again) = kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    assert!(again.is_none(), "its secret is not told twice");
    let shown = serde_json::to_string(&view).unwrap() + &format!("{view:?}");
    assert!(!shown.contains(secret.reveal()) && !shown.contains("whsec_"));
    kit.stop().await;
}

async fn both_secrets_sign_while_one_takes_over(kit: Kit) {
    let (_, old) = kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let (view, new) = kit.mill.webhooks().rotate("w", Duration::from_hours(1)).await.unwrap();
    assert_eq!(view.secrets, 2);
    kit.echo().await;
    let told = kit.heard(1).await;
    assert!(verified(old.unwrap().reveal(), &told[0]) && verified(new.reveal(), &told[0]));
    let (view, last) = kit.mill.webhooks().rotate("w", Duration::ZERO).await.unwrap();
    assert_eq!(view.secrets, 1);
    kit.echo().await;
    let told = kit.heard(2).await;
    assert!(verified(last.reveal(), &told[1]) && !verified(new.reveal(), &told[1]));
    kit.stop().await;
}

async fn a_failed_delivery_is_tried_again_under_the_same_id(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let elsewhere = [("location", "/other")];
    kit.endpoint.answer([
        (StatusCode::FOUND, elsewhere).into_response(),
        StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    ]);
    kit.echo().await;
    for attempts in 1..=2 {
        let failed = |delivery: &Delivery| {
            delivery.state == State::Scheduled && delivery.attempt == attempts
        };
        let delivery = kit.delivery(failed).await;
        let status = if attempts == 1 { 302 } else { 500 };
        assert!(delivery.error.unwrap().contains(&format!("it answered {status}")));
        assert_eq!(delivery.status, Some(status));
        assert!(delivery.took_ms.is_some());
        let hurried = kit.mill.webhooks().redeliver("w", delivery.id, "test").await.unwrap();
        assert_eq!(hurried, delivery.id);
    }
    let delivery = kit.delivery(|delivery| delivery.state == State::Done).await;
    assert_eq!(delivery.attempt, 3);
    let told = kit.heard(3).await;
    assert_eq!(told.len(), 3, "nobody went where the answer pointed");
    assert!(told.iter().all(|(headers, body)| {
        headers["webhook-id"] == told[0].0["webhook-id"] && *body == told[0].1
    }));
    let log = kit.mill.attempts(delivery.id).await.unwrap();
    let log: Vec<_> = log.iter().filter_map(|attempt| attempt.error.as_deref()).collect();
    assert!(log.iter().any(|said| said.contains("302 in")), "{log:?}");
    assert!(log.iter().any(|said| said.contains("500 in")), "{log:?}");
    kit.stop().await;
}

async fn what_was_delivered_can_be_sent_again_under_the_same_id(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let id = kit.echo().await;
    let delivery = kit.delivery(|delivery| delivery.state == State::Done).await;
    let again = kit.mill.webhooks().redeliver("w", delivery.id, "test").await.unwrap();
    assert_ne!(again, delivery.id);
    let told = kit.heard(2).await;
    assert_eq!(told[0].0["webhook-id"], told[1].0["webhook-id"]);
    assert_eq!(told[0].1, told[1].1);
    let unknown = kit.mill.webhooks().redeliver("w", id, "test").await.unwrap_err();
    assert_eq!(unknown.code(), "job_unknown", "it is no delivery");
    kit.stop().await;
}

async fn an_endpoint_that_asks_for_time_gets_it_and_one_that_is_gone_is_left_alone(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let later = [("retry-after", "3600")];
    kit.endpoint.answer([(StatusCode::TOO_MANY_REQUESTS, later).into_response()]);
    kit.echo().await;
    let asked =
        kit.delivery(|delivery| delivery.due_at.is_some() && delivery.error.is_some()).await;
    let wait = asked.due_at.unwrap().duration_since(asked.created_at);
    assert!(asked.attempt == 0 && wait.as_secs() >= 3590, "{wait:?}");
    let view = kit.mill.webhooks().get("w").await.unwrap();
    assert!(view.opens_at.is_some(), "the others wait as well");
    kit.mill.webhooks().delete("w").await.unwrap();
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    kit.endpoint.answer([StatusCode::GONE.into_response()]);
    kit.echo().await;
    let gone = kit.delivery(|delivery| delivery.state == State::Dead).await;
    assert!(gone.error.unwrap().contains("410"));
    kit.stop().await;
}

/// A try that is turned down so is not counted, so a time ends them.
async fn an_endpoint_that_asks_for_no_time_is_not_called_at_once(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    let now = || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")]).into_response();
    kit.endpoint.answer((0..100).map(|_| now()));
    kit.echo().await;
    let asked =
        kit.delivery(|delivery| delivery.due_at.is_some() && delivery.error.is_some()).await;
    let wait = asked.due_at.unwrap().duration_since(asked.created_at);
    assert!(asked.attempt == 0 && wait.as_secs() >= 5, "{wait:?}");
    assert_eq!(kit.endpoint.told().len(), 1);
    let job = kit.mill.job(asked.id).await.unwrap().unwrap().job;
    assert_eq!(job.options.finish_within_ms, Some(3 * 24 * 3_600_000));
    kit.stop().await;
}

async fn what_a_paused_webhook_was_to_be_told_waits(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    kit.mill.pause(QUEUE).await.unwrap();
    let id = kit.echo().await;
    kit.mill.wait(id, SOON).await.unwrap();
    kit.delivery(|_| true).await;
    kit.mill.webhooks().set("w", Webhook { paused: true, ..kit.all() }).await.unwrap();
    kit.mill.resume(QUEUE).await.unwrap();
    let waits = kit.delivery(|delivery| delivery.error.is_some()).await;
    assert!(waits.error.as_ref().unwrap().contains("the webhook is paused"), "{waits:?}");
    assert!(waits.attempt == 0 && waits.due_at.is_some(), "{waits:?}");
    assert!(kit.endpoint.told().is_empty());
    kit.stop().await;
}

async fn an_endpoint_that_fails_is_spared(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    kit.endpoint.answer((0..100).map(|_| StatusCode::BAD_GATEWAY.into_response()));
    for _ in 0..40 {
        kit.echo().await;
    }
    let view = eventually("the gate to be shut", SOON, async || {
        let view = kit.mill.webhooks().get("w").await.unwrap();
        (view.is_broken && view.held > 0).then_some(view)
    })
    .await;
    assert!(view.opens_at.is_some());
    let limits = kit.mill.limit_states().await.unwrap();
    let endpoint = limits.iter().find(|state| state.limit.queue == "tidemill:webhooks").unwrap();
    assert_eq!((endpoint.is_broken, endpoint.broken), (true, 1));
    let page = eventually("the store to be looked at anew", SOON, async || {
        let page = kit.mill.metrics().await;
        let mut circuits = page.lines().filter(|line| line.starts_with("tidemill_circuit{"));
        let is_open = |line: &str| line.contains(r#"state="open""#) && line.ends_with(" 1");
        circuits.any(is_open).then_some(page)
    })
    .await;
    assert!(!page.contains(&view.id.to_string()), "no ids are labels");
    let told = kit.endpoint.told().len();
    assert!((5..40).contains(&told), "{told} were sent before it was spared");
    kit.stop().await;
}

async fn an_endpoint_that_hangs_does_not_hold_up_a_stop(kit: Kit) {
    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/in", deaf.local_addr().unwrap());
    kit.mill.webhooks().set("w", Webhook { url, ..kit.all() }).await.unwrap();
    kit.echo().await;
    let _unanswered = deaf.accept().await.unwrap();
    let begun = Instant::now();
    kit.relay.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    let (all, _) = kit.mill.webhooks().deliveries("w", None, None, 10).await.unwrap();
    assert_eq!((all[0].state, all[0].attempt), (State::Ready, 0), "no try is spent");
    kit.worker.stop().await;
    kit.mill.close().await;
}

async fn what_is_kept_encrypted_is_told_as_it_is(kit: Kit) {
    // Whoever works here has no key: only those who have it may run a job, and tell of it.
    let Kit { store, mill, endpoint, url, relay, worker, _folder: folder } = kit;
    worker.stop().await;
    relay.stop().await;
    let keys = Keyring::parse("k1 AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8").unwrap();
    let keyed = Tidemill::builder().keys(keys).open(&store).await.unwrap();
    let relay = start(&keyed, Sender::new(local())).await.unwrap();
    let worker = keyed.worker().handle_raw("echo", Settings::default(), |p, _| async { Ok(p) });
    let worker = worker.start().await.unwrap();
    let kit = Kit { store, mill, endpoint, url, relay, worker, _folder: folder };
    let (_, secret) = keyed.webhooks().set("w", kit.all()).await.unwrap();
    keyed.enqueue(Enqueue::raw("echo", r#"{"n":"between us"}"#)).await.unwrap();
    let told = kit.heard(1).await;
    assert!(verified(secret.unwrap().reveal(), &told[0]));
    let body: Value = serde_json::from_slice(&told[0].1).unwrap();
    assert_eq!(body["data"]["output"]["n"], "between us");
    let kept = kit.mill.jobs(&JobFilter { limit: 10, ..JobFilter::default() }).await.unwrap();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|view| !format!("{view:?}").contains("between us")), "{kept:?}");
    kit.stop().await;
    keyed.close().await;
}

async fn an_alert_is_told_once_when_it_begins_and_once_when_it_is_over(kit: Kit) {
    let (_, secret) = kit
        .mill
        .webhooks()
        .set("w", Webhook { alerts: true, ..Webhook::new(&kit.url) })
        .await
        .unwrap();
    // Several processes watch the same store, none of which is told what the others see.
    let thresholds = Thresholds { hold: Duration::ZERO, ..Thresholds::default() };
    let mut others = Vec::new();
    for _ in 0..3 {
        let other = Tidemill::builder().thresholds(thresholds).open(&kit.store).await.unwrap();
        let worker = other
            .worker()
            .handle_raw("other", Settings::default(), async |_, _| Ok(Payload::null()));
        others.push((worker.start().await.unwrap(), other));
    }
    kit.mill.enqueue(Enqueue::raw("nobody", "{}").queue("q")).await.unwrap();
    let told = kit.heard(1).await;
    assert!(verified(secret.unwrap().reveal(), &told[0]));
    let body: Value = serde_json::from_slice(&told[0].1).unwrap();
    assert_eq!(
        (&body["type"], &body["data"]["alert"]),
        (&"alert.began".into(), &"no_worker".into())
    );
    assert_eq!((&body["data"]["queue"], &body["data"]["kind"]), (&"q".into(), &"nobody".into()));
    assert!(body["data"]["sentence"].as_str().unwrap().contains("nobody"));
    // Every one of them has looked by the time each has told its own watchers.
    for (_, other) in &others {
        let holds = |alerts: &Arc<Vec<Alert>>| !alerts.is_empty();
        tokio::time::timeout(SOON, other.watch_alerts().wait_for(holds)).await.unwrap().unwrap();
    }
    let worker =
        kit.mill
            .worker()
            .queues(["q"])
            .handle_raw("nobody", Settings::default(), |p, _| async { Ok(p) });
    let worker = worker.start().await.unwrap();
    let told = kit.heard(2).await;
    let body: Value = serde_json::from_slice(&told[1].1).unwrap();
    assert_eq!((&body["type"], &body["data"]["kind"]), (&"alert.over".into(), &"nobody".into()));
    for (_, other) in &others {
        let is_over = |alerts: &Arc<Vec<Alert>>| alerts.is_empty();
        tokio::time::timeout(SOON, other.watch_alerts().wait_for(is_over)).await.unwrap().unwrap();
    }
    let (deliveries, _) = kit.mill.webhooks().deliveries("w", None, None, 10).await.unwrap();
    assert_eq!(deliveries.len(), 2, "{deliveries:?}");
    worker.stop().await;
    for (worker, other) in others {
        worker.stop().await;
        other.close().await;
    }
    let page = kit.mill.metrics().await;
    assert!(page.contains(r#"tidemill_webhook_deliveries_total{result="taken"} 2"#), "{page}");
    assert!(page.contains("tidemill_webhook_seconds_count 2"), "{page}");
    kit.stop().await;
}

async fn both_watermarks_of_a_queue_are_told(kit: Kit) {
    let hook = Webhook { alerts: true, ..Webhook::new(&kit.url) };
    kit.mill.webhooks().set("w", hook).await.unwrap();
    let marks = |rules: &mut QueueRules| (rules.high_water, rules.low_water) = (Some(2), Some(0));
    kit.mill.change_queue("q:*", marks).await.unwrap();
    let later = || Enqueue::raw("echo", "1").queue("q:1").delay(Duration::from_hours(1));
    let ids = [
        kit.mill.enqueue(later()).await.unwrap().id(),
        kit.mill.enqueue(later()).await.unwrap().id(),
    ];
    let told = kit.heard(1).await;
    let body: Value = serde_json::from_slice(&told[0].1).unwrap();
    let data = &body["data"];
    assert_eq!((&body["type"], &data["alert"]), (&"alert.began".into(), &"above_watermark".into()));
    assert_eq!((&data["queue"], &data["threshold"]), (&"q:1".into(), &2.0.into()));
    kit.mill.cancel_many(ids.to_vec(), "enough").await.unwrap();
    let told = kit.heard(2).await;
    let body: Value = serde_json::from_slice(&told[1].1).unwrap();
    assert_eq!((&body["type"], &body["data"]["queue"]), (&"alert.over".into(), &"q:1".into()));
    kit.stop().await;
}

async fn a_webhook_that_is_gone_is_told_nothing_more(kit: Kit) {
    kit.mill.webhooks().set("w", kit.all()).await.unwrap();
    kit.mill.pause(QUEUE).await.unwrap();
    let id = kit.echo().await;
    kit.mill.wait(id, SOON).await.unwrap();
    let delivery = kit.delivery(|_| true).await;
    kit.mill.webhooks().delete("w").await.unwrap();
    kit.mill.resume(QUEUE).await.unwrap();
    eventually("it to be called off", SOON, async || {
        let view = kit.mill.job(delivery.id).await.unwrap().unwrap();
        (view.state == State::Cancelled).then_some(())
    })
    .await;
    assert!(kit.endpoint.told().is_empty());
    kit.stop().await;
}

async fn a_job_that_asks_for_a_webhook_which_is_not_there_is_refused(kit: Kit) {
    let asking = || {
        let tell = Tell { to: "w".into(), events: vec![Event::Done] };
        Enqueue::raw("echo", "1").webhook(tell)
    };
    assert_eq!(kit.mill.enqueue(asking()).await.unwrap_err().code(), "webhook_unknown");
    kit.mill.webhooks().set("w", Webhook::new(&kit.url)).await.unwrap();
    kit.echo().await;
    kit.mill.enqueue(asking()).await.unwrap();
    assert_eq!(kit.heard(1).await.len(), 1, "only what asks for it");
    for wrong in ["ftp://example.com", "https://me:secret@example.com/", "nowhere"] {
        let error = kit.mill.webhooks().set("x", Webhook::new(wrong)).await.unwrap_err();
        assert!(error.code() == "webhook_invalid" && !error.to_string().contains("secret"));
    }
    kit.stop().await;
}
