//! What gates remember: no longer than the rules that they are of, and no further ahead than these reach.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::gate::{Breaker, Limit, PART, Per, Rate};
use tidemill_core::{ErrorClass, Failure, NewJob, QueueRules, Settlement, WorkerId};
use tidemill_store::{Claim, ClaimRequest};
use tidemill_testkit::eventually::eventually;

use super::kit::{HOUR, Kit, SECOND, ask, done, ids, item, job, retry, rules};
use super::limits::fill;

over_both_stores!(
    a_rate_that_is_raised_holds_nobody_back,
    a_rate_that_is_lowered_is_kept,
    a_pause_goes_with_the_rule_that_allows_it,
    a_rate_that_is_raised_asks_for_no_pause,
    a_breaker_goes_with_its_rule,
    a_clock_that_was_wrong_shuts_no_gate_for_long,
    what_a_full_queue_leaves_is_met_again_at_once,
    keys_that_a_rate_has_caught_up_with_are_forgotten,
    a_key_that_came_again_is_forgotten_as_well,
);

const SOON: Duration = Duration::from_secs(20);

fn rate(jobs: u32, per: Duration) -> QueueRules {
    let per_ms = u64::try_from(per.as_millis()).unwrap();
    QueueRules { rate: Some(Rate { jobs, per_ms, burst: 1 }), ..QueueRules::default() }
}

fn named(limit: Limit) -> QueueRules {
    QueueRules { limits: [("bank".to_owned(), limit)].into(), ..QueueRules::default() }
}

async fn set(kit: &Kit, rules: Option<QueueRules>) {
    assert!(kit.store.set_queue("default", rules).await.unwrap());
}

/// Claims by the rules that hold.
async fn take(kit: &Kit, worker: WorkerId, jobs_max: usize) -> Claim {
    let book = kit.store.queue_rules().await.unwrap();
    let (limits, edition) = (Arc::new(book.limits("default")), Some(book.edition()));
    let wish = ClaimRequest { limits, edition, ..ask(worker, "default", jobs_max) };
    kit.store.claim(wish).await.unwrap()
}

async fn a_rate_that_is_raised_holds_nobody_back(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    let limit = |jobs, per_ms| Limit {
        kind: Some("k".into()),
        rate: Some(Rate { jobs, per_ms, burst: 1 }),
        ..Limit::default()
    };
    for (slow, fast) in
        [(rate(1, HOUR), rate(10, SECOND)), (named(limit(1, 3_600_000)), named(limit(10, 1000)))]
    {
        set(kit, Some(slow)).await;
        assert_eq!(take(kit, worker, 9).await.jobs.len(), 1);
        assert_eq!(take(kit, worker, 9).await.jobs.len(), 0);
        set(kit, Some(fast)).await;
        kit.clock.advance(SECOND);
        assert_eq!(take(kit, worker, 9).await.jobs.len(), 1, "as often as it may now");
        kit.clock.advance(SECOND / 10);
        assert_eq!(take(kit, worker, 9).await.jobs.len(), 1);
    }
}

async fn a_rate_that_is_lowered_is_kept(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    set(kit, Some(rate(10, SECOND))).await;
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 1);
    set(kit, Some(rate(1, HOUR))).await;
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 0, "a change is no new start");
    kit.clock.advance(SECOND);
    kit.store.beat(worker).await.unwrap();
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 1);
    kit.clock.advance(SECOND * 10);
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 0);
}

/// A job is told to come back in an hour, and says so.
async fn pause(kit: &Kit, worker: WorkerId) {
    let claim = take(kit, worker, 1).await;
    let failure = Failure::new("k", ErrorClass::RateLimited, "come back");
    let how = Settlement::Again { delay: HOUR, spent: 0, failure: Some(failure) };
    let mut asks = item(&claim, 0, how);
    asks.gates[0].shut_for = Some(HOUR);
    kit.store.settle(worker, vec![asks]).await.unwrap();
    assert!(take(kit, worker, 1).await.jobs.is_empty());
}

async fn a_pause_goes_with_the_rule_that_allows_it(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    let fast = QueueRules { rate: rate(1000, SECOND).rate, ..QueueRules::default() };
    let holds = QueueRules { hold: Some(Per::All), ..fast.clone() };
    set(kit, Some(holds.clone())).await;
    pause(kit, worker).await;
    set(kit, Some(QueueRules { concurrency: Some(100), ..holds.clone() })).await;
    assert!(take(kit, worker, 1).await.jobs.is_empty(), "another change leaves it");
    set(kit, Some(fast)).await;
    kit.clock.advance(SECOND);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1, "nobody may ask for it any more");
    set(kit, Some(holds.clone())).await;
    kit.clock.advance(SECOND);
    pause(kit, worker).await;
    set(kit, None).await;
    set(kit, Some(holds)).await;
    kit.clock.advance(SECOND);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1, "the rule was gone meanwhile");
}

async fn a_rate_that_is_raised_asks_for_no_pause(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    let holds = |rules: QueueRules| QueueRules { hold: Some(Per::All), ..rules };
    set(kit, Some(holds(rate(1, HOUR)))).await;
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1);
    set(kit, Some(holds(rate(1, SECOND)))).await;
    kit.clock.advance(SECOND);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1);
}

