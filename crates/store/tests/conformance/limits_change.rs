//! Limits that change while jobs run: what runs counts from the moment of the change, and no claim follows rules that
//! are no more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tidemill_core::gate::{Limit, Per, Rate};
use tidemill_core::{Edition, NewJob, QueueRules, RuleBook, Settlement, WorkerId};
use tidemill_store::request::Stand;
use tidemill_store::{Claim, ClaimRequest, Error, Result, Settled, Store};
use tidemill_testkit::eventually::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::kit::{Kit, SECOND, TTL, ask, cancelled, card, dead, done, item, job, retry, rules};
use super::limits::{fill, of_key};

over_both_stores!(
    a_new_limit_counts_what_runs,
    a_new_limit_by_key_counts_what_runs_of_each,
    who_has_not_heard_of_a_change_is_refused,
    what_is_refused_is_taken_by_the_rules_that_hold,
    every_claim_under_way_is_counted_or_refused,
    who_registers_during_a_change_follows_it,
    others_start_once_what_ran_before_the_limit_has_ended,
    others_of_a_key_start_once_what_ran_before_the_limit_has_ended,
    who_is_held_beside_one_that_has_ended_starts_whatever_rules_change,
    who_is_held_beside_one_that_has_ended_starts_whoever_else_is_stopped_elsewhere,
    nobody_is_counted_twice,
    a_limit_that_means_others_now_counts_them,
    a_limit_that_begins_to_count_counts_what_runs,
    a_name_instead_of_a_pattern_counts_what_runs,
    a_limit_that_is_gone_leaves_nobody_inside,
);

const SOON: Duration = Duration::from_secs(20);
/// How long others may wait beside a stowaway that has ended.
const LOOK: Duration = Duration::from_millis(500);

fn at_once(jobs: u32) -> QueueRules {
    QueueRules { concurrency: Some(jobs), ..QueueRules::default() }
}

fn named(limit: Limit) -> QueueRules {
    QueueRules { limits: BTreeMap::from([("x".into(), limit)]), ..QueueRules::default() }
}

fn by_key(jobs: u32) -> QueueRules {
    named(Limit { per: Per::Key, concurrency: Some(jobs), ..Limit::default() })
}

async fn set(kit: &Kit, rules: Option<QueueRules>) {
    assert!(kit.store.set_queue("default", rules).await.unwrap());
}

/// Claims by this rule book.
async fn take_by(
    store: &Arc<dyn Store>,
    book: &RuleBook,
    worker: WorkerId,
    jobs_max: usize,
) -> Result<Claim> {
    let (limits, edition) = (Arc::new(book.limits("default")), Some(book.edition()));
    store.claim(ClaimRequest { limits, edition, ..ask(worker, "default", jobs_max) }).await
}

/// Claims by the rules that hold.
async fn take(kit: &Kit, worker: WorkerId, jobs_max: usize) -> Claim {
    let book = kit.store.queue_rules().await.unwrap();
    take_by(&kit.store, &book, worker, jobs_max).await.unwrap()
}

/// Who is inside of the gates that a job goes through, in the order of their limits.
async fn inside(kit: &Kit, new: &NewJob) -> Vec<u64> {
    let key = new.key.as_deref().unwrap_or_default();
    let limits = kit.store.queue_rules().await.unwrap().limits(&new.queue);
    let names = limits.iter().filter_map(|limit| limit.gate_of(&new.kind, "", key, false));
    let views = kit.store.gates(&names.collect::<Vec<_>>()).await.unwrap();
    views.iter().map(|view| view.inside.iter().map(|(_, jobs)| jobs).sum()).collect()
}

/// What is kept of stowaways.
async fn rows(kit: &Kit) -> i64 {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let outside = Connection::open(file).unwrap();
        let count = "select count(*) from tidemill_stowaway";
        return outside.query_row(count, [], |row| row.get(0)).unwrap();
    }
    let connecting = tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await;
    let (client, connection) = connecting.unwrap();
    tokio::spawn(connection);
    let count = "select count(*) from tidemill.stowaway";
    client.query_one(count, &[]).await.unwrap().get(0)
}

