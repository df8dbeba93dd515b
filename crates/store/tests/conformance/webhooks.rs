//! Webhooks: whoever means a job is told of its end, or that it is parked, by a job written with it or not at all.

use serde_json::Value;
use tidemill_core::alert::book::{Book, Look};
use tidemill_core::alert::{Alert, AlertKind};
use tidemill_core::job::outcome::Waiting;
use tidemill_core::webhook::sign::{Secrets, SigningSecret};
use tidemill_core::webhook::{Event, KIND, Message, OUTPUT_BYTES_MAX, QUEUE, Tell, Webhook};
use tidemill_core::workflow::{ParkCode, Waits};
use tidemill_core::{ErrorClass, Failure, JobId, NewJob, Options, Payload, Settlement, State};
use tidemill_store::flow::{FlowAct, FlowAnswer};
use tidemill_store::webhook::Kept;
use tidemill_store::{JobFilter, Settled};
use uuid::Uuid;

use super::flows::{run, tend};
use super::kit::{Kit, TTL, ask, done, item, job, retry, rules};
use super::sagas;

over_both_stores!(
    a_webhook_is_told_of_every_end_it_means_and_of_no_other,
    many_ends_of_one_settle_are_all_told,
    a_settle_that_is_stale_or_sent_again_tells_nothing_twice,
    what_is_called_off_or_lost_too_often_is_told,
    what_ended_otherwise_than_it_did_first_is_told,
    a_run_that_is_parked_is_told_of_once,
    a_job_may_ask_to_be_told_of,
    the_output_is_told_by_choice,
    an_output_is_told_as_it_was_written,
    deliveries_are_not_told_of,
    a_delivery_is_of_the_trace_of_its_job,
    a_webhook_is_set_by_one_at_a_time,
    the_book_of_alerts_is_written_by_one_at_a_time,
);