async fn a_breaker_goes_with_its_rule(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    let breaker =
        Breaker { failures_percent: 1, window_ms: 10_000, attempts_min: 1, open_ms: 60_000 };
    let plain = Limit { kind: Some("k".into()), concurrency: Some(10), ..Limit::default() };
    let limit = |breaker| named(Limit { breaker, ..plain.clone() });
    set(kit, Some(limit(Some(breaker)))).await;
    let claim = take(kit, worker, 1).await;
    let failure = Failure::new("k", ErrorClass::Transient, "no");
    let how = Settlement::Again { delay: HOUR, spent: 1, failure: Some(failure) };
    let mut fails = item(&claim, 0, how);
    fails.gates[0].breaker = Some(breaker);
    kit.store.settle(worker, vec![fails]).await.unwrap();
    // It is judged right after; to try whether anybody passes would fill the gate meanwhile.
    let gate = [plain.gate("default", "bank")];
    let is_broken = async || kit.store.gates(&gate).await.unwrap()[0].is_broken.then_some(());
    eventually("the breaker to trip", SOON, is_broken).await;
    assert!(take(kit, worker, 1).await.jobs.is_empty());
    set(kit, Some(limit(None))).await;
    let first = take(kit, worker, 3).await.jobs.len();
    let second = take(kit, worker, 3).await.jobs.len();
    assert_eq!(first + second, 6, "no breaker, no probes");
}

async fn a_clock_that_was_wrong_shuts_no_gate_for_long(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 20).await;
    set(kit, Some(rate(1, SECOND))).await;
    let now = kit.clock.now();
    kit.clock.advance(24 * HOUR);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 0);
    kit.clock.set(now);
    kit.store.beat(worker).await.unwrap();
    kit.rescue().await;
    kit.clock.advance(2 * SECOND);
    assert_eq!(take(kit, worker, 1).await.jobs.len(), 1);
}

/// Of how many of these keys the rate of a limit remembers anything.
async fn remembered(kit: &Kit, limit: &Limit, keys: usize) -> usize {
    let gate = limit.gate("default", "bank");
    let names: Vec<_> = (0..keys).map(|key| format!("{gate}{PART}{key}")).collect();
    let gates = kit.store.gates(&names).await.unwrap();
    gates.iter().filter(|gate| gate.tat.is_some()).count()
}

async fn keys_that_a_rate_has_caught_up_with_are_forgotten(kit: &Kit) {
    const KEYS: usize = 1200;
    let worker = kit.worker().await;
    let rate = Some(Rate { jobs: 1, per_ms: 60_000, burst: 1 });
    let limit = Limit { per: Per::Key, rate, ..Limit::default() };
    set(kit, Some(named(limit.clone()))).await;
    let of_key = |key: usize| NewJob { key: Some(key.to_string()), ..job("k") };
    for round in 1..=2 {
        kit.store.enqueue((0..KEYS).map(of_key).collect()).await.unwrap();
        let mut taken = 0;
        loop {
            let claim = take(kit, worker, KEYS).await;
            if claim.jobs.is_empty() {
                break;
            }
            taken += claim.jobs.len();
            let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done()));
            kit.store.settle(worker, items.collect()).await.unwrap();
        }
        assert_eq!(taken, KEYS, "round {round}: one of each key");
        kit.put(of_key(7)).await;
        assert!(take(kit, worker, 9).await.jobs.is_empty(), "round {round}: the rate holds");
        // A store that has not swept yet does so at once.
        kit.neighbour().await.rescue(rules()).await.unwrap();
        assert_eq!(remembered(kit, &limit, KEYS).await, KEYS, "round {round}: not before its time");
        kit.clock.advance(61 * SECOND);
        kit.store.beat(worker).await.unwrap();
        let sweeper = kit.neighbour().await;
        for _ in 0..2 {
            sweeper.rescue(rules()).await.unwrap();
        }
        // But for the one where somebody is held, unless the sweep has let him try.
        assert!(remembered(kit, &limit, KEYS).await <= 1, "round {round}: they are forgotten");
    }
}

/// Jobs that are due since long, of kinds that a worker asks for by name, under a limit on the whole queue.
async fn what_a_full_queue_leaves_is_met_again_at_once(kit: &Kit) {
    let worker = kit.worker().await;
    let mut expected = Vec::new();
    for _ in 0..10 {
        expected.push(kit.put(job("k")).await);
        kit.clock.advance(SECOND / 10);
    }
    kit.clock.advance(6 * SECOND);
    kit.store.beat(worker).await.unwrap();
    set(kit, Some(QueueRules { concurrency: Some(1), ..QueueRules::default() })).await;
    let book = kit.store.queue_rules().await.unwrap();
    let wish = || ClaimRequest {
        limits: Arc::new(book.limits("default")),
        edition: Some(book.edition()),
        kinds: Some(Arc::new(vec!["k".to_owned()])),
        ..ask(worker, "default", 4)
    };
    let mut ran = Vec::new();
    for at in 0..expected.len() {
        let claim = kit.store.claim(wish()).await.unwrap();
        ran.extend(ids(&claim));
        let how = if at == 2 { retry(HOUR, 1) } else { done() };
        kit.settle(worker, &claim, how).await;
    }
    assert_eq!(ran, expected, "in order, and none is passed over");
}

async fn a_key_that_came_again_is_forgotten_as_well(kit: &Kit) {
    let worker = kit.worker().await;
    let rate = Some(Rate { jobs: 1, per_ms: 1000, burst: 1 });
    let limit = Limit { per: Per::Key, rate, ..Limit::default() };
    set(kit, Some(named(limit.clone()))).await;
    for _ in 0..3 {
        kit.put(NewJob { key: Some("0".into()), ..job("k") }).await;
        let claim = take(kit, worker, 1).await;
        kit.settle(worker, &claim, done()).await;
        kit.clock.advance(2 * SECOND);
    }
    assert_eq!(remembered(kit, &limit, 1).await, 1);
    // A store that has not swept yet does so at once.
    kit.neighbour().await.rescue(rules()).await.unwrap();
    assert_eq!(remembered(kit, &limit, 1).await, 0);
}
