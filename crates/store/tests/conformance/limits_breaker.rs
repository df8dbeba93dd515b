//! Breakers: what fails too much is spared, and comes back by a probe that somebody lives to report.

use tidemill_core::gate::{Breaker, Counts, Per, QueueLimit};
use tidemill_core::{ErrorClass, Failure, NewJob, Settlement, WorkerId};
use tidemill_store::request::GateEnd;
use tidemill_store::{Claim, Hint};
use tidemill_testkit::eventually::eventually;
use tokio::sync::broadcast::Receiver;

use super::kit::{HOUR, Kit, SECOND, cancelled, done, hears, item, job};
use super::limits::{by_key, fill, limit, of_key, take, take_soon};

over_both_stores!(
    too_many_failures_shut_the_gate_until_a_probe_succeeds,
    a_probe_that_is_lost_is_followed_by_another,
    each_key_has_a_breaker_of_its_own,
    only_its_probe_opens_or_shuts_a_gate,
    no_other_probe_goes_while_one_is_out,
    a_probe_that_says_nothing_is_followed_by_another,
    what_comes_too_late_trips_no_breaker,
    a_pause_that_was_asked_for_outlasts_the_breaker,
);

const BREAKER: Breaker =
    Breaker { failures_percent: 50, window_ms: 10_000, attempts_min: 4, open_ms: 60_000 };

fn breaks(per: Per) -> QueueLimit {
    QueueLimit {
        breaker: Some(BREAKER),
        kind: Some("k".into()),
        ..limit("default/\u{1c}bank", Counts::Per(per))
    }
}

fn fails() -> Settlement {
    let failure = Failure::new("k", ErrorClass::Transient, "no answer");
    Settlement::Again { delay: HOUR, spent: 1, failure: Some(failure) }
}

/// Settles a job; answers where its judgement is heard of.
async fn settle(
    kit: &Kit,
    worker: WorkerId,
    claim: &Claim,
    at: usize,
    how: Settlement,
) -> Receiver<Hint> {
    let mut ended = item(claim, at, how);
    ended.gates[0] = GateEnd { breaker: Some(BREAKER), ..ended.gates[0].clone() };
    let heard = kit.store.wake().listen();
    kit.store.settle(worker, vec![ended]).await.unwrap();
    heard
}

/// Waits until those who are held are told that somebody came out.
async fn judged(mut heard: Receiver<Hint>) {
    hears(&mut heard, |hint| matches!(hint, Hint::Ready { .. })).await;
}

/// Waits until nothing of this kind is let pass: a settle is judged right after it.
async fn shut(kit: &Kit, worker: WorkerId, limits: &[QueueLimit]) {
    for _ in 0..1000 {
        if take(kit, worker, limits, 1).await.jobs.is_empty() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the gate is open");
}

/// Lets a second pass after the other until something is let pass, at most a hundred.
async fn probe(kit: &Kit, worker: WorkerId, limits: &[QueueLimit]) -> Claim {
    for _ in 0..100 {
        let probe = take(kit, worker, limits, 10).await;
        if !probe.jobs.is_empty() {
            return probe;
        }
        kit.clock.advance(SECOND);
    }
    panic!("nobody probes");
}

async fn too_many_failures_shut_the_gate_until_a_probe_succeeds(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::All)]);
    fill(kit, &job("k"), 2000).await;
    let claim = take(kit, worker, &limits, 10).await;
    assert_eq!(claim.jobs.len(), 10);
    for at in 0..3 {
        settle(kit, worker, &claim, at, fails()).await;
    }
    assert_eq!(take(kit, worker, &limits, 1).await.jobs.len(), 1, "three say nothing yet");
    settle(kit, worker, &claim, 3, fails()).await;
    shut(kit, worker, &limits).await;
    let is_shut = async || take(kit, worker, &limits, 1).await.jobs.is_empty();
    assert!(is_shut().await);
    // Now that some are held, whoever comes out tells; by then it is judged.
    judged(settle(kit, worker, &claim, 4, done()).await).await;
    kit.clock.advance(59 * SECOND);
    assert!(is_shut().await, "what began before says nothing new");
    kit.clock.advance(SECOND);
    let first = take(kit, worker, &limits, 10).await;
    assert_eq!(first.jobs.len(), 1, "a probe");
    assert!(is_shut().await, "and no other meanwhile");
    judged(settle(kit, worker, &first, 0, fails()).await).await;
    assert!(is_shut().await);
    let second = probe(kit, worker, &limits).await;
    assert_eq!(second.jobs.len(), 1);
    settle(kit, worker, &second, 0, done()).await;
    let mut closed = take_soon(kit, worker, &limits, 50).await.jobs.len();
    while closed < 50 {
        closed += take_soon(kit, worker, &limits, 50).await.jobs.len();
    }
}

async fn a_probe_that_is_lost_is_followed_by_another(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::All)]);
    fill(kit, &job("k"), 2000).await;
    let claim = take(kit, worker, &limits, 4).await;
    for at in 0..4 {
        settle(kit, worker, &claim, at, fails()).await;
    }
    shut(kit, worker, &limits).await;
    let lost = probe(kit, worker, &limits).await;
    assert_eq!(lost.jobs.len(), 1, "a probe");
    kit.lose_workers().await;
    let next = kit.worker().await;
    let again = probe(kit, next, &limits).await;
    assert_eq!(again.jobs.len(), 1, "another probe, and no more");
    assert!(take(kit, next, &limits, 10).await.jobs.is_empty());
    settle(kit, next, &again, 0, done()).await;
    let mut closed = take_soon(kit, next, &limits, 50).await.jobs.len();
    while closed < 50 {
        closed += take_soon(kit, next, &limits, 50).await.jobs.len();
    }
}

