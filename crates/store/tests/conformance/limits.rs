//! Limits: never exceeded, never leaked, and nobody is forgotten behind one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::gate::{Counts, Per, QueueLimit, Rate};
use tidemill_core::{
    ErrorClass, Failure, JobId, NewJob, OnDuplicate, QueueRules, Scope, Settlement, State, WorkerId,
};
use tidemill_store::{CancelAnswer, Claim, ClaimRequest, Receipt, Settled};

use super::kit::{HOUR, Kit, SECOND, TTL, ask, done, item, job, json, retry, unique};

over_both_stores!(
    a_queue_runs_no_more_than_its_limit,
    a_limit_by_key_lets_one_of_each_pass_in_order,
    a_limit_by_tenant_holds_only_those_who_are_at_it,
    a_limit_on_a_kind_lets_other_kinds_pass,
    several_limits_hold_together,
    whoever_must_wait_elsewhere_keeps_nobody_from_a_key,
    one_limit_over_two_queues_counts_both,
    what_is_given_back_or_retried_frees_its_place,
    a_lost_worker_leaves_no_place_taken,
    a_stale_settle_frees_nothing,
    a_rate_lets_one_pass_after_the_other,
    a_rate_by_key_spares_other_keys,
    what_was_not_started_uses_up_no_rate,
    a_gate_that_was_shut_opens_by_the_clock,
    a_key_that_was_shut_spares_other_keys,
    a_job_held_at_a_gate_can_be_called_off,
    a_job_held_at_a_gate_can_be_replaced,
    other_rules_let_everyone_try_anew,
    nobody_is_forgotten_at_a_gate_without_anyone_inside,
);

pub(super) fn limit(gate: &str, counts: Counts) -> QueueLimit {
    QueueLimit {
        queue: "default".into(),
        gate: gate.into(),
        kind: None,
        counts,
        concurrency: None,
        rate: None,
        hold: false,
        breaker: None,
    }
}

pub(super) fn at_once(per: Per, jobs: u32) -> QueueLimit {
    let gate = format!("default/\u{1c}{per:?}");
    QueueLimit { concurrency: Some(jobs), ..limit(&gate, Counts::Per(per)) }
}

pub(super) fn of_key(key: &str) -> NewJob {
    NewJob { key: Some(key.into()), ..job("k") }
}

pub(super) async fn fill(kit: &Kit, new: &NewJob, number: usize) {
    let jobs = (0..number).map(|_| NewJob { id: JobId::new(), ..new.clone() }).collect();
    kit.store.enqueue(jobs).await.unwrap();
}

/// Claims under limits.
pub(super) async fn take(
    kit: &Kit,
    worker: WorkerId,
    limits: &[QueueLimit],
    jobs_max: usize,
) -> Claim {
    let limits = Arc::new(limits.to_vec());
    kit.store.claim(ClaimRequest { limits, ..ask(worker, "default", jobs_max) }).await.unwrap()
}

/// Claims under limits until something comes: what a settle frees is told right after it.
pub(super) async fn take_soon(
    kit: &Kit,
    worker: WorkerId,
    limits: &[QueueLimit],
    jobs_max: usize,
) -> Claim {
    let mut heard = kit.store.wake().listen();
    loop {
        let claim = take(kit, worker, limits, jobs_max).await;
        if !claim.jobs.is_empty() {
            return claim;
        }
        if claim.next_due.is_some_and(|at| at <= claim.now) {
            continue;
        }
        let told = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
        assert!(told.is_ok(), "somebody should have been told");
    }
}

/// How many there are of each key; those without one are of ''.
pub(super) fn by_key(claim: &Claim) -> BTreeMap<String, usize> {
    let mut number = BTreeMap::new();
    for taken in &claim.jobs {
        *number.entry(taken.job.key.clone().unwrap_or_default()).or_default() += 1;
    }
    number
}

pub(super) async fn settle_all(kit: &Kit, worker: WorkerId, claim: &Claim, how: &Settlement) {
    let items = (0..claim.jobs.len()).map(|at| item(claim, at, how.clone())).collect();
    for answer in kit.store.settle(worker, items).await.unwrap() {
        assert_eq!(answer, Settled::Accepted);
    }
}

