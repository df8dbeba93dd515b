//! Bounded queues as producers meet them: refused, kept waiting, diverted; and watermarks that are told.

use std::time::Duration;

use futures::future::join_all;
use tidemill::core::why::{Holder, Trend};
use tidemill::store::Error as StoreError;
use tidemill::{
    Enqueue, Error, Flow, JobId, Limit, Overflow, Per, Receipt, State, Tidemill, testing,
};
use tidemill_testkit::eventually::eventually;
use tokio::time::timeout;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_refusal_says_when_to_try_again,
    whoever_waits_goes_on_when_there_is_room,
    room_made_by_another_process_is_heard,
    those_who_wait_are_all_served,
    a_wait_has_an_end,
    a_schedule_fires_into_a_full_queue,
    a_flow_needs_room_for_what_is_first_in_it,
    diverted_jobs_run_from_where_they_are,
    nothing_is_diverted_to_where_it_would_be_refused,
    of_many_at_once_none_is_diverted_to_where_it_would_be_refused,
    dropped_jobs_are_seen_as_cancelled,
    a_watermark_is_told_in_another_process,
    a_producer_pauses_and_goes_on,
    why_a_queue_is_deep,
    bad_rules_of_depth_change_nothing,
);

fn echo(queue: &str) -> Enqueue {
    Enqueue::from(Echo::new("x")).queue(queue)
}

async fn bound(mill: &Tidemill, queue: &str, depth_max: u64, overflow: Overflow) {
    let change = |rules: &mut tidemill::QueueRules| {
        rules.depth_max = Some(depth_max);
        rules.overflow = overflow.clone();
    };
    mill.change_queue(queue, change).await.unwrap();
}

fn is_full(error: &Error) -> bool {
    matches!(error, Error::Store(StoreError::QueueFull(_)))
}

async fn drain_one(mill: &Tidemill, queue: &str) {
    let worker = tidemill::WorkerId::new();
    let (id, queues, kinds) = (worker, vec![queue.to_owned()], Vec::new());
    let card = tidemill::store::WorkerCard {
        id,
        name: "w".into(),
        queues,
        kinds,
        slots: 1,
        slots_of: std::collections::BTreeMap::new(),
        lease_ttl: None,
    };
    mill.store().register(card).await.unwrap();
    let lanes = tidemill::Priority::ALL
        .map(|priority| tidemill::store::Lane { queue: queue.to_owned(), priority })
        .into();
    let share = tidemill::store::Share::default();
    let ask = tidemill::store::ClaimRequest {
        worker,
        lanes,
        share,
        limits: std::sync::Arc::default(),
        edition: None,
        kinds: None,
        jobs_max: 1,
        stand: None,
    };
    assert_eq!(mill.store().claim(ask).await.unwrap().jobs.len(), 1);
}

async fn a_refusal_says_when_to_try_again(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 1, Overflow::Reject).await;
    mill.enqueue(echo("q")).await.unwrap();
    let error = mill.enqueue(echo("q")).await.unwrap_err();
    assert_eq!(error.code(), "queue_full");
    let after = error.retry_after().unwrap();
    assert!(after >= Duration::from_secs(1) && after <= Duration::from_mins(1), "{after:?}");
    let error = mill.enqueue_many([echo("q"), echo("q")]).await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), ("queue_full", None), "it never fits");
    assert_eq!((mill.counts().enqueued, mill.counts().refused), (1, 3));
}

async fn whoever_waits_goes_on_when_there_is_room(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 1, Overflow::Wait { wait_ms: 60_000 }).await;
    mill.enqueue(echo("q")).await.unwrap();
    let mut waiting = Box::pin(mill.enqueue(echo("q")));
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "there is no room");
    drain_one(&mill, "q").await;
    timeout(SOON, waiting).await.expect("it is woken").unwrap();
    assert_eq!(mill.depth("q").await.unwrap().depth(), 1);
}

async fn room_made_by_another_process_is_heard(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    bound(&other, "q", 1, Overflow::Wait { wait_ms: 60_000 }).await;
    mill.enqueue(echo("q")).await.unwrap();
    let mut waiting = Box::pin(mill.enqueue(echo("q")));
    assert!(timeout(Duration::from_millis(50), &mut waiting).await.is_err(), "there is no room");
    drain_one(&other, "q").await;
    timeout(SOON, waiting).await.expect("it is woken").unwrap();
}

