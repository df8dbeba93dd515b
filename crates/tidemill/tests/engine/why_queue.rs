//! Why a queue is deep: the clock, lines, slots and first bursts, each named, and no end told that cannot be.

use std::sync::Arc;
use std::time::Duration;

use tidemill::core::why::Holder;
use tidemill::{Enqueue, Fail, JobId, OnDead, Retry, Running, State, Tidemill, Worker};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    jobs_that_wait_for_the_clock_are_told_from_those_that_could_start,
    jobs_behind_their_line_are_named_and_a_dead_one_that_blocks_it,
    slots_that_are_taken_are_named,
    slots_of_another_queue_are_not_those_of_this_one,
    shared_slots_that_another_queue_has_taken_are_named,
    the_first_burst_counts_and_is_over_when_it_is_over,
);

const MINUTE: Duration = Duration::from_mins(1);

fn echo(text: &str) -> Enqueue {
    Enqueue::from(Echo::new(text)).queue("q")
}

async fn worker(mill: &Tidemill, go: &Arc<Semaphore>, slots: usize, queues: &[&str]) -> Running {
    let worker = mill.worker().queues(queues.iter().copied()).slots(slots);
    handle(worker, go).start().await.unwrap()
}

/// Jobs that `stay` do so until `go` has a permit; those that are `bad` die.
fn handle(worker: Worker, go: &Arc<Semaphore>) -> Worker {
    let go = Arc::clone(go);
    let handler = move |echo: Echo, _| {
        let go = Arc::clone(&go);
        async move {
            match echo.text.as_str() {
                "stay" => go.acquire().await.map_err(|_| Fail::permanent("closed"))?.forget(),
                "bad" => return Err(Fail::permanent("bad")),
                _ => {}
            }
            Ok(echo.text)
        }
    };
    worker.handle(handler)
}

async fn runs(mill: &Tidemill, id: JobId) {
    eventually("it to run", SOON, async || {
        (mill.job(id).await.unwrap().unwrap().state == State::Running).then_some(())
    })
    .await;
}

async fn jobs_that_wait_for_the_clock_are_told_from_those_that_could_start(kit: Kit) {
    let mill = kit.open_still().await;
    let now = mill.store().now().await.unwrap();
    let delayed = |n: u32| echo("x").delay(n * MINUTE);
    mill.enqueue_many((1..=4).map(delayed)).await.unwrap();
    mill.enqueue(delayed(5).tenant("acme")).await.unwrap();
    kit.advance(Duration::from_secs(1));
    let why = mill.why_queue("q").await.unwrap();
    let clock = |jobs, all, next| {
        let (next_at, last_at) = (now + next * MINUTE, now + 5 * MINUTE);
        Holder::Clock { jobs, all, next_at, last_at }
    };
    assert_eq!(why.holders, [Holder::NoWorker, clock(5, true, 1)], "{why}");
    assert_eq!(why.drains_in_ms, None);
    let said = why.to_string();
    let ends = format!("; not empty before {:.0}", now + 5 * MINUTE);
    assert!(said.contains("all 5 wait for the clock") && said.ends_with(&ends), "{said}");
    kit.advance(MINUTE);
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, [Holder::NoWorker, clock(4, false, 2)], "one is due: {why}");
    assert!(why.to_string().ends_with("drains never at this rate"), "nobody takes it: {why}");
    kit.advance(5 * MINUTE);
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, [Holder::NoWorker], "all are due: {why}");
}

async fn jobs_behind_their_line_are_named_and_a_dead_one_that_blocks_it(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let worker = worker(&mill, &go, 4, &["q"]).await;
    let ordered = |text: &str, key: &str| {
        echo(text)
            .key(key)
            .ordered(OnDead::Block)
            .retry(Retry { attempts_max: 1, ..Retry::default() })
    };
    let head = mill.enqueue(ordered("stay", "a")).await.unwrap().id();
    runs(&mill, head).await;
    let bad = mill.enqueue(ordered("bad", "a")).await.unwrap().id();
    let after = mill.enqueue(ordered("x", "a")).await.unwrap().id();
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!((why.depth, &*why.holders), (2, &[Holder::Lines { jobs: 2 }][..]), "{why}");
    go.add_permits(1);
    assert_eq!(mill.wait(bad, SOON).await.unwrap().state, State::Dead);
    let dead = Holder::DeadLines { lines: 1, key: "a".into(), head: bad };
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, [Holder::Lines { jobs: 1 }, dead.clone()], "{why}");
    assert_eq!(why.drains_in_ms, None);
    assert!(why.to_string().ends_with("never while a dead job blocks its line"), "{why}");
    // A line that goes on is beside it, and one whose dead has nobody behind it.
    let other = mill.enqueue(ordered("stay", "b")).await.unwrap().id();
    runs(&mill, other).await;
    mill.enqueue(ordered("x", "b")).await.unwrap();
    let alone = mill.enqueue(ordered("bad", "c")).await.unwrap().id();
    assert_eq!(mill.wait(alone, SOON).await.unwrap().state, State::Dead);
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, [Holder::Lines { jobs: 2 }, dead], "{why}");
    go.add_permits(1);
    mill.dead().triage(&[bad], tidemill::Triage::Abandoned, "ada", "never mind").await.unwrap();
    mill.result::<Echo>(after, SOON).await.unwrap();
    eventually("all to be over", SOON, async || {
        mill.why_queue("q").await.unwrap().holders.is_empty().then_some(())
    })
    .await;
    worker.stop().await;
}

