//! Limits that all workers together cannot exceed: they count nobody, and everybody from the moment on at which they
//! can be exceeded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::gate::{Limit, Per, Rate};
use tidemill_core::{NewJob, QueueRules, WorkerId};
use tidemill_store::{Claim, ClaimRequest};
use tidemill_testkit::eventually::eventually;
use tokio::task::JoinSet;

use super::kit::{Kit, ask, done, item, job};
use super::limits::{fill, of_key};

over_both_stores!(
    a_limit_out_of_reach_counts_nobody,
    a_limit_out_of_reach_shows_who_is_inside,
    a_limit_counts_all_once_another_worker_joins,
    a_limit_by_key_counts_all_once_another_worker_joins,
    a_limit_counts_all_once_a_worker_asks_for_more,
    a_limit_counts_nobody_once_a_worker_has_left,
    what_was_taken_without_a_limit_is_within_reach,
    what_has_ended_brings_no_limit_within_reach,
    a_limit_that_does_more_than_count_lets_nobody_by,
    what_is_left_beside_the_reach_of_others_is_counted_and_no_more,
    who_joins_beside_claims_exceeds_nothing,
);

/// How long others may wait beside one that ran before they were counted.
const LOOK: Duration = Duration::from_millis(500);
const SOON: Duration = Duration::from_secs(20);
/// What a worker of these tests may hold: twice its slots.
const REACH: u32 = 20;

fn at_once(jobs: u32) -> QueueRules {
    QueueRules { concurrency: Some(jobs), ..QueueRules::default() }
}

fn named(limit: Limit) -> QueueRules {
    QueueRules { limits: BTreeMap::from([("x".into(), limit)]), ..QueueRules::default() }
}

fn by_key(jobs: u32) -> QueueRules {
    named(Limit { per: Per::Key, concurrency: Some(jobs), ..Limit::default() })
}

async fn set(kit: &Kit, rules: QueueRules) {
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
}

async fn wish(kit: &Kit, worker: WorkerId, jobs_max: usize) -> ClaimRequest {
    let book = kit.store.queue_rules().await.unwrap();
    let (limits, edition) = (Arc::new(book.limits("default")), Some(book.edition()));
    ClaimRequest { limits, edition, ..ask(worker, "default", jobs_max) }
}

async fn take(kit: &Kit, worker: WorkerId, jobs_max: usize) -> Claim {
    kit.store.claim(wish(kit, worker, jobs_max).await).await.unwrap()
}

fn gates(claim: &Claim) -> usize {
    claim.jobs.iter().map(|taken| taken.gates.len()).sum()
}

/// Who is inside of the gates that a job goes through, by worker.
async fn inside(kit: &Kit, new: &NewJob) -> Vec<Vec<(WorkerId, u64)>> {
    let key = new.key.as_deref().unwrap_or_default();
    let limits = kit.store.queue_rules().await.unwrap().limits(&new.queue);
    let names = limits.iter().filter_map(|limit| limit.gate_of(&new.kind, "", key, false));
    let views = kit.store.gates(&names.collect::<Vec<_>>()).await.unwrap();
    views.into_iter().map(|view| view.inside).collect()
}

async fn end(kit: &Kit, worker: WorkerId, claim: &Claim, at: usize) {
    kit.store.settle(worker, vec![item(claim, at, done())]).await.unwrap();
}

async fn a_limit_out_of_reach_counts_nobody(kit: &Kit) {
    set(kit, at_once(REACH)).await;
    let worker = kit.worker().await;
    fill(kit, &of_key("a"), 30).await;
    let claim = take(kit, worker, 8).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (8, 0));
    set(kit, by_key(REACH)).await;
    let claim = take(kit, worker, 8).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (8, 0));
    set(kit, at_once(REACH - 1)).await;
    let claim = take(kit, worker, 4).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (3, 3), "it can be exceeded, and has 16 inside");
}

async fn a_limit_out_of_reach_shows_who_is_inside(kit: &Kit) {
    let (one, other) = (kit.worker().await, kit.worker().await);
    set(kit, at_once(2 * REACH)).await;
    fill(kit, &of_key("a"), 5).await;
    fill(kit, &of_key("b"), 5).await;
    let claim = take(kit, one, 4).await;
    assert_eq!((take(kit, other, 2).await.jobs.len(), gates(&claim)), (2, 0));
    let sorted = |mut inside: Vec<(WorkerId, u64)>| {
        inside.sort_unstable();
        vec![inside]
    };
    assert_eq!(inside(kit, &of_key("a")).await, sorted(vec![(one, 4), (other, 2)]));
    end(kit, one, &claim, 0).await;
    assert_eq!(inside(kit, &of_key("a")).await, sorted(vec![(one, 3), (other, 2)]));
    set(kit, by_key(2 * REACH)).await;
    assert_eq!(inside(kit, &of_key("a")).await, sorted(vec![(one, 3), (other, 1)]));
    assert_eq!(inside(kit, &of_key("b")).await, [[(other, 1)]]);
    assert_eq!(inside(kit, &of_key("c")).await, [[]]);
    // With permits and without.
    let third = kit.worker().await;
    assert!(gates(&take(kit, third, 1).await) == 1, "it can be exceeded now");
    kit.store.deregister(other).await.unwrap();
    assert_eq!(inside(kit, &of_key("b")).await, [[(third, 1)]]);
}