async fn those_who_wait_are_all_served(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 3, Overflow::Wait { wait_ms: 60_000 }).await;
    let worker = mill.worker().handle(|echo: Echo, _| async move { Ok(echo.text) }).queues(["q"]);
    let running = worker.slots(2).start().await.unwrap();
    let calls = (0..40).map(|_| mill.enqueue(echo("q")));
    let answers = timeout(2 * SOON, join_all(calls)).await.expect("nobody waits for ever");
    assert!(answers.iter().all(Result::is_ok));
    eventually("all to be done", SOON, async || (mill.counts().done == 40).then_some(())).await;
    assert_eq!(mill.depth("q").await.unwrap().depth(), 0);
    running.stop().await;
}

async fn a_wait_has_an_end(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 1, Overflow::Wait { wait_ms: 30 }).await;
    mill.enqueue(echo("q")).await.unwrap();
    let calls = (0..3).map(|_| mill.enqueue(echo("q")));
    let answers = timeout(SOON, join_all(calls)).await.expect("they do not wait for ever");
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(is_full)));
}

async fn a_flow_needs_room_for_what_is_first_in_it(kit: Kit) {
    let mill = kit.open().await;
    let flow = || {
        let parts = Flow::new("f").fan_out("parts", (0..2).map(|_| echo("mail")));
        parts.then("sum", echo("other"))
    };
    bound(&mill, "mail", 3, Overflow::Reject).await;
    bound(&mill, "other", 1, Overflow::Reject).await;
    mill.enqueue(echo("other")).await.unwrap();
    let sent = flow();
    let id = mill.start(sent.clone()).await.unwrap();
    let full = mill.start(flow()).await.unwrap_err();
    let Error::Store(StoreError::QueueFull(full)) = full else { panic!("{full}") };
    assert_eq!((&*full.queue, full.depth, full.depth_max, full.jobs), ("mail", 2, 3, 2));
    let flows = mill.flows(&tidemill::FlowFilter { limit: 9, ..Default::default() }).await.unwrap();
    assert_eq!(flows.len(), 1, "nothing of it is written");
    mill.enqueue(echo("mail")).await.unwrap();
    assert_eq!(mill.start(sent).await.unwrap(), id, "sent again, it needs no room");
    for overflow in [Overflow::Divert { queue: "spill".into() }, Overflow::Reject] {
        bound(&mill, "mail", 3, overflow).await;
        assert!(is_full(&mill.start(flow()).await.unwrap_err()));
    }
    bound(&mill, "mail", 3, Overflow::Wait { wait_ms: 60_000 }).await;
    let room = async {
        drain_one(&mill, "mail").await;
        drain_one(&mill, "mail").await;
    };
    let (started, ()) =
        timeout(SOON, async { tokio::join!(mill.start(flow()), room) }).await.unwrap();
    started.unwrap();
    bound(&mill, "mail", 3, Overflow::Wait { wait_ms: 1 }).await;
    assert!(is_full(&mill.start(flow()).await.unwrap_err()), "a wait has an end");
    bound(&mill, "mail", 3, Overflow::DropOldest).await;
    mill.start(flow()).await.unwrap();
    assert_eq!(mill.depth("mail").await.unwrap().depth(), 5);
    mill.enqueue(echo("mail")).await.unwrap();
    assert_eq!(mill.depth("mail").await.unwrap().depth(), 3, "what was too much is dropped");
    mill.close().await;
}

async fn a_schedule_fires_into_a_full_queue(kit: Kit) {
    let mill = kit.open_still().await;
    bound(&mill, "q", 1, Overflow::Reject).await;
    mill.enqueue(echo("q")).await.unwrap();
    let schedule = tidemill::Schedule::every("tick", Duration::from_mins(1), echo("q"));
    mill.schedules().set(schedule).await.unwrap();
    kit.advance(Duration::from_mins(2));
    testing::tend(&mill).await.unwrap();
    assert!(mill.depth("q").await.unwrap().depth() >= 2, "what the system writes is not refused");
    assert!(is_full(&mill.enqueue(echo("q")).await.unwrap_err()));
}

async fn diverted_jobs_run_from_where_they_are(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 1, Overflow::Divert { queue: "spill".into() }).await;
    assert!(matches!(mill.enqueue(echo("q")).await.unwrap(), Receipt::Enqueued { .. }));
    let given = echo("q").id(JobId::new());
    let receipt = mill.enqueue(given.clone()).await.unwrap();
    let (diverted, queue) = (receipt.id(), "spill".to_owned());
    assert_eq!(receipt, Receipt::Diverted { id: diverted, queue });
    assert_eq!(mill.job(diverted).await.unwrap().unwrap().job.queue, "spill");
    assert_eq!(mill.enqueue(given).await.unwrap(), receipt, "sent again, it is where it was");
    let many = mill.enqueue_many([echo("q"), echo("other")]).await.unwrap();
    assert!(matches!(&many[0], Receipt::Diverted { queue, .. } if queue == "spill"), "{many:?}");
    assert!(matches!(many[1], Receipt::Enqueued { .. }), "{many:?}");
    let worker = mill.worker().handle(|echo: Echo, _| async move { Ok(echo.text) });
    let running = worker.queues(["spill"]).start().await.unwrap();
    mill.result::<Echo>(diverted, SOON).await.unwrap();
    running.stop().await;
}