async fn a_queue_runs_no_more_than_its_limit(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::All, 3)]);
    fill(kit, &job("k"), 250).await;
    let first = take(kit, worker, &limits, 100).await;
    assert_eq!(first.jobs.len(), 3);
    assert_eq!(first.jobs[0].gates, ["default/\u{1c}All".into()]);
    let none = take(kit, worker, &limits, 100).await;
    assert_eq!((none.jobs.len(), none.next_due), (0, None), "no clock will change that");
    assert_eq!(kit.settle(worker, &first, done()).await, Settled::Accepted);
    assert_eq!(take_soon(kit, worker, &limits, 100).await.jobs.len(), 1);
    assert_eq!(take(kit, worker, &[at_once(Per::All, 5)], 100).await.jobs.len(), 2, "live");
    assert_eq!(take(kit, worker, &limits, 100).await.jobs.len(), 0);
}

async fn a_limit_by_key_lets_one_of_each_pass_in_order(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    let mut of_a = Vec::new();
    for _ in 0..5 {
        of_a.push(kit.put(of_key("a")).await);
        kit.put(of_key("b")).await;
        kit.clock.advance(SECOND);
    }
    fill(kit, &job("k"), 3).await;
    let mut claim = take(kit, worker, &limits, 20).await;
    let expected = BTreeMap::from([("a".into(), 1), ("b".into(), 1), (String::new(), 3)]);
    assert_eq!(by_key(&claim), expected);
    let mut ran = Vec::new();
    loop {
        let at = claim.jobs.iter().position(|taken| taken.job.key.as_deref() == Some("a"));
        let at = at.expect("one of a runs");
        ran.push(claim.jobs[at].job.id);
        kit.store.settle(worker, vec![item(&claim, at, done())]).await.unwrap();
        if ran.len() == of_a.len() {
            break;
        }
        claim = take_soon(kit, worker, &limits, 20).await;
        assert_eq!(claim.jobs.len(), 1, "of b one runs still");
    }
    assert_eq!(ran, of_a);
}

async fn a_limit_by_tenant_holds_only_those_who_are_at_it(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Tenant, 2)]);
    for tenant in ["a", "b"] {
        fill(kit, &NewJob { tenant: Some(tenant.into()), ..job("k") }, 30).await;
    }
    fill(kit, &job("k"), 4).await;
    let claim = take(kit, worker, &limits, 50).await;
    assert_eq!(claim.jobs.len(), 8, "two of each, and those of nobody");
    let at = claim.jobs.iter().position(|taken| taken.job.tenant.as_deref() == Some("a"));
    kit.store.settle(worker, vec![item(&claim, at.unwrap(), done())]).await.unwrap();
    let more = take_soon(kit, worker, &limits, 50).await;
    assert_eq!(more.jobs.len(), 1);
    assert_eq!(more.jobs[0].job.tenant.as_deref(), Some("a"));
}

async fn a_limit_on_a_kind_lets_other_kinds_pass(kit: &Kit) {
    let worker = kit.worker().await;
    let limits = [QueueLimit { kind: Some("slow".into()), ..at_once(Per::All, 2) }];
    fill(kit, &job("slow"), 150).await;
    fill(kit, &job("k"), 150).await;
    let claim = take(kit, worker, &limits, 20).await;
    let slow = claim.jobs.iter().filter(|taken| taken.job.kind == "slow").count();
    assert_eq!((slow, claim.jobs.len()), (2, 20));
    assert!(take(kit, worker, &limits, 20).await.jobs.iter().all(|taken| taken.job.kind == "k"));
    let at = claim.jobs.iter().position(|taken| taken.job.kind == "slow").unwrap();
    kit.store.settle(worker, vec![item(&claim, at, done())]).await.unwrap();
    let mut slow = 0;
    while slow == 0 {
        let claim = take_soon(kit, worker, &limits, 200).await;
        slow = claim.jobs.iter().filter(|taken| taken.job.kind == "slow").count();
    }
    assert_eq!(slow, 1);
}