/// With one worker nobody is counted; another one joins, and gets nothing until one of them has ended.
async fn counts_all(kit: &Kit, rules: QueueRules, new: NewJob) {
    set(kit, rules).await;
    let one = kit.worker().await;
    fill(kit, &new, 30).await;
    let claim = take(kit, one, REACH as usize).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (REACH as usize, 0));
    let other = kit.worker().await;
    assert_eq!(inside(kit, &new).await, [[(one, u64::from(REACH))]]);
    assert_eq!(take(kit, other, 5).await.jobs.len(), 0, "they run, if uncounted");
    for number in 0..3 {
        end(kit, one, &claim, number).await;
        kit.clock.advance(LOOK);
        let next = take(kit, other, 5).await;
        assert_eq!((next.jobs.len(), gates(&next)), (1, 1), "one for one");
        assert_eq!(take(kit, other, 5).await.jobs.len(), 0);
    }
}

async fn a_limit_counts_all_once_another_worker_joins(kit: &Kit) {
    counts_all(kit, at_once(REACH), job("k")).await;
}

async fn a_limit_by_key_counts_all_once_another_worker_joins(kit: &Kit) {
    counts_all(kit, by_key(REACH), of_key("a")).await;
}

async fn a_limit_counts_all_once_a_worker_asks_for_more(kit: &Kit) {
    set(kit, at_once(REACH + 5)).await;
    let worker = kit.worker().await;
    fill(kit, &job("k"), 60).await;
    let claim = take(kit, worker, REACH as usize).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (REACH as usize, 0));
    let claim = take(kit, worker, 30).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (5, 5));
    assert_eq!(take(kit, worker, 30).await.jobs.len(), 0);
}

async fn a_limit_counts_nobody_once_a_worker_has_left(kit: &Kit) {
    set(kit, by_key(REACH)).await;
    let (one, other) = (kit.worker().await, kit.worker().await);
    fill(kit, &of_key("a"), 30).await;
    let claim = take(kit, one, 12).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (12, 12));
    assert_eq!(take(kit, other, 20).await.jobs.len(), 8);
    assert_eq!(take(kit, one, 2).await.jobs.len(), 0, "it is full, and they are held at its gate");
    kit.store.deregister(other).await.unwrap();
    let mut taken = 0;
    while taken < 8 {
        let next = take(kit, one, 8 - taken).await;
        assert_eq!((next.jobs.is_empty(), gates(&next)), (false, 0), "{taken} taken");
        taken += next.jobs.len();
    }
    assert_eq!(inside(kit, &of_key("a")).await, [[(one, u64::from(REACH))]]);
    // And again, beside those that have permits.
    let third = kit.worker().await;
    assert_eq!(take(kit, third, 5).await.jobs.len(), 0);
    end(kit, one, &claim, 0).await;
    kit.clock.advance(LOOK);
    assert_eq!(take(kit, third, 5).await.jobs.len(), 1);
}

async fn what_was_taken_without_a_limit_is_within_reach(kit: &Kit) {
    let (one, other) = (kit.worker().await, kit.worker().await);
    fill(kit, &job("k"), 80).await;
    assert_eq!(kit.take(one, 60).await.jobs.len(), 60, "more than it said");
    set(kit, at_once(50)).await;
    assert_eq!(take(kit, other, 1).await.jobs.len(), 0, "60 run");
    assert_eq!(inside(kit, &job("k")).await, [[(one, 60)]]);
}

/// A lease that one job keeps open names many that have ended: they are held no more.
async fn what_has_ended_brings_no_limit_within_reach(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 120).await;
    let first = kit.take(worker, 60).await;
    for at in 1..60 {
        end(kit, worker, &first, at).await;
    }
    set(kit, at_once(REACH)).await;
    let claim = take(kit, worker, 15).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (15, 0), "as if it had held one");
    for at in 0..15 {
        end(kit, worker, &claim, at).await;
    }
    let claim = take(kit, worker, REACH as usize - 1).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (REACH as usize - 1, 0), "it holds one");
    let claim = take(kit, worker, 1).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (0, 0), "the limit is full by those that run");
}