async fn nothing_is_diverted_to_where_it_would_be_refused(kit: Kit) {
    let mill = kit.open().await;
    let per = |per| Limit { per, concurrency: Some(1), ..Limit::default() };
    mill.set_limit("spill", "each", Some(per(Per::Key))).await.unwrap();
    bound(&mill, "q", 2, Overflow::Divert { queue: "spill".into() }).await;
    mill.enqueue(echo("q")).await.expect("there is room, and nobody asks for a key here");
    let told = mill.enqueue_many([echo("q").key("a"), echo("q")]).await.unwrap_err();
    let direct = mill.enqueue(echo("spill")).await.unwrap_err();
    assert_eq!((told.code(), direct.code()), ("key_missing", "key_missing"), "{told}");
    let said = told.to_string();
    let begins = "the queue \"q\" is full and would divert it to \"spill\", where ";
    assert_eq!(said.strip_prefix(begins), Some(&*direct.to_string()), "{said}");
    mill.enqueue(echo("q")).await.expect("there is room for one");
    assert_eq!(mill.enqueue(echo("q")).await.unwrap_err().code(), "key_missing");
    assert_eq!(mill.depth("spill").await.unwrap().depth(), 0, "nothing got in");
    let receipt = mill.enqueue(echo("q").key("a")).await.unwrap();
    assert!(matches!(receipt, Receipt::Diverted { .. }), "{receipt:?}");
    // Full itself, the other one is named beside the first.
    bound(&mill, "spill", 1, Overflow::Reject).await;
    let error = mill.enqueue(echo("q").key("a")).await.unwrap_err();
    let said = error.to_string();
    assert!(is_full(&error), "{said}");
    assert!(said.contains("the queue \"q\" is full and diverts to \"spill\""), "{said}");
}

async fn of_many_at_once_none_is_diverted_to_where_it_would_be_refused(kit: Kit) {
    let mill = kit.open().await;
    let each = Limit { per: Per::Key, concurrency: Some(1), ..Limit::default() };
    mill.set_limit("spill", "each", Some(each)).await.unwrap();
    bound(&mill, "q", 2, Overflow::Divert { queue: "spill".into() }).await;
    // All of them look before any of them is written.
    let answers = join_all((0..20).map(|_| mill.enqueue(echo("q")))).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    assert!(refused.iter().all(|error| error.code() == "key_missing"));
    assert_eq!(refused.len(), 18);
    assert_eq!(mill.depth("spill").await.unwrap().depth(), 0, "nothing got in");
}

async fn dropped_jobs_are_seen_as_cancelled(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 1, Overflow::DropOldest).await;
    let first = mill.enqueue(echo("q")).await.unwrap().id();
    let second = mill.enqueue(echo("q")).await.unwrap().id();
    let first = mill.wait(first, SOON).await.unwrap();
    assert_eq!(first.state, State::Cancelled);
    assert!(first.error.unwrap().starts_with("dropped: the queue was full"));
    assert_eq!(mill.job(second).await.unwrap().unwrap().state, State::Ready);
}

async fn a_watermark_is_told_in_another_process(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    bound(&mill, "q", 5, Overflow::Reject).await;
    let mut told = other.watermarks();
    let seen = |crossed: tidemill::Watermark| (crossed.queue, crossed.is_above, crossed.depth);
    mill.enqueue_many((0..4).map(|_| echo("q"))).await.unwrap();
    mill.depth("q").await.unwrap();
    let crossed = timeout(SOON, told.next()).await.expect("it is told").unwrap();
    assert_eq!(seen(crossed), ("q".into(), true, 4));
    for _ in 0..2 {
        drain_one(&mill, "q").await;
    }
    mill.depth("q").await.unwrap();
    let crossed = timeout(SOON, told.next()).await.expect("it is told").unwrap();
    assert_eq!(seen(crossed), ("q".into(), false, 2));
    mill.enqueue_many((0..2).map(|_| echo("q"))).await.unwrap();
    mill.depth("q").await.unwrap();
    let mut late = other.watermarks();
    let crossed = timeout(SOON, late.next()).await.expect("it is told").unwrap();
    assert_eq!(seen(crossed), ("q".into(), true, 4), "who comes later hears what is above already");
}