async fn each_key_has_a_breaker_of_its_own(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::Key)]);
    let of = |key: &str| NewJob { kind: "k".into(), ..of_key(key) };
    fill(kit, &of("dying"), 4).await;
    let claim = take(kit, worker, &limits, 4).await;
    for at in 0..4 {
        settle(kit, worker, &claim, at, fails()).await;
    }
    fill(kit, &of("dying"), 2000).await;
    shut(kit, worker, &limits).await;
    fill(kit, &of("well"), 5).await;
    let others = take_soon(kit, worker, &limits, 10).await;
    assert_eq!(by_key(&others).into_iter().collect::<Vec<_>>(), [("well".to_owned(), 5)]);
    let probe = probe(kit, worker, &limits).await;
    assert_eq!(by_key(&probe).into_iter().collect::<Vec<_>>(), [("dying".to_owned(), 1)]);
}

/// A gate that is shut after four failures, while one that began before still runs: the claim, and where it is.
async fn tripped(kit: &Kit, worker: WorkerId, limits: &[QueueLimit]) -> (Claim, usize) {
    fill(kit, &job("k"), 2000).await;
    let claim = take(kit, worker, limits, 6).await;
    for at in 0..4 {
        settle(kit, worker, &claim, at, fails()).await;
    }
    shut(kit, worker, limits).await;
    (claim, 4)
}

async fn only_its_probe_opens_or_shuts_a_gate(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::All)]);
    let (old, at) = tripped(kit, worker, &limits).await;
    let first = probe(kit, worker, &limits).await;
    assert_eq!(first.jobs.len(), 1, "a probe");
    judged(settle(kit, worker, &old, at, done()).await).await;
    assert!(
        take(kit, worker, &limits, 9).await.jobs.is_empty(),
        "it began before the gate was shut"
    );
    judged(settle(kit, worker, &old, at + 1, fails()).await).await;
    settle(kit, worker, &first, 0, done()).await;
    assert!(take_soon(kit, worker, &limits, 9).await.jobs.len() > 1, "the probe decides");
}

async fn no_other_probe_goes_while_one_is_out(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::All)]);
    tripped(kit, worker, &limits).await;
    let first = probe(kit, worker, &limits).await;
    kit.clock.advance(10 * HOUR);
    kit.store.beat(worker).await.unwrap();
    assert!(take(kit, worker, &limits, 9).await.jobs.is_empty(), "however long it takes");
    judged(settle(kit, worker, &first, 0, fails()).await).await;
    assert_eq!(probe(kit, worker, &limits).await.jobs.len(), 1);
}

async fn a_probe_that_says_nothing_is_followed_by_another(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [breaks(Per::All)]);
    tripped(kit, worker, &limits).await;
    let first = probe(kit, worker, &limits).await;
    settle(kit, worker, &first, 0, cancelled("not wanted")).await;
    let second = take_soon(kit, worker, &limits, 9).await;
    assert_eq!(second.jobs.len(), 1, "one, and no more");
    settle(kit, worker, &second, 0, done()).await;
    assert!(take_soon(kit, worker, &limits, 9).await.jobs.len() > 1);
}

async fn a_pause_that_was_asked_for_outlasts_the_breaker(kit: &Kit) {
    let worker = kit.worker().await;
    let limits = [QueueLimit { hold: true, ..breaks(Per::All) }];
    fill(kit, &job("k"), 2000).await;
    let claim = take(kit, worker, &limits, 6).await;
    let mut asks = item(&claim, 5, fails());
    asks.gates[0].shut_for = Some(HOUR);
    kit.store.settle(worker, vec![asks]).await.unwrap();
    for at in 0..4 {
        settle(kit, worker, &claim, at, fails()).await;
    }
    // The pause shuts it at once; the breaker is judged right after.
    let gate = [limits[0].gate.clone()];
    let is_broken = async || kit.store.gates(&gate).await.unwrap()[0].is_broken.then_some(());
    eventually("the breaker to trip", HOUR, is_broken).await;
    kit.clock.advance(3599 * SECOND);
    kit.store.beat(worker).await.unwrap();
    assert!(take(kit, worker, &limits, 9).await.jobs.is_empty(), "the longest counts");
    kit.clock.advance(SECOND);
    assert_eq!(probe(kit, worker, &limits).await.jobs.len(), 1);
}

async fn what_comes_too_late_trips_no_breaker(kit: &Kit) {
    let limits = [QueueLimit { concurrency: Some(5), ..breaks(Per::All) }];
    fill(kit, &job("k"), 20).await;
    let (lost, worker) = (kit.worker().await, kit.worker().await);
    let stale = take(kit, lost, &limits, 4).await;
    kit.store.deregister(lost).await.unwrap();
    let mut claim = take_soon(kit, worker, &limits, 5).await;
    let mut more = take(kit, worker, &limits, 5).await;
    while !more.jobs.is_empty() {
        claim = more;
        more = take(kit, worker, &limits, 5).await;
    }
    for at in 0..4 {
        settle(kit, lost, &stale, at, fails()).await;
    }
    // Somebody is held, and is told that this one came out; by then all is judged that came before it.
    judged(settle(kit, worker, &claim, 0, done()).await).await;
    let gates = kit.store.gates(&[limits[0].gate.clone()]).await.unwrap();
    assert!(!gates[0].is_broken, "{gates:?}");
}