async fn a_limit_that_does_more_than_count_lets_nobody_by(kit: &Kit) {
    let rate = Some(Rate { jobs: 1000, per_ms: 1, burst: 3 });
    set(kit, named(Limit { concurrency: Some(1000), rate, ..Limit::default() })).await;
    let worker = kit.worker().await;
    fill(kit, &job("k"), 10).await;
    let claim = take(kit, worker, 10).await;
    assert_eq!((claim.jobs.len(), gates(&claim)), (3, 3));
}

/// Of thirty another worker may hold twenty, so ten pass unjudged: each is counted where its limit means it, and from
/// then on all are judged.
async fn what_is_left_beside_the_reach_of_others_is_counted_and_no_more(kit: &Kit) {
    const MOST: u32 = REACH + 10;
    let per = |per, kind: Option<&str>| {
        let kind = kind.map(str::to_owned);
        named(Limit { per, kind, concurrency: Some(MOST), ..Limit::default() })
    };
    for (number, (rules, tenant)) in [
        (at_once(MOST), ""),
        (at_once(MOST), "t"),
        (per(Per::All, Some("k")), ""),
        (per(Per::All, Some("k")), "t"),
        (per(Per::Key, None), ""),
        (per(Per::Key, Some("k")), "t"),
        (per(Per::Tenant, None), "t"),
    ]
    .into_iter()
    .enumerate()
    {
        let (shown, queue) = (format!("{rules:?} {tenant:?}"), format!("q{number}"));
        let meant = if rules.limits.values().any(|limit| limit.kind.is_some()) { 8 } else { 10 };
        assert!(kit.store.set_queue(&queue, Some(rules)).await.unwrap());
        let book = kit.store.queue_rules().await.unwrap();
        let (limits, edition) = (Arc::new(book.limits(&queue)), Some(book.edition()));
        let gate = limits[0].gate_of("k", tenant, "a", false).unwrap();
        let of = |kind| NewJob {
            queue: queue.clone(),
            tenant: Some(tenant.to_owned()).filter(|tenant| !tenant.is_empty()),
            key: Some("a".into()),
            ..job(kind)
        };
        let take = async |worker, jobs_max| {
            let limits = Arc::clone(&limits);
            let wish = ClaimRequest { limits, edition, ..ask(worker, &queue, jobs_max) };
            kit.store.claim(wish).await.unwrap()
        };
        let (one, other) = (kit.worker().await, kit.worker().await);
        fill(kit, &of("k"), 8).await;
        fill(kit, &of("other"), 2).await;
        let first = take(one, 10).await;
        assert_eq!((first.jobs.len(), gates(&first)), (10, meant), "{shown}");
        fill(kit, &of("k"), 60).await;
        let second = take(other, 10).await;
        assert_eq!((second.jobs.len(), gates(&second)), (10, 10), "{shown}");
        let mut inside = kit.store.gates(&[gate]).await.unwrap().remove(0).inside;
        inside.sort_unstable_by_key(|(_, jobs)| *jobs);
        assert_eq!(
            inside.iter().map(|(_, jobs)| *jobs as usize).sum::<usize>(),
            meant + 10,
            "{shown}"
        );
        // Who looks back behind a claim may be at the gate: then it is asked again.
        let mut taken = meant + 10;
        eventually("as many as may", SOON, async || {
            taken += take(one, 5).await.jobs.len() + take(other, 5).await.jobs.len();
            (taken >= MOST as usize).then_some(())
        })
        .await;
        assert_eq!(taken, MOST as usize, "{shown}");
        assert_eq!(take(one, 1).await.jobs.len() + take(other, 1).await.jobs.len(), 0, "{shown}");
        end(kit, one, &first, 0).await;
        let next = eventually("one for one", SOON, async || {
            let next = take(other, 1).await;
            (!next.jobs.is_empty()).then_some(next)
        });
        assert_eq!(next.await.jobs.len(), 1, "{shown}");
        kit.lose_workers().await;
    }
}

/// Workers join while others claim: as many run as may, whoever of them was counted.
async fn who_joins_beside_claims_exceeds_nothing(kit: &Kit) {
    for rules in [at_once(50), by_key(50)] {
        fill(kit, &of_key("one"), 200).await;
        set(kit, rules).await;
        let mut tasks = JoinSet::new();
        for number in 0..8 {
            let store = if number % 2 == 0 { kit.store.clone() } else { kit.neighbour().await };
            let wish = wish(kit, WorkerId::new(), 10).await;
            tasks.spawn(async move {
                let mut taken = 0;
                store.register(super::kit::card(wish.worker)).await.unwrap();
                for _ in 0..2 {
                    taken += store.claim(wish.clone()).await.unwrap().jobs.len();
                }
                taken
            });
        }
        let taken: usize = tasks.join_all().await.into_iter().sum();
        assert!(taken <= 50, "{taken} run");
        let inside = inside(kit, &of_key("one")).await;
        assert_eq!(inside[0].iter().map(|(_, jobs)| jobs).sum::<u64>(), taken as u64);
        kit.lose_workers().await;
    }
}