fn kept(name: &str, webhook: Webhook) -> Kept {
    Kept {
        id: Uuid::now_v7(),
        name: name.into(),
        webhook,
        secrets: Secrets::of(SigningSecret::of_random([7; 32])),
        version: 0,
        created_at: jiff::Timestamp::UNIX_EPOCH,
        changed_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

async fn set(kit: &Kit, name: &str, webhook: Webhook) -> Uuid {
    let kept = kept(name, webhook);
    assert!(kit.store.set_webhook(&kept).await.unwrap());
    kept.id
}

fn of(queues: &[&str]) -> Webhook {
    let queues = queues.iter().map(|&queue| queue.into()).collect();
    Webhook { queues, ..Webhook::new("https://example.com/in") }
}

/// What waits to be told, by the webhook's id, oldest first.
async fn told(kit: &Kit) -> Vec<(Uuid, Message)> {
    let filter = JobFilter { queue: Some(QUEUE.into()), limit: 1000, ..JobFilter::default() };
    let page = kit.store.jobs(&filter).await.unwrap();
    let mut told = Vec::new();
    for view in page.jobs.iter().rev() {
        assert_eq!((view.job.kind.as_str(), view.state), (KIND, State::Ready));
        let message: Message = serde_json::from_str(view.job.payload.as_str()).unwrap();
        assert_eq!(view.job.key, Some(message.webhook.to_string()));
        assert_eq!(view.job.id.0, message.message);
        assert_eq!(view.job.options.retry.as_ref().unwrap().attempts_max, Some(15));
        assert_eq!(message.timestamp, kit.clock.now());
        told.push((message.webhook, message));
    }
    told
}

async fn events(kit: &Kit, webhook: Uuid) -> Vec<String> {
    let told = told(kit).await.into_iter().filter(|(of, _)| *of == webhook);
    told.map(|(_, message)| message.event).collect()
}

fn dead() -> Settlement {
    let failure =
        Failure { class: ErrorClass::Permanent, message: "no".into(), fingerprint: "f".into() };
    Settlement::Dead { failure }
}

async fn a_webhook_is_told_of_every_end_it_means_and_of_no_other(kit: &Kit) {
    let all = set(kit, "all", of(&["*"])).await;
    let only_dead = Webhook { events: vec![Event::Dead], ..of(&["default"]) };
    let only_dead = set(kit, "dead", only_dead).await;
    let elsewhere = set(kit, "elsewhere", of(&["mail:*", "default:eu"])).await;
    let of_kind = set(kit, "kind", Webhook { kinds: vec!["b".into()], ..of(&["def*"]) }).await;
    let of_tenant = Webhook { tenant: Some("acme".into()), ..of(&["*"]) };
    let of_tenant = set(kit, "tenant", of_tenant).await;
    let paused = set(kit, "paused", Webhook { paused: true, ..of(&["*"]) }).await;
    kit.finish(job("a"), done()).await;
    kit.finish(NewJob { tenant: Some("acme".into()), ..job("b") }, dead()).await;
    kit.finish(job("c"), Settlement::Cancelled { reason: "no".into() }).await;
    assert_eq!(events(kit, all).await, ["job.done", "job.dead", "job.cancelled"]);
    assert_eq!(events(kit, only_dead).await, ["job.dead"]);
    assert_eq!(events(kit, of_kind).await, ["job.dead"]);
    assert_eq!(events(kit, of_tenant).await, ["job.dead"]);
    assert!(events(kit, elsewhere).await.is_empty() && events(kit, paused).await.is_empty());
    let told = told(kit).await;
    let (_, dead) = told.iter().find(|(of, _)| *of == of_tenant).unwrap();
    let data: Value = dead.data.read().unwrap();
    assert_eq!((&data["kind"], &data["queue"]), (&"b".into(), &"default".into()));
    assert_eq!((&data["tenant"], &data["state"]), (&"acme".into(), &"dead".into()));
    assert_eq!((&data["error"], &data["attempt"]), (&"no".into(), &1.into()));
}

async fn many_ends_of_one_settle_are_all_told(kit: &Kit) {
    let all = set(kit, "all", of(&["default"])).await;
    let worker = kit.worker().await;
    kit.store.enqueue((0..20).map(|_| job("k")).collect()).await.unwrap();
    let claim = kit.take(worker, 20).await;
    let how = |at: usize| match at % 4 {
        0 => dead(),
        1 => retry(TTL, 1),
        _ => done(),
    };
    let items = (0..20).map(|at| item(&claim, at, how(at))).collect();
    kit.store.settle(worker, items).await.unwrap();
    let mut events = events(kit, all).await;
    events.sort();
    assert_eq!(events, [vec!["job.dead"; 5], vec!["job.done"; 10]].concat());
}

async fn a_settle_that_is_stale_or_sent_again_tells_nothing_twice(kit: &Kit) {
    let all = set(kit, "all", of(&["default"])).await;
    kit.put(job("k")).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    kit.settle(worker, &claim, done()).await;
    kit.put(job("k")).await;
    let late = kit.take_one(worker).await;
    kit.clock.advance(TTL * 2);
    kit.rescue().await;
    kit.settle(worker, &late, dead()).await;
    let filter = JobFilter { queue: Some(QUEUE.into()), ..JobFilter::default() };
    assert_eq!(kit.store.jobs(&filter).await.unwrap().jobs.len(), 1, "{all}");
}

async fn what_is_called_off_or_lost_too_often_is_told(kit: &Kit) {
    let all = set(kit, "all", of(&["default"])).await;
    let id = kit.put(job("k")).await;
    kit.store.cancel(vec![id], "not needed").await.unwrap();
    assert_eq!(events(kit, all).await, ["job.cancelled"]);
    kit.put(job("poison")).await;
    for _ in 0..3 {
        let worker = kit.worker().await;
        kit.take_one(worker).await;
        kit.clock.advance(TTL * 2);
        kit.store.rescue(rules()).await.unwrap();
    }
    let filter = JobFilter { queue: Some(QUEUE.into()), ..JobFilter::default() };
    let page = kit.store.jobs(&filter).await.unwrap();
    let message: Message = serde_json::from_str(page.jobs[0].job.payload.as_str()).unwrap();
    assert_eq!((page.jobs.len(), message.event.as_str()), (2, "job.dead"));
}

async fn what_ended_otherwise_than_it_did_first_is_told(kit: &Kit) {
    let hook = Webhook { kinds: vec!["undo-flight".into()], output: true, ..of(&["*"]) };
    let undos = set(kit, "undos", hook).await;
    let worker = kit.worker().await;
    // It died, and somebody has seen to it.
    let id = sagas::start(kit, sagas::booking()).await;
    run(kit, worker, &[("card", dead()), ("undo-flight", dead())]).await;
    let output = Some(Payload::trusted("7".into()));
    let act =
        FlowAct::Resolve { step: "undo flight".into(), output, by: "ada".into(), why: "so".into() };
    assert_eq!(kit.store.change_flow(id, act).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
    assert_eq!(events(kit, undos).await, ["job.dead", "job.done"]);
    let data: Value = told(kit).await[1].1.data.read().unwrap();
    assert_eq!(
        (&data["output"], &data["error"], &data["attempt"]),
        (&7.into(), &Value::Null, &1.into())
    );
    tend(kit).await;
    run(kit, worker, &[]).await;
    // It was called off, and holds up what it is of.
    let (_, undo) = sagas::with_undo(kit, worker).await;
    kit.store.cancel(vec![undo], "enough").await.unwrap();
    tend(kit).await;
    assert_eq!(events(kit, undos).await[2..], ["job.cancelled", "job.dead"]);
    let data: Value = told(kit).await[3].1.data.read().unwrap();
    assert_eq!((&data["state"], &data["error"]), (&"dead".into(), &"enough".into()));
}

async fn a_run_that_is_parked_is_told_of_once(kit: &Kit) {
    let all = set(kit, "all", of(&["*"])).await;
    let ends = vec![Event::Done, Event::Cancelled, Event::Dead];
    let of_ends = set(kit, "ends", Webhook { events: ends, ..of(&["*"]) }).await;
    let only = set(kit, "parked", Webhook { events: vec![Event::Parked], ..of(&["*"]) }).await;
    let wait = |parked| {
        let waiting = Waiting { waits: Waits::default(), read: 0, spent: 0, parked };
        Settlement::Wait(Box::new(waiting))
    };
    let parks = || wait(Some(ParkCode::JournalFull.because("it is too long")));
    kit.finish(job("waits"), wait(None)).await;
    let id = kit.put(NewJob { tenant: Some("acme".into()), ..job("parks") }).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    for _ in 0..2 {
        assert_eq!(kit.settle(worker, &claim, parks()).await, Settled::Accepted);
    }
    for webhook in [all, only] {
        assert_eq!(events(kit, webhook).await, ["job.parked"]);
    }
    assert!(events(kit, of_ends).await.is_empty());
    let (_, message) = told(kit).await.pop().unwrap();
    let data: Value = message.data.read().unwrap();
    assert_eq!((&data["id"], &data["kind"]), (&id.to_string().into(), &"parks".into()));
    assert_eq!((&data["state"], &data["attempt"]), (&"blocked".into(), &1.into()));
    assert_eq!(data["state"], kit.state(id).await.word());
    assert_eq!((&data["tenant"], &data["output"]), (&"acme".into(), &Value::Null));
    assert_eq!(data["code"], "parked_journal_full");
    assert_eq!(data["error"], "it is too long");
    // One that was called off meanwhile is not parked.
    let id = kit.put(job("parks")).await;
    let claim = kit.take_one(worker).await;
    kit.store.cancel(vec![id], "enough").await.unwrap();
    assert_eq!(kit.settle(worker, &claim, parks()).await, Settled::Cancelled);
    assert_eq!(events(kit, only).await, ["job.parked"]);
    assert_eq!(events(kit, of_ends).await, ["job.cancelled"]);
}

async fn a_job_may_ask_to_be_told_of(kit: &Kit) {
    let asked = set(kit, "asked", of(&[])).await;
    let theirs = set(kit, "theirs", Webhook { tenant: Some("acme".into()), ..of(&[]) }).await;
    let ask = |to: &str, events: &[Event]| {
        let webhook = Some(Box::new(Tell { to: to.into(), events: events.to_vec() }));
        NewJob { options: Options { webhook, ..Options::default() }, ..job("k") }
    };
    kit.finish(job("k"), done()).await;
    kit.finish(ask("asked", &[]), done()).await;
    kit.finish(ask("asked", &[Event::Dead]), done()).await;
    kit.finish(ask("asked", &[Event::Dead]), dead()).await;
    kit.finish(ask("nobody", &[]), done()).await;
    kit.finish(ask("theirs", &[]), done()).await;
    assert_eq!(events(kit, asked).await, ["job.done", "job.dead"]);
    assert!(events(kit, theirs).await.is_empty(), "it is of another tenant");
}

async fn the_output_is_told_by_choice(kit: &Kit) {
    let loud = set(kit, "loud", Webhook { output: true, ..of(&["*"]) }).await;
    set(kit, "quiet", of(&["*"])).await;
    let output =
        |text: String| Settlement::Done { output: Payload::trusted(text), follow_ups: Vec::new() };
    kit.finish(job("k"), output(r#"{"n":[1,2]}"#.into())).await;
    kit.finish(job("k"), output(format!("\"{}\"", "x".repeat(300_000)))).await;
    let large = format!("\"{}\"", "x".repeat(OUTPUT_BYTES_MAX - 2));
    kit.finish(job("k"), output(large.clone())).await;
    kit.finish(job("k"), dead()).await;
    let mut outputs = Vec::new();
    for (of, message) in told(kit).await {
        let data: Value = message.data.read().unwrap();
        let output = data["output"].clone();
        let is_left_out = data["output_left_out"].as_bool().unwrap();
        assert!(of == loud || (output.is_null() && !is_left_out));
        if of == loud {
            outputs.push((output, is_left_out));
        }
    }
    let large: Value = serde_json::from_str(&large).unwrap();
    let null = || Value::Null;
    let expected = [
        (serde_json::json!({"n": [1, 2]}), false),
        (null(), true),
        (large, false),
        (null(), false),
    ];
    assert_eq!(outputs, expected, "one is too large, and one is just not");
}

async fn an_output_is_told_as_it_was_written(kit: &Kit) {
    set(kit, "loud", Webhook { output: true, ..of(&["*"]) }).await;
    // More than any type of number holds.
    let numbers = "[1e400,123456789012345678901234567890.5,0.10]";
    let output = Payload::trusted(numbers.to_owned());
    kit.finish(job("k"), Settlement::Done { output, follow_ups: Vec::new() }).await;
    let (_, message) = told(kit).await.pop().unwrap();
    let body = message.body().replace(": ", ":").replace(" :", ":");
    assert!(body.contains(&format!("\"output\":{numbers}")), "{body}");
}

async fn a_delivery_is_of_the_trace_of_its_job(kit: &Kit) {
    set(kit, "all", of(&["*"])).await;
    let trace = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
    let options = Options { trace: trace.clone(), ..Options::default() };
    kit.finish(NewJob { options, ..job("k") }, done()).await;
    kit.finish(job("k"), done()).await;
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, QUEUE, 9)).await.unwrap();
    let traces: Vec<_> = claim.jobs.iter().map(|taken| taken.job.options.trace.clone()).collect();
    assert_eq!(traces, [trace, None]);
    let retries = claim.jobs.iter().map(|taken| taken.job.options.retry.clone());
    assert!(retries.into_iter().all(|retry| retry == tidemill_core::webhook::options().retry));
}

async fn deliveries_are_not_told_of(kit: &Kit) {
    set(kit, "all", of(&["*"])).await;
    kit.finish(job("k"), done()).await;
    let worker = kit.worker().await;
    let claim = kit.store.claim(ask(worker, QUEUE, 9)).await.unwrap();
    assert_eq!(claim.jobs.len(), 1, "it waits as every job does");
    kit.settle(worker, &claim, dead()).await;
    let filter = JobFilter { queue: Some(QUEUE.into()), ..JobFilter::default() };
    assert_eq!(kit.store.jobs(&filter).await.unwrap().jobs.len(), 1);
}

async fn a_webhook_is_set_by_one_at_a_time(kit: &Kit) {
    let first = kept("w", of(&["a"]));
    assert!(kit.store.set_webhook(&first).await.unwrap());
    assert!(!kit.store.set_webhook(&kept("w", of(&["b"]))).await.unwrap(), "it is there");
    let read = kit.store.webhooks().await.unwrap();
    let expected = Kept {
        version: 1,
        created_at: kit.clock.now(),
        changed_at: kit.clock.now(),
        ..first.clone()
    };
    assert_eq!((read.len(), &read[0]), (1, &expected));
    kit.clock.advance(TTL);
    let next = Kept { webhook: of(&["c"]), ..expected };
    assert!(kit.store.set_webhook(&next).await.unwrap());
    assert!(!kit.store.set_webhook(&next).await.unwrap(), "it has another version by now");
    let read = kit.store.webhooks().await.unwrap();
    assert_eq!((read[0].version, read[0].id), (2, first.id));
    assert_eq!(read[0].changed_at, kit.clock.now());
    assert!(!kit.store.delete_webhook(first.id, 1).await.unwrap(), "it has another version by now");
    assert!(kit.store.delete_webhook(first.id, 2).await.unwrap());
    assert!(!kit.store.delete_webhook(first.id, 2).await.unwrap());
    assert!(!kit.store.set_webhook(&next).await.unwrap(), "it is gone");
    set(kit, "w", of(&["d"])).await;
    let gone = Kept { version: 1, ..next };
    assert!(!kit.store.set_webhook(&gone).await.unwrap(), "this is another of its name");
    assert!(!kit.store.delete_webhook(gone.id, 1).await.unwrap(), "this, too");
    let other = kit.store.webhooks().await.unwrap().remove(0);
    assert!(kit.store.delete_webhook(other.id, other.version).await.unwrap());
    kit.finish(NewJob { id: JobId::new(), ..job("k") }, done()).await;
    assert!(told(kit).await.is_empty());
}

async fn the_book_of_alerts_is_written_by_one_at_a_time(kit: &Kit) {
    assert_eq!(kit.store.alert_book().await.unwrap(), (0, Book::default()));
    let seen = [Alert {
        alert: AlertKind::NoWorker,
        queue: Some("q".into()),
        kind: Some("k".into()),
        value: 1.5,
        threshold: 1.0,
        since: Some(kit.clock.now()),
    }];
    let (mut one, other) = (Book::default(), Book::default());
    let now = kit.clock.now();
    assert!(one.look(Look { from: now, until: now, seen: &seen, holding: &seen }));
    assert!(!kit.store.set_alert_book(1, &one).await.unwrap(), "there is none yet");
    assert!(kit.store.set_alert_book(0, &one).await.unwrap());
    assert!(!kit.store.set_alert_book(0, &other).await.unwrap(), "there is one by now");
    assert_eq!(kit.store.alert_book().await.unwrap(), (1, one));
    assert!(kit.store.set_alert_book(1, &other).await.unwrap());
    assert_eq!(kit.store.alert_book().await.unwrap(), (2, other));
}