async fn slots_that_are_taken_are_named(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let worker = worker(&mill, &go, 2, &["q", "other"]).await;
    let first = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, first).await;
    // What waits for a moment while a slot is free is not held by slots.
    mill.enqueue(echo("x").delay(60 * MINUTE)).await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    assert!(matches!(&*why.holders, [Holder::Clock { jobs: 1, all: true, .. }]), "{why}");
    let second = mill.enqueue(echo("stay").queue("other")).await.unwrap().id();
    runs(&mill, second).await;
    mill.enqueue(echo("stay")).await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    let [busy, Holder::Clock { all: false, .. }] = &*why.holders else { panic!("{why}") };
    assert_eq!(*busy, Holder::Busy { workers: 1, slots: 2 });
    assert!(why.to_string().contains("all 2 slots of its one worker are taken"), "{why}");
    // A job of a kind that nobody knows does not wait for a slot.
    mill.enqueue(Enqueue::raw("strange", "{}").queue("q")).await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    let unknown = Holder::KindUnknown { kinds: vec!["strange".into()] };
    assert_eq!(why.holders[..2], [unknown, busy.clone()], "{why}");
    go.add_permits(3);
    eventually("a slot to be free", SOON, async || {
        let why = mill.why_queue("q").await.unwrap();
        (!why.holders.contains(busy)).then_some(())
    })
    .await;
    worker.stop().await;
}

async fn slots_of_another_queue_are_not_those_of_this_one(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let worker = mill.worker().queues(["q"]).slots(1).dedicated("vip", 1);
    let worker = handle(worker, &go).start().await.unwrap();
    let first = mill.enqueue(echo("stay")).await.unwrap().id();
    runs(&mill, first).await;
    mill.enqueue(echo("stay")).await.unwrap();
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, [Holder::Busy { workers: 1, slots: 1 }], "the other is not its: {why}");
    go.add_permits(2);
    worker.stop().await;
}

/// `q` shares one slot with `p` and `vip`, which has one of its own besides; that of `idle` is free, and no help.
async fn shared_slots_that_another_queue_has_taken_are_named(kit: Kit) {
    let (mill, go) = (kit.open().await, Arc::new(Semaphore::new(0)));
    let shared = mill.worker().queues(["p", "q"]).slots(1).dedicated("idle", 1);
    let worker = handle(shared.dedicated_with_overflow("vip", 1), &go).start().await.unwrap();
    let stay = async |queue: &str| {
        let job = Enqueue::from(Echo::new("stay")).queue(queue);
        mill.enqueue(job).await.unwrap().id()
    };
    let of_q = [Holder::Busy { workers: 1, slots: 1 }];
    runs(&mill, stay("p").await).await;
    let waits = stay("q").await;
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, of_q, "p has it: {why}");
    go.add_permits(2);
    mill.result::<Echo>(waits, SOON).await.unwrap();

    for _ in 0..2 {
        runs(&mill, stay("vip").await).await;
    }
    let waits = stay("q").await;
    let why = mill.why_queue("q").await.unwrap();
    assert_eq!(why.holders, of_q, "vip has it: {why}");
    // Whichever ends, the other one is in vip's own slot from now on.
    go.add_permits(1);
    runs(&mill, waits).await;
    stay("vip").await;
    let why = mill.why_queue("vip").await.unwrap();
    assert_eq!(why.holders, [Holder::Busy { workers: 1, slots: 2 }], "q has the other: {why}");
    go.add_permits(3);
    worker.stop().await;
}

async fn the_first_burst_counts_and_is_over_when_it_is_over(kit: Kit) {
    let mill = kit.open_still().await;
    mill.enqueue_many((0..100).map(|_| echo("x"))).await.unwrap();
    mill.depth("q").await.unwrap();
    kit.advance(Duration::from_secs(10));
    let why = mill.why_queue("q").await.unwrap();
    let rates = why.rates.expect("its first jobs are known");
    assert!((rates.in_per_s - 10.0).abs() < 0.01 && rates.out_per_s == 0.0, "{why}");
    kit.advance(10 * MINUTE);
    let why = mill.why_queue("q").await.unwrap();
    let rates = why.rates.expect("nothing has happened");
    assert_eq!((why.depth, rates.in_per_s), (100, 0.0), "{why}");
}