async fn end(kit: &Kit, worker: WorkerId, claim: &Claim, at: usize, how: Settlement) {
    let ended = item(claim, at, how);
    assert_eq!(kit.store.settle(worker, vec![ended]).await.unwrap(), [Settled::Accepted]);
}

async fn a_new_limit_counts_what_runs(kit: &Kit) {
    let (one, other) = (kit.worker().await, kit.worker().await);
    fill(kit, &job("k"), 10).await;
    assert_eq!(kit.take(one, 2).await.jobs.len(), 2);
    assert_eq!(kit.take(other, 1).await.jobs.len(), 1);
    set(kit, Some(at_once(4))).await;
    let view = kit.store.gates(&["default/\u{1c}".to_owned()]).await.unwrap().remove(0);
    let mut expected = vec![(one, 2), (other, 1)];
    expected.sort_unstable();
    assert_eq!(view.inside, expected, "as they run, by worker");
    assert_eq!(take(kit, one, 10).await.jobs.len(), 1);
    assert_eq!(take(kit, other, 10).await.jobs.len(), 0);
    set(kit, Some(at_once(6))).await;
    assert_eq!(inside(kit, &job("k")).await, [4]);
    assert_eq!(take(kit, other, 10).await.jobs.len(), 2);
}

async fn a_new_limit_by_key_counts_what_runs_of_each(kit: &Kit) {
    let worker = kit.worker().await;
    for key in ["a", "a", "b"] {
        kit.put(of_key(key)).await;
    }
    assert_eq!(kit.take(worker, 3).await.jobs.len(), 3);
    for key in ["a", "b", "b", "c", "c", "c"] {
        kit.put(of_key(key)).await;
    }
    set(kit, Some(by_key(2))).await;
    let mut keys: Vec<_> = take(kit, worker, 20).await.jobs;
    keys.sort_by_key(|taken| taken.job.key.clone());
    let keys: Vec<_> = keys.iter().filter_map(|taken| taken.job.key.as_deref()).collect();
    assert_eq!(keys, ["b", "c", "c"], "two of a ran before, and one of b");
    assert_eq!(
        (inside(kit, &of_key("a")).await, inside(kit, &of_key("b")).await),
        (vec![2], vec![2])
    );
}

async fn who_has_not_heard_of_a_change_is_refused(kit: &Kit) {
    let (worker, neighbour) = (kit.worker().await, kit.neighbour().await);
    fill(kit, &job("k"), 5).await;
    let old = kit.store.queue_rules().await.unwrap();
    assert_eq!(old.edition(), Edition::default());
    assert_eq!(take_by(&kit.store, &old, worker, 1).await.unwrap().jobs.len(), 1);
    assert!(neighbour.set_queue("default", Some(at_once(2))).await.unwrap());
    let refused = take_by(&kit.store, &old, worker, 5).await.unwrap_err();
    assert!(matches!(refused, Error::RulesOutdated) && refused.code() == "rules_outdated");
    assert_eq!(take(kit, worker, 5).await.jobs.len(), 1);
    // Rules that nobody set are no change.
    let read = kit.store.queue_rules().await.unwrap();
    let late = QueueRules { version: 7, ..at_once(9) };
    assert!(!neighbour.set_queue("default", Some(late)).await.unwrap());
    assert_eq!(kit.store.queue_rules().await.unwrap(), read);
    // Also to take some away is one.
    assert!(neighbour.set_queue("default", None).await.unwrap());
    assert!(take_by(&kit.store, &read, worker, 5).await.is_err());
    neighbour.close().await;
}