async fn several_limits_hold_together(kit: &Kit) {
    let worker = kit.worker().await;
    let limits = [
        at_once(Per::Key, 1),
        QueueLimit {
            kind: Some("k".into()),
            gate: "default/\u{1c}kind".into(),
            ..at_once(Per::All, 3)
        },
        at_once(Per::All, 4),
    ];
    for key in ["a", "b", "c", "d", "e"] {
        fill(kit, &of_key(key), 3).await;
    }
    fill(kit, &job("other"), 5).await;
    let claim = take(kit, worker, &limits, 20).await;
    let of_k = claim.jobs.iter().filter(|taken| taken.job.kind == "k").count();
    assert_eq!((of_k, claim.jobs.len()), (3, 4), "{:?}", by_key(&claim));
    let mut running: Vec<(Claim, usize)> =
        (0..claim.jobs.len()).map(|at| (claim.clone(), at)).collect();
    let mut finished = 0;
    while let Some((claim, at)) = running.pop() {
        kit.store.settle(worker, vec![item(&claim, at, done())]).await.unwrap();
        finished += 1;
        // While others run, none may have to start; once nobody does, somebody must.
        let more = match running.len() {
            0 if finished < 20 => take_soon(kit, worker, &limits, 20).await,
            _ => take(kit, worker, &limits, 20).await,
        };
        running.extend((0..more.jobs.len()).map(|at| (more.clone(), at)));
        assert!(running.len() <= 4);
        let keys: Vec<_> =
            running.iter().filter_map(|(claim, at)| claim.jobs[*at].job.key.clone()).collect();
        assert!(keys.len() <= 3, "of one kind");
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len(), "one of each key");
    }
    assert_eq!(finished, 20, "nobody is left behind");
}

/// Two of one key are told apart by nothing, so they may stand together; the first is not the key's to let pass.
async fn whoever_must_wait_elsewhere_keeps_nobody_from_a_key(kit: &Kit) {
    let rate = Some(Rate { jobs: 1, per_ms: 60_000, burst: 1 });
    let of_tenant = QueueLimit { rate, ..limit("default/\u{1c}t", Counts::Per(Per::Tenant)) };
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1), of_tenant]);
    let of_acme = NewJob { tenant: Some("acme".into()), ..of_key("a") };
    fill(kit, &of_acme, 3).await;
    let first = take(kit, worker, &limits, 5).await;
    assert_eq!(first.jobs.len(), 1);
    kit.clock.advance(SECOND);
    let of_nobody = kit.put(of_key("a")).await;
    assert_eq!(take(kit, worker, &limits, 5).await.jobs.len(), 0, "one of the key runs");
    settle_all(kit, worker, &first, &done()).await;
    let next = take_soon(kit, worker, &limits, 5).await;
    assert_eq!(next.jobs.iter().map(|taken| taken.job.id).collect::<Vec<_>>(), [of_nobody]);
}

async fn one_limit_over_two_queues_counts_both(kit: &Kit) {
    let worker = kit.worker().await;
    let of = |queue: &str| QueueLimit {
        queue: queue.into(),
        gate: "*/\u{1c}stripe".into(),
        ..at_once(Per::All, 3)
    };
    let limits = [of("default"), of("other")];
    fill(kit, &job("k"), 2).await;
    fill(kit, &NewJob { queue: "other".into(), ..job("k") }, 5).await;
    assert_eq!(take(kit, worker, &limits, 10).await.jobs.len(), 2);
    let other = |limits: &[QueueLimit]| ClaimRequest {
        limits: Arc::new(limits.to_vec()),
        ..ask(worker, "other", 10)
    };
    assert_eq!(kit.store.claim(other(&limits)).await.unwrap().jobs.len(), 1);
    assert_eq!(kit.store.claim(other(&limits)).await.unwrap().jobs.len(), 0);
}