async fn a_producer_pauses_and_goes_on(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    bound(&mill, "q", 5, Overflow::Reject).await;
    assert!(!mill.is_above("q").await.unwrap());
    assert!(mill.until_below("q", Duration::ZERO).await.unwrap(), "at once");
    mill.enqueue_many((0..4).map(|_| echo("q"))).await.unwrap();
    assert!(mill.is_above("q").await.unwrap());
    assert!(!mill.until_below("q", Duration::from_millis(1)).await.unwrap());
    let going_on = async { mill.until_below("q", SOON).await.unwrap() };
    let draining = async {
        for _ in 0..2 {
            drain_one(&other, "q").await;
        }
    };
    let (goes_on, ()) = tokio::join!(going_on, draining);
    assert!(goes_on);
}

async fn why_a_queue_is_deep(kit: Kit) {
    let mill = kit.open_still().await;
    bound(&mill, "q", 100, Overflow::Reject).await;
    mill.enqueue(echo("q").tenant("acme")).await.unwrap();
    let rates = mill.why_queue("q").await.unwrap().rates.expect("of its first second");
    assert_eq!((rates.in_per_s, rates.out_per_s), (1.0, 0.0));
    kit.advance(Duration::from_secs(30));
    mill.enqueue_many((0..60).map(|_| echo("q"))).await.unwrap();
    for _ in 0..15 {
        drain_one(&mill, "q").await;
    }
    mill.pause("q").await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!((why.depth, why.depth_max, why.trend), (46, Some(100), Some(Trend::Growing)));
    assert_eq!(why.holders, [Holder::Paused { rule: "q".into() }], "workers take from it");
    let said = why.to_string();
    assert!(said.starts_with("depth 46 of 100; in 2.0/s, out 0.5/s; growing; "), "{said}");
    assert!(said.ends_with("drains never at this rate"), "{said}");
    // Much has left, little came: while it rests, it drains never all the same.
    mill.resume("q").await.unwrap();
    kit.advance(Duration::from_mins(2));
    mill.why_queue("q").await.unwrap();
    for _ in 0..20 {
        drain_one(&mill, "q").await;
    }
    kit.advance(Duration::from_secs(10));
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!((why.depth, why.trend), (26, Some(Trend::Shrinking)));
    // Each job that was taken keeps the slot of its worker; those of two minutes ago have been silent since.
    assert_eq!(why.holders, [Holder::Busy { workers: 20, slots: 20 }], "{why}");
    assert!(why.drains_in_ms.is_some(), "{why}");
    mill.pause("q").await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!((why.drains_in_ms, why.trend), (None, Some(Trend::Shrinking)), "{why}");
    assert!(why.to_string().ends_with("drains never at this rate"), "{why}");
    let empty = mill.why_queue("unheard of").await.unwrap();
    assert_eq!(empty.to_string(), "depth 0; no live worker takes from it; empty");
}

async fn bad_rules_of_depth_change_nothing(kit: Kit) {
    let mill = kit.open().await;
    bound(&mill, "q", 7, Overflow::Reject).await;
    let to_itself = Overflow::Divert { queue: "q".into() };
    let changes: [fn(&mut tidemill::QueueRules); 4] = [
        |rules| rules.depth_max = Some(0),
        |rules| rules.overflow = Overflow::Wait { wait_ms: 0 },
        |rules| (rules.high_water, rules.low_water) = (Some(3), Some(4)),
        |rules| rules.overflow = Overflow::Divert { queue: "*".into() },
    ];
    for change in changes {
        let error = mill.change_queue("q", change).await.unwrap_err();
        assert_eq!(error.code(), "rule_invalid");
    }
    let itself = |rules: &mut tidemill::QueueRules| rules.overflow = to_itself.clone();
    let error = mill.change_queue("q", itself).await.unwrap_err();
    assert!(error.to_string().contains("to itself"), "{error}");
    assert_eq!(mill.queue_rules("q").await.unwrap().depth_max, Some(7));
}

/// Time goes on by itself here, which a server at the other end of a socket would not understand.
#[tokio::test(start_paused = true)]
async fn a_new_rule_to_wait_is_followed_by_a_slow_producer() {
    let kit = Kit::sqlite();
    let (producer, operator) = (kit.open().await, kit.open().await);
    bound(&operator, "q", 1, Overflow::Reject).await;
    producer.enqueue(echo("q")).await.unwrap();
    for (pause_s, wait_s) in [(0, 0), (2, 20), (5, 30), (9, 40)] {
        if wait_s > 0 {
            bound(&operator, "q", 1, Overflow::Wait { wait_ms: wait_s * 1000 }).await;
        }
        tokio::time::advance(Duration::from_secs(pause_s)).await;
        let start = tokio::time::Instant::now();
        assert!(is_full(&producer.enqueue(echo("q")).await.unwrap_err()));
        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(wait_s), "{waited:?} of {wait_s} s");
        bound(&operator, "q", 1, Overflow::Reject).await;
    }
}