/// Where a claim may stand, it is answered when it runs, not left standing by rules that are no more.
async fn what_is_refused_is_taken_by_the_rules_that_hold(kit: &Kit) {
    let (worker, neighbour) = (kit.worker().await, kit.neighbour().await);
    let old = kit.store.queue_rules().await.unwrap();
    let nothing = take_by(&kit.store, &old, worker, 5).await.unwrap();
    let stand = nothing.seen.map(|since| Stand { since, until: CancellationToken::new() });
    let is_standing = stand.is_some();
    let wish = ClaimRequest { stand, edition: Some(old.edition()), ..ask(worker, "default", 5) };
    let standing = tokio::spawn({
        let store = kit.store.clone();
        async move { store.claim(wish).await }
    });
    assert!(neighbour.set_queue("default", Some(at_once(2))).await.unwrap());
    fill(kit, &job("k"), 5).await;
    let claim = standing.await.unwrap();
    assert!(claim.is_err() || !is_standing && claim.unwrap().jobs.is_empty());
    assert_eq!(take(kit, worker, 5).await.jobs.len(), 2);
    neighbour.close().await;
}

/// Claims one after the other by these rules until it is refused; answers how many it got.
async fn take_until_refused(store: Arc<dyn Store>, book: RuleBook, worker: WorkerId) -> usize {
    let mut taken = 0;
    loop {
        match take_by(&store, &book, worker, 2).await {
            Ok(claim) => taken += claim.jobs.len(),
            Err(Error::RulesOutdated) => return taken,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn every_claim_under_way_is_counted_or_refused(kit: &Kit) {
    let (neighbour, mut sum) = (kit.neighbour().await, 0);
    for round in 0..10 {
        fill(kit, &job("k"), 60).await;
        let (book, mut tasks) = (kit.store.queue_rules().await.unwrap(), JoinSet::new());
        for at in 0..6 {
            let store = if at % 2 == 0 { &kit.store } else { &neighbour };
            tasks.spawn(take_until_refused(store.clone(), book.clone(), kit.worker().await));
        }
        set(kit, Some(at_once(5))).await;
        // Nobody who claims by the new rules finds more room than there is, whoever still claims by the old ones.
        let worker = kit.worker().await;
        let by_new = take(kit, worker, 100).await.jobs.len();
        let by_old: usize = tasks.join_all().await.into_iter().sum();
        sum += by_old + by_new;
        assert!(by_new == 0 || sum <= 5, "{by_new} more, of {sum} that run, in round {round}");
        assert_eq!(inside(kit, &job("k")).await, [sum as u64], "in round {round}");
        set(kit, None).await;
    }
    neighbour.close().await;
}

async fn who_registers_during_a_change_follows_it(kit: &Kit) {
    let mut sum = 0;
    for round in 0..10 {
        fill(kit, &job("k"), 2).await;
        let (book, store) = (kit.store.queue_rules().await.unwrap(), kit.store.clone());
        let new = tokio::spawn(async move {
            let id = WorkerId::new();
            store.register(card(id)).await.unwrap();
            take_by(&store, &book, id, 2).await
        });
        set(kit, Some(at_once(50 + round))).await;
        match new.await.unwrap() {
            Ok(claim) => sum += claim.jobs.len(),
            Err(error) => assert!(matches!(error, Error::RulesOutdated), "{error}"),
        }
        assert_eq!(inside(kit, &job("k")).await, [sum as u64], "in round {round}");
        set(kit, None).await;
    }
}

/// Claims until something comes, at the times it is told to come back: at once where a gate is in other hands, as
/// those of whoever looks back for a claim of before.
async fn soon(kit: &Kit, take: impl AsyncFn() -> Claim) -> Claim {
    let mut waited = Duration::ZERO;
    eventually("somebody to look whether it has ended", SOON, async || {
        let claim = take().await;
        if !claim.jobs.is_empty() {
            return Some(claim);
        }
        let wait = claim.next_due.expect("somebody has to look again").duration_since(claim.now);
        let wait = Duration::try_from(wait).unwrap_or_default();
        waited += wait;
        assert!(waited <= 3 * LOOK, "{waited:?} is too long");
        kit.clock.advance(wait);
        None
    })
    .await
}

/// How an attempt ends that began before a limit.
enum End {
    Settled(Settlement),
    /// Its job was called off, and its handler heard of it.
    CalledOff,
    /// Its worker says goodbye.
    GivenBack,
    /// Its worker is heard of no more.
    Lost,
}

/// Plays every way in which an attempt may end that began before a limit of one at once, which holds others.
async fn ends_of_stowaways(kit: &Kit, limit: QueueRules, new: NewJob) {
    let settled = [done(), retry(60 * SECOND, 1), dead("no use"), cancelled("no use")];
    let others = [End::CalledOff, End::GivenBack, End::Lost];
    for (round, how) in settled.into_iter().map(End::Settled).chain(others).enumerate() {
        let (worker, other) = (kit.worker().await, kit.worker().await);
        fill(kit, &new, 3).await;
        let claim = kit.take_one(worker).await;
        set(kit, Some(limit.clone())).await;
        let full = take(kit, other, 10).await;
        assert_eq!((full.jobs.len(), inside(kit, &new).await), (0, vec![1]), "round {round}");
        assert_eq!(full.next_due, Some(full.now + LOOK), "nobody tells of its end");
        match how {
            End::Settled(how) => end(kit, worker, &claim, 0, how).await,
            End::CalledOff => {
                kit.store.cancel(vec![claim.jobs[0].job.id], "enough").await.unwrap();
                assert_eq!(take(kit, other, 10).await.jobs.len(), 0, "it still runs");
                end(kit, worker, &claim, 0, cancelled("enough")).await;
            }
            End::GivenBack => drop(kit.store.deregister(worker).await.unwrap()),
            End::Lost => {
                kit.clock.advance(TTL + SECOND);
                kit.store.beat(other).await.unwrap();
                assert_eq!(kit.rescue().await.workers, 1);
            }
        }
        let next = soon(kit, async || take(kit, other, 10).await).await;
        assert_eq!((next.jobs.len(), inside(kit, &new).await), (1, vec![1]), "round {round}");
        kit.clock.advance(LOOK);
        let full = take(kit, other, 10).await;
        let rings = full.next_due.is_some_and(|at| at <= full.now + LOOK);
        assert!(full.jobs.is_empty() && !rings, "without a stowaway no clock opens it");
        set(kit, None).await;
        clear(kit).await;
    }
}

/// Ends all that there is.
async fn clear(kit: &Kit) {
    for view in kit.store.workers().await.unwrap() {
        kit.store.deregister(view.id).await.unwrap();
    }
    kit.clock.advance(100 * SECOND);
    let worker = kit.worker().await;
    let claim = kit.take(worker, 100).await;
    for at in 0..claim.jobs.len() {
        end(kit, worker, &claim, at, done()).await;
    }
    kit.store.deregister(worker).await.unwrap();
}

async fn others_start_once_what_ran_before_the_limit_has_ended(kit: &Kit) {
    ends_of_stowaways(kit, at_once(1), job("k")).await;
}

async fn others_of_a_key_start_once_what_ran_before_the_limit_has_ended(kit: &Kit) {
    ends_of_stowaways(kit, by_key(1), of_key("a")).await;
}

/// Two run in `default`, of keys a and b; then all queues have a limit by key, and one of key a is held elsewhere.
async fn held_beside(kit: &Kit, worker: WorkerId) -> Claim {
    kit.put(of_key("a")).await;
    kit.put(of_key("b")).await;
    let claim = kit.take(worker, 2).await;
    assert_eq!(claim.jobs.len(), 2);
    assert!(kit.store.set_queue("*", Some(by_key(1))).await.unwrap());
    kit.put(NewJob { queue: "other".into(), ..of_key("a") }).await;
    assert_eq!(take_other(kit, worker).await.jobs.len(), 0, "one of its key runs");
    claim
}

async fn take_other(kit: &Kit, worker: WorkerId) -> Claim {
    let book = kit.store.queue_rules().await.unwrap();
    let (limits, edition) = (Arc::new(book.limits("other")), Some(book.edition()));
    let wish = ClaimRequest { limits, edition, ..ask(worker, "other", 5) };
    kit.store.claim(wish).await.unwrap()
}

async fn who_is_held_beside_one_that_has_ended_starts_whatever_rules_change(kit: &Kit) {
    let worker = kit.worker().await;
    let claim = held_beside(kit, worker).await;
    let first = claim.jobs.iter().position(|taken| taken.job.key.as_deref() == Some("a"));
    end(kit, worker, &claim, first.unwrap(), done()).await;
    assert!(kit.store.set_queue("third", Some(at_once(1))).await.unwrap());
    let next = soon(kit, async || take_other(kit, worker).await).await;
    assert_eq!(next.jobs.len(), 1, "nobody of its key runs");
}

/// Claims from both queues, by the rules that hold.
async fn take_both(kit: &Kit, worker: WorkerId) -> Claim {
    let book = kit.store.queue_rules().await.unwrap();
    let mut limits = [book.limits("default"), book.limits("other")].concat();
    limits.sort_by_key(tidemill_core::gate::QueueLimit::order);
    let mut lanes = ask(worker, "default", 5).lanes;
    lanes.extend(ask(worker, "other", 5).lanes);
    let (limits, edition) = (Arc::new(limits), Some(book.edition()));
    kit.store
        .claim(ClaimRequest { lanes, limits, edition, ..ask(worker, "default", 5) })
        .await
        .unwrap()
}

async fn who_is_held_beside_one_that_has_ended_starts_whoever_else_is_stopped_elsewhere(kit: &Kit) {
    let worker = kit.worker().await;
    kit.put(of_key("a")).await;
    let claim = kit.take(worker, 1).await;
    assert!(kit.store.set_queue("*", Some(by_key(1))).await.unwrap());
    let rate = Some(Rate { jobs: 1, per_ms: 3_600_000, burst: 1 });
    let slow = QueueRules { rate, ..QueueRules::default() };
    assert!(kit.store.set_queue("other", Some(slow)).await.unwrap());
    let other = |new: NewJob| NewJob { queue: "other".into(), ..new };
    let first = kit.put(other(of_key("a"))).await;
    assert_eq!(take_both(kit, worker).await.jobs.len(), 0, "one of its key runs");
    kit.put(other(job("k"))).await;
    assert_eq!(
        take_both(kit, worker).await.jobs.len(),
        1,
        "the other queue has nothing left for an hour"
    );
    let second = kit.put(of_key("a")).await;
    assert_eq!(take_both(kit, worker).await.jobs.len(), 0, "one of its key runs");
    end(kit, worker, &claim, 0, done()).await;
    kit.clock.advance(LOOK);
    let mut started = soon(kit, async || take_both(kit, worker).await).await.jobs;
    started.extend(take_both(kit, worker).await.jobs);
    let started: Vec<_> = started.iter().map(|taken| taken.job.id).collect();
    assert_eq!(started, [second], "{first} came first, and its queue is stopped");
}

async fn nobody_is_counted_twice(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &of_key("a"), 6).await;
    assert_eq!(kit.take(worker, 2).await.jobs.len(), 2);
    set(kit, Some(by_key(3))).await;
    assert_eq!(take(kit, worker, 10).await.jobs.len(), 1);
    for rules in [None, Some(by_key(3)), Some(by_key(5)), None, Some(by_key(4))] {
        let counts = rules.is_some();
        set(kit, rules).await;
        let expected: &[u64] = if counts { &[3] } else { &[] };
        assert_eq!(inside(kit, &of_key("a")).await, expected);
    }
    assert_eq!(take(kit, worker, 10).await.jobs.len(), 1);
}

async fn a_limit_that_means_others_now_counts_them(kit: &Kit) {
    let worker = kit.worker().await;
    let of_kind = |kind: &str| {
        named(Limit { kind: Some(kind.into()), concurrency: Some(2), ..Limit::default() })
    };
    set(kit, Some(of_kind("k"))).await;
    for kind in ["k", "other", "other"] {
        kit.put(job(kind)).await;
    }
    // All under one lease, which has a permit for one of them.
    let claim = take(kit, worker, 5).await;
    assert_eq!(claim.jobs.len(), 3);
    set(kit, Some(of_kind("other"))).await;
    assert_eq!(inside(kit, &job("other")).await, [2]);
    kit.put(job("other")).await;
    assert_eq!(take(kit, worker, 5).await.jobs.len(), 0);
    let one = claim.jobs.iter().position(|taken| taken.job.kind == "k").unwrap();
    end(kit, worker, &claim, one, done()).await;
    assert_eq!(inside(kit, &job("other")).await, [2], "whoever else ends, they run");
    assert_eq!(take(kit, worker, 5).await.jobs.len(), 0);
}

async fn a_limit_that_begins_to_count_counts_what_runs(kit: &Kit) {
    let worker = kit.worker().await;
    let rate = Some(Rate { jobs: 1000, per_ms: 1000, burst: 100 });
    let limit = |concurrency| named(Limit { per: Per::Key, concurrency, rate, ..Limit::default() });
    set(kit, Some(limit(None))).await;
    fill(kit, &of_key("a"), 5).await;
    let claim = take(kit, worker, 2).await;
    assert_eq!((claim.jobs.len(), claim.jobs[0].gates.len()), (2, 1));
    set(kit, Some(limit(Some(3)))).await;
    assert_eq!(inside(kit, &of_key("a")).await, [2]);
    assert_eq!(take(kit, worker, 5).await.jobs.len(), 1);
    // It names the gate, which it has no permit of: nothing is given back that was not taken.
    end(kit, worker, &claim, 0, done()).await;
    assert_eq!(inside(kit, &of_key("a")).await, [2]);
    let next = soon(kit, async || take(kit, worker, 10).await).await;
    assert_eq!(next.jobs.len(), 1);
}

async fn a_name_instead_of_a_pattern_counts_what_runs(kit: &Kit) {
    let worker = kit.worker().await;
    assert!(kit.store.set_queue("def*", Some(at_once(3))).await.unwrap());
    fill(kit, &job("k"), 9).await;
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 3);
    set(kit, Some(QueueRules::default())).await;
    assert_eq!(take(kit, worker, 2).await.jobs.len(), 2, "its own rules limit nothing");
    set(kit, None).await;
    assert_eq!(inside(kit, &job("k")).await, [5], "three with a permit, two without");
    set(kit, Some(at_once(6))).await;
    assert_eq!(take(kit, worker, 9).await.jobs.len(), 1);
}

async fn a_limit_that_is_gone_leaves_nobody_inside(kit: &Kit) {
    let worker = kit.worker().await;
    fill(kit, &job("k"), 5).await;
    let claim = kit.take(worker, 3).await;
    set(kit, Some(at_once(1))).await;
    assert_eq!(rows(kit).await, 3);
    set(kit, None).await;
    assert_eq!(rows(kit).await, 0);
    set(kit, Some(at_once(1))).await;
    end(kit, worker, &claim, 0, done()).await;
    // A store that was just opened sweeps at its first rescue.
    let neighbour = kit.neighbour().await;
    neighbour.rescue(rules()).await.unwrap();
    assert_eq!((rows(kit).await, inside(kit, &job("k")).await), (2, vec![2]));
    kit.store.deregister(worker).await.unwrap();
    assert_eq!(inside(kit, &job("k")).await, [0]);
    let another = kit.neighbour().await;
    another.rescue(rules()).await.unwrap();
    assert_eq!(rows(kit).await, 0);
    neighbour.close().await;
    another.close().await;
}