async fn what_is_given_back_or_retried_frees_its_place(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    let first = kit.put(of_key("a")).await;
    kit.clock.advance(SECOND);
    let second = kit.put(of_key("a")).await;
    let claim = take(kit, worker, &limits, 5).await;
    assert_eq!(claim.jobs[0].job.id, first);
    assert_eq!(take(kit, worker, &limits, 5).await.jobs.len(), 0);
    kit.settle(worker, &claim, retry(HOUR, 1)).await;
    assert_eq!(take_soon(kit, worker, &limits, 5).await.jobs[0].job.id, second);
}

async fn a_lost_worker_leaves_no_place_taken(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 2), at_once(Per::All, 5)]);
    for key in ["a", "b", "c"] {
        fill(kit, &of_key(key), 10).await;
    }
    assert_eq!(take(kit, worker, &limits, 10).await.jobs.len(), 5);
    kit.clock.advance(TTL + SECOND);
    let next = kit.worker().await;
    assert_eq!(take(kit, next, &limits, 10).await.jobs.len(), 0, "nobody knows that it is lost");
    assert_eq!(kit.rescue().await.ready, 5);
    let claim = take_soon(kit, next, &limits, 10).await;
    assert_eq!(claim.jobs.len(), 5);
    assert!(by_key(&claim).values().all(|number| *number <= 2));
    kit.store.deregister(next).await.unwrap();
    let last = kit.worker().await;
    assert_eq!(take_soon(kit, last, &limits, 10).await.jobs.len(), 5);
}

async fn a_stale_settle_frees_nothing(kit: &Kit) {
    let (lost, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    fill(kit, &of_key("a"), 3).await;
    let old = take(kit, lost, &limits, 5).await;
    kit.lose_workers().await;
    let worker = kit.worker().await;
    let claim = take_soon(kit, worker, &limits, 5).await;
    assert_eq!(claim.jobs.len(), 1);
    assert_eq!(kit.settle(lost, &old, done()).await, Settled::Stale);
    assert_eq!(take(kit, worker, &limits, 5).await.jobs.len(), 0);
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted, "sent again");
    assert_eq!(take_soon(kit, worker, &limits, 5).await.jobs.len(), 1);
    assert_eq!(take(kit, worker, &limits, 5).await.jobs.len(), 0, "sent again, it freed nothing");
}

fn rated(per: Per, jobs: u32, burst: u32) -> QueueLimit {
    let gate = format!("default/\u{1c}{per:?}");
    let rate = Some(Rate { jobs, per_ms: 1000, burst });
    QueueLimit { rate, ..limit(&gate, Counts::Per(per)) }
}

async fn a_rate_lets_one_pass_after_the_other(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [rated(Per::All, 10, 2)]);
    fill(kit, &job("k"), 200).await;
    let first = take(kit, worker, &limits, 50).await;
    assert_eq!(first.jobs.len(), 2, "the burst");
    settle_all(kit, worker, &first, &done()).await;
    let none = take(kit, worker, &limits, 50).await;
    assert_eq!(none.jobs.len(), 0);
    let tenth = Duration::from_millis(100);
    assert_eq!(none.next_due, Some(none.now + tenth));
    let mut passed = 0;
    for _ in 0..30 {
        kit.clock.advance(tenth);
        passed += take(kit, worker, &limits, 50).await.jobs.len();
        assert_eq!(take(kit, worker, &limits, 50).await.jobs.len(), 0);
    }
    assert_eq!(passed, 30);
    kit.clock.advance(HOUR);
    assert_eq!(take(kit, worker, &limits, 50).await.jobs.len(), 2, "a pause saves up the burst");
}

/// The settle of a job that was taken too late to be started.
async fn turn_back(kit: &Kit, worker: WorkerId, claim: &Claim, at: usize) {
    let failure = Failure::new("k", ErrorClass::Expired, "too late");
    let mut late = item(claim, at, Settlement::Dead { failure });
    for end in &mut late.gates {
        end.unused = Some(SECOND);
    }
    assert_eq!(kit.store.settle(worker, vec![late]).await.unwrap(), [Settled::Accepted]);
}

async fn what_was_not_started_uses_up_no_rate(kit: &Kit) {
    for per in [Per::All, Per::Key] {
        let (worker, limits) = (kit.worker().await, [rated(per, 1, 2)]);
        fill(kit, &of_key("a"), 5).await;
        let claim = take(kit, worker, &limits, 10).await;
        assert_eq!(claim.jobs.len(), 2, "{per:?}: the burst");
        assert!(take(kit, worker, &limits, 10).await.jobs.is_empty());
        kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
        turn_back(kit, worker, &claim, 1).await;
        let next = take_soon(kit, worker, &limits, 10).await;
        assert_eq!(next.jobs.len(), 1, "{per:?}: for the one that was not started");
        turn_back(kit, worker, &next, 0).await;
        let next = take_soon(kit, worker, &limits, 10).await;
        assert_eq!(next.jobs.len(), 1, "{per:?}: and again, at once");
        settle_all(kit, worker, &next, &done()).await;
        let none = take(kit, worker, &limits, 10).await;
        assert!(none.jobs.is_empty(), "{per:?}: what ran has used it up");
        kit.clock.advance(HOUR);
        let worker = kit.worker().await;
        let last = take(kit, worker, &limits, 10).await;
        assert_eq!(last.jobs.len(), 1, "{per:?}");
        settle_all(kit, worker, &last, &done()).await;
    }
}

async fn a_rate_by_key_spares_other_keys(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [rated(Per::Key, 1, 1)]);
    for key in ["a", "b", "c"] {
        fill(kit, &of_key(key), 4).await;
    }
    for _ in 0..4 {
        let claim = take(kit, worker, &limits, 50).await;
        assert_eq!(by_key(&claim).len(), 3, "one of each");
        assert_eq!(claim.jobs.len(), 3);
        let none = take(kit, worker, &limits, 50).await;
        assert_eq!(none.jobs.len(), 0);
        settle_all(kit, worker, &claim, &done()).await;
        kit.clock.advance(SECOND);
    }
    assert_eq!(take(kit, worker, &limits, 50).await.jobs.len(), 0, "all have run");
}

/// The settle of a handler that was told to come back later.
async fn hold(kit: &Kit, worker: WorkerId, claim: &Claim, at: usize, shut_for: Duration) {
    let failure = Failure::new("k", ErrorClass::RateLimited, "slow down");
    let how = Settlement::Again { delay: shut_for, spent: 0, failure: Some(failure) };
    let mut ended = item(claim, at, how);
    for end in &mut ended.gates {
        end.shut_for = Some(shut_for);
    }
    assert_eq!(kit.store.settle(worker, vec![ended]).await.unwrap(), [Settled::Accepted]);
}

async fn a_gate_that_was_shut_opens_by_the_clock(kit: &Kit) {
    let held = QueueLimit { hold: true, ..limit("default/\u{1c}", Counts::Per(Per::All)) };
    let (worker, limits) = (kit.worker().await, [held]);
    fill(kit, &job("k"), 20).await;
    let claim = take(kit, worker, &limits, 2).await;
    hold(kit, worker, &claim, 0, 30 * SECOND).await;
    let none = take(kit, worker, &limits, 5).await;
    assert_eq!((none.jobs.len(), none.next_due), (0, Some(none.now + 30 * SECOND)));
    // Another one asks for less; the longer one counts.
    hold(kit, worker, &claim, 1, 5 * SECOND).await;
    kit.clock.advance(29 * SECOND);
    assert_eq!(take(kit, worker, &limits, 5).await.jobs.len(), 0);
    kit.clock.advance(SECOND);
    assert_eq!(take(kit, worker, &limits, 50).await.jobs.len(), 20, "also those that were told");
}

async fn a_key_that_was_shut_spares_other_keys(kit: &Kit) {
    let held = QueueLimit { hold: true, ..limit("default/\u{1c}hold", Counts::Per(Per::Key)) };
    let (worker, limits) = (kit.worker().await, [held]);
    for key in ["a", "b"] {
        fill(kit, &of_key(key), 5).await;
    }
    let claim = take(kit, worker, &limits, 1).await;
    let key = claim.jobs[0].job.key.clone().unwrap();
    hold(kit, worker, &claim, 0, 30 * SECOND).await;
    let others = take(kit, worker, &limits, 50).await;
    assert_eq!(others.jobs.len(), 5);
    assert!(!by_key(&others).contains_key(&key));
    kit.clock.advance(30 * SECOND);
    // Whoever looks after the claim before may have them in hand just now: then the next one gets them.
    let all = async {
        let mut taken = 0;
        while taken < 5 {
            let claim = take(kit, worker, &limits, 50).await;
            assert!(claim.jobs.iter().all(|taken| taken.job.key.as_deref() == Some(&key)));
            taken += claim.jobs.len();
        }
        taken
    };
    let taken = tokio::time::timeout(20 * SECOND, all).await.expect("nobody is forgotten");
    assert_eq!(taken, 5);
}

async fn a_job_held_at_a_gate_can_be_called_off(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    kit.put(of_key("a")).await;
    kit.clock.advance(SECOND);
    let held = kit.put(of_key("a")).await;
    kit.clock.advance(SECOND);
    let third = kit.put(of_key("a")).await;
    let claim = take(kit, worker, &limits, 5).await;
    assert_eq!(claim.jobs.len(), 1);
    let view = kit.view(held).await;
    assert_eq!(
        (view.state, view.gate.as_deref()),
        (State::Ready, Some("default/\u{1c}Key\u{1f}a"))
    );
    assert_eq!(kit.store.cancel(vec![held], "no more").await.unwrap(), [CancelAnswer::Cancelled]);
    assert_eq!(kit.state(held).await, State::Cancelled);
    kit.settle(worker, &claim, done()).await;
    assert_eq!(take_soon(kit, worker, &limits, 5).await.jobs[0].job.id, third);
}

async fn a_job_held_at_a_gate_can_be_replaced(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    kit.put(of_key("a")).await;
    kit.clock.advance(SECOND);
    let once = unique("one", Scope::Unfinished, OnDuplicate::Replace).unique;
    let unique =
        |payload: &str| NewJob { unique: once.clone(), payload: json(payload), ..of_key("a") };
    let held = kit.put(unique("1")).await;
    let claim = take(kit, worker, &limits, 5).await;
    assert_eq!(claim.jobs.len(), 1);
    assert_eq!(kit.enqueue(unique("2")).await, Receipt::Replaced { id: held });
    kit.settle(worker, &claim, done()).await;
    let mut next = take(kit, worker, &limits, 5).await;
    if next.jobs.is_empty() {
        next = take_soon(kit, worker, &limits, 5).await;
    }
    assert_eq!(next.jobs[0].job.id, held);
    assert_eq!(next.jobs[0].job.payload.as_str(), "2");
}

async fn other_rules_let_everyone_try_anew(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    fill(kit, &of_key("a"), 10).await;
    assert_eq!(take(kit, worker, &limits, 20).await.jobs.len(), 1);
    assert!(kit.store.set_queue("default", Some(QueueRules::default())).await.unwrap());
    assert_eq!(take(kit, worker, &[at_once(Per::Key, 4)], 20).await.jobs.len(), 3);
    assert!(kit.store.set_queue("default", None).await.unwrap());
    assert_eq!(take(kit, worker, &[], 20).await.jobs.len(), 6, "without any limit");
}

async fn nobody_is_forgotten_at_a_gate_without_anyone_inside(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    let held: Vec<_> = [kit.put(of_key("a")).await, kit.put(of_key("a")).await].into();
    let claim = take(kit, worker, &limits, 5).await;
    assert_eq!(claim.jobs.len(), 1);
    // As if the limit were gone, and whoever settles knew of no gate.
    let mut ended = item(&claim, 0, done());
    ended.gates.clear();
    kit.store.settle(worker, vec![ended]).await.unwrap();
    assert_eq!(take(kit, worker, &[], 5).await.jobs.len(), 0);
    // Longer than a gate may stay open without a claim that knows of it: the one above may have looked back late.
    kit.clock.advance(6 * SECOND);
    kit.store.beat(worker).await.unwrap();
    kit.rescue().await;
    assert!(held.contains(&take(kit, worker, &[], 5).await.jobs[0].job.id));
}
