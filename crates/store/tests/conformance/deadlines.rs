//! Deadlines of jobs that nobody takes: dead in time, once, wherever they wait, and nobody else.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::dead::DeadFilter;
use tidemill_core::flow::{FlowState, Work};
use tidemill_core::gate::Per;
use tidemill_core::job::edit::{Changes, Edit};
use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::Waits;
use tidemill_core::{
    By, Due, ErrorClass, Failure, JobId, Limits, NewJob, OnDead, OnDuplicate, Options, Priority,
    QueueRules, RuleBook, Scope, Settlement, State,
};
use tidemill_store::request::Expired;
use tidemill_store::run::{Append, RunWrites};
use tidemill_store::{ClaimRequest, DeadLetter, EditAnswer, Hint, Receipt, Settled};

use super::depth::depth;
use super::flows;
use super::kit::{HOUR, Kit, SECOND, ask, dead, done, hears, ids, job, ordered, retry, unique};
use super::limits::{at_once, of_key, take, take_soon};
use super::plain_sql::run;

over_both_stores!(
    a_job_that_nobody_starts_in_time_is_dead,
    the_time_to_start_counts_from_when_it_is_due,
    the_time_to_finish_counts_from_its_enqueue,
    a_job_that_has_started_may_wait_for_its_retry,
    one_that_was_put_off_or_waits_has_started,
    a_run_that_was_lost_has_started,
    who_is_late_by_its_queue_has_not_started,
    one_that_runs_is_left_to_its_worker_until_it_waits_again,
    what_has_finished_is_left_as_it_is,
    a_longer_deadline_saves_it_and_a_shorter_one_ends_it,
    one_that_was_replayed_has_its_deadline_again,
    one_held_at_a_limit_dies_too,
    one_that_waits_in_a_line_lets_the_next_pass,
    its_key_is_free_and_its_flow_hears_of_it,
    a_deadline_beyond_all_time_is_none,
    jobs_of_plain_sql_have_deadlines_too,
    a_queue_has_deadlines_for_those_without,
    a_pattern_has_deadlines_for_its_queues,
    a_queue_has_deadlines_for_what_was_due_later_than_it_came,
    however_many_wait_in_a_higher_band_hide_nobody_who_is_late,
    thousands_die_in_parts,
    a_claim_and_a_deadline_at_the_same_time_agree,
);

fn starts_within(time: Duration) -> NewJob {
    let options = Options { start_within_ms: Some(time.as_millis() as u64), ..Options::default() };
    NewJob { options, ..job("k") }
}

fn finishes_within(time: Duration) -> NewJob {
    let options = Options { finish_within_ms: Some(time.as_millis() as u64), ..Options::default() };
    NewJob { options, ..job("k") }
}

async fn expire(kit: &Kit) -> u64 {
    let book = kit.store.queue_rules().await.unwrap();
    kit.store.expire(&book).await.unwrap().jobs
}

async fn letter(kit: &Kit, id: JobId) -> DeadLetter {
    let filter = DeadFilter { ids: vec![id], ..DeadFilter::default() };
    kit.store.dead(&filter, None, 10).await.unwrap().remove(0)
}

async fn change(kit: &Kit, id: JobId, text: &str) {
    let changes: Changes = serde_json::from_str(text).unwrap();
    let edit = Edit::new(changes, &Limits::default()).unwrap();
    assert_eq!(kit.store.edit(id, &edit).await.unwrap(), EditAnswer::Edited);
}

async fn a_job_that_nobody_starts_in_time_is_dead(kit: &Kit) {
    let id = kit.put(starts_within(SECOND * 5)).await;
    let other = kit.put(job("k")).await;
    kit.store.hint(Hint::Watch { id });
    let mut heard = kit.store.wake().listen();
    kit.clock.advance(Duration::from_millis(4999));
    assert_eq!(expire(kit).await, 0, "there is time left");
    assert_eq!(kit.state(id).await, State::Ready);
    kit.clock.advance(Duration::from_millis(1));
    assert_eq!(expire(kit).await, 1);
    hears(&mut heard, |hint| *hint == Hint::Finished { id }).await;
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt), (State::Dead, 0), "no attempt is spent");
    assert_eq!(view.error.as_deref(), Some("it did not start within its deadline"));
    assert_eq!(view.finished_at, Some(kit.clock.now()));
    let dead = letter(kit, id).await;
    assert_eq!((dead.class, dead.dead), (ErrorClass::Expired, true));
    assert_eq!(depth(kit, "default").await.depth(), 1, "it waits no longer");
    assert_eq!((kit.state(other).await, expire(kit).await), (State::Ready, 0));
    let worker = kit.worker().await;
    assert_eq!(ids(&kit.take(worker, 9).await), [other]);
}

async fn the_time_to_start_counts_from_when_it_is_due(kit: &Kit) {
    let id = kit.put(NewJob { due: Due::In(HOUR), ..starts_within(SECOND * 5) }).await;
    kit.clock.advance(SECOND * 6);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Scheduled));
    kit.clock.advance(SECOND * 3598);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready));
    kit.clock.advance(SECOND);
    assert_eq!((expire(kit).await, kit.state(id).await), (1, State::Dead));
}

async fn the_time_to_finish_counts_from_its_enqueue(kit: &Kit) {
    let id = kit.put(finishes_within(HOUR)).await;
    kit.run_to(id, retry(HOUR / 2, 1)).await;
    kit.clock.advance(SECOND * 3599);
    assert_eq!(expire(kit).await, 0);
    kit.clock.advance(SECOND);
    assert_eq!(expire(kit).await, 1);
    let view = kit.view(id).await;
    assert_eq!((view.state, view.attempt), (State::Dead, 1));
    assert_eq!(view.error.as_deref(), Some("it did not finish within its deadline"));
}

async fn a_job_that_has_started_may_wait_for_its_retry(kit: &Kit) {
    let id = kit.put(starts_within(SECOND)).await;
    kit.run_to(id, retry(SECOND, 1)).await;
    kit.clock.advance(HOUR);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready));
}

/// Ends of attempts that spend none.
fn unspent() -> [Settlement; 3] {
    let waits = Waits { until: None, mail_min: 1, what: vec!["go".to_owned()] };
    let waiting = Waiting { waits, read: 0, spent: 0, parked: None };
    let limited = Failure::new("k", ErrorClass::RateLimited, "later");
    let again = |failure| Settlement::Again { delay: SECOND, spent: 0, failure };
    [again(None), again(Some(limited)), Settlement::Wait(Box::new(waiting))]
}

async fn begun(kit: &Kit, id: JobId) -> bool {
    kit.store.begun_of(vec![id, JobId::new()]).await.unwrap().contains(&id)
}

async fn one_that_was_put_off_or_waits_has_started(kit: &Kit) {
    for settlement in unspent() {
        let id = kit.put(starts_within(SECOND * 2)).await;
        assert!(!begun(kit, id).await);
        kit.run_to(id, settlement).await;
        kit.clock.advance(HOUR);
        assert!(begun(kit, id).await);
        assert_eq!(expire(kit).await, 0);
        kit.store.cancel(vec![id], "seen").await.unwrap();
    }
    let id = kit.put(starts_within(SECOND * 2)).await;
    kit.run_to(id, unspent()[0].clone()).await;
    kit.clock.advance(SECOND);
    kit.run_to(id, dead("of itself")).await;
    kit.clock.advance(HOUR);
    assert_eq!(kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap(), [id]);
    assert!(!begun(kit, id).await, "not since it was replayed");
    kit.clock.advance(SECOND * 2);
    assert_eq!((expire(kit).await, kit.state(id).await), (1, State::Dead));
}

async fn a_run_that_was_lost_has_started(kit: &Kit) {
    let (plain, run) =
        (kit.put(starts_within(SECOND * 2)).await, kit.put(starts_within(SECOND * 2)).await);
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let entries = vec![(0, r#"{"noted":{"key":"a","value":1}}"#.to_owned())];
    let writes = RunWrites { begins: Some("v1".to_owned()), entries, ..RunWrites::default() };
    let append = Append { job: run, token: claim.token.unwrap(), writes };
    assert_eq!(kit.store.append(worker, vec![append]).await.unwrap(), [true]);
    kit.lose_workers().await;
    kit.clock.advance(HOUR);
    assert_eq!((begun(kit, plain).await, begun(kit, run).await), (false, true));
    assert_eq!(expire(kit).await, 1);
    assert_eq!((kit.state(plain).await, kit.state(run).await), (State::Dead, State::Ready));
}

async fn who_is_late_by_its_queue_has_not_started(kit: &Kit) {
    let rules = QueueRules { start_within_ms: Some(5000), ..QueueRules::default() };
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
    for settlement in unspent() {
        let id = kit.put(job("k")).await;
        kit.run_to(id, settlement).await;
    }
    let fresh = kit.put(job("k")).await;
    kit.clock.advance(HOUR);
    assert_eq!((expire(kit).await, kit.state(fresh).await), (1, State::Dead));
}

async fn one_that_runs_is_left_to_its_worker_until_it_waits_again(kit: &Kit) {
    let id = kit.put(starts_within(SECOND * 2)).await;
    let worker = kit.worker().await;
    kit.take_one(worker).await;
    kit.clock.advance(SECOND * 3);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Running));
    // A worker that stops gives it back unspent: it has not started yet.
    kit.store.deregister(worker).await.unwrap();
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready));
    kit.clock.advance(SECOND * 12);
    assert_eq!((expire(kit).await, kit.state(id).await), (1, State::Dead));
}

async fn what_has_finished_is_left_as_it_is(kit: &Kit) {
    let well = kit.finish(finishes_within(HOUR), done()).await;
    let ill = kit.finish(finishes_within(HOUR), dead("of itself")).await;
    let off = kit.put(finishes_within(HOUR)).await;
    kit.store.cancel(vec![off], "no").await.unwrap();
    kit.clock.advance(HOUR * 2);
    assert_eq!(expire(kit).await, 0);
    assert_eq!(kit.state(well).await, State::Done);
    assert_eq!(kit.view(ill).await.error.as_deref(), Some("of itself"));
    assert_eq!(kit.state(off).await, State::Cancelled);
    assert_eq!(kit.store.expire(&RuleBook::default()).await.unwrap(), Expired::default());
}

async fn a_longer_deadline_saves_it_and_a_shorter_one_ends_it(kit: &Kit) {
    let saved = kit.put(finishes_within(HOUR)).await;
    let ended = kit.put(finishes_within(HOUR * 9)).await;
    let given = kit.put(job("k")).await;
    change(kit, saved, r#"{"finish_within":"9h"}"#).await;
    change(kit, ended, r#"{"finish_within":"1h"}"#).await;
    change(kit, given, r#"{"start_within":"1h"}"#).await;
    assert_eq!(expire(kit).await, 0);
    kit.clock.advance(HOUR);
    assert_eq!(expire(kit).await, 2);
    assert_eq!((kit.state(ended).await, kit.state(given).await), (State::Dead, State::Dead));
    assert_eq!(kit.state(saved).await, State::Ready);
    kit.clock.advance(HOUR * 8);
    assert_eq!((expire(kit).await, kit.state(saved).await), (1, State::Dead));
}

async fn one_that_was_replayed_has_its_deadline_again(kit: &Kit) {
    let id = kit.put(starts_within(SECOND * 5)).await;
    kit.clock.advance(SECOND * 5);
    assert_eq!(expire(kit).await, 1);
    kit.clock.advance(HOUR);
    assert_eq!(kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap(), [id]);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready), "it counts anew");
    kit.clock.advance(SECOND * 5);
    assert_eq!((expire(kit).await, kit.state(id).await), (1, State::Dead));
    assert_eq!(letter(kit, id).await.redrives, 1);
    let id = kit.put(finishes_within(HOUR)).await;
    kit.clock.advance(HOUR * 24);
    assert_eq!(expire(kit).await, 1);
    kit.clock.advance(HOUR);
    assert_eq!(kit.store.dead_replay(&[id], "ada".into(), None).await.unwrap(), [id]);
    kit.clock.advance(SECOND * 3599);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready), "all its time");
    kit.clock.advance(SECOND);
    assert_eq!((expire(kit).await, kit.state(id).await), (1, State::Dead));
}

async fn one_held_at_a_limit_dies_too(kit: &Kit) {
    let (worker, limits) = (kit.worker().await, [at_once(Per::Key, 1)]);
    let first = kit.put(of_key("a")).await;
    let held = kit.put(NewJob { key: Some("a".into()), ..starts_within(SECOND) }).await;
    let last = kit.put(of_key("a")).await;
    let claim = take(kit, worker, &limits, 9).await;
    assert_eq!(ids(&claim), [first]);
    kit.clock.advance(SECOND);
    assert_eq!((expire(kit).await, kit.state(held).await), (1, State::Dead));
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    assert_eq!(ids(&take_soon(kit, worker, &limits, 9).await), [last]);
}

async fn one_that_waits_in_a_line_lets_the_next_pass(kit: &Kit) {
    let within =
        Options { start_within_ms: Some(1000), ordered: Some(OnDead::Skip), ..Options::default() };
    let first = kit.put(NewJob { options: within, ..ordered("a", OnDead::Skip) }).await;
    let next = kit.put(ordered("a", OnDead::Skip)).await;
    assert_eq!(kit.state(next).await, State::Blocked);
    kit.clock.advance(SECOND);
    assert_eq!((expire(kit).await, kit.state(first).await), (1, State::Dead));
    assert_eq!(kit.state(next).await, State::Ready);
}

async fn its_key_is_free_and_its_flow_hears_of_it(kit: &Kit) {
    let keyed = || NewJob {
        options: starts_within(SECOND).options,
        ..unique("one", Scope::Unfinished, OnDuplicate::Reject)
    };
    let first = kit.put(keyed()).await;
    assert!(matches!(kit.enqueue(keyed()).await, Receipt::Rejected { .. }));
    let mut step = flows::step("a", &[]);
    let Work::Jobs(jobs) = &mut step.work else { panic!("it has jobs") };
    jobs[0].options.start_within_ms = Some(1000);
    let flow = flows::start(kit, vec![step, flows::step("b", &["a"])]).await;
    kit.clock.advance(SECOND);
    assert_eq!((expire(kit).await, kit.state(first).await), (2, State::Dead));
    kit.put(keyed()).await;
    flows::tend(kit).await;
    assert_eq!(flows::state(kit, flow).await, FlowState::Failed);
}

async fn a_deadline_beyond_all_time_is_none(kit: &Kit) {
    let ever = Options {
        start_within_ms: Some(u64::MAX),
        finish_within_ms: Some(u64::MAX / 2),
        ..Options::default()
    };
    let id = kit.put(NewJob { options: ever, ..job("k") }).await;
    kit.clock.advance(HOUR * 24 * 365 * 50);
    assert_eq!((expire(kit).await, kit.state(id).await), (0, State::Ready));
}

async fn jobs_of_plain_sql_have_deadlines_too(kit: &Kit) {
    let sql =
        r#"INSERT INTO tidemill_enqueue (kind, options) VALUES ('k', '{"start_within_ms":1}')"#;
    run(kit, sql).await.unwrap();
    // Plain SQL goes by the database's own clock, in the year 2026 or later.
    kit.clock.advance(HOUR * 24 * 365 * 100);
    assert_eq!(expire(kit).await, 1);
}

async fn a_queue_has_deadlines_for_those_without(kit: &Kit) {
    let rules = QueueRules {
        start_within_ms: Some(5000),
        finish_within_ms: Some(60_000),
        ..QueueRules::default()
    };
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
    let plain = kit.put(job("k")).await;
    let of_tenant = kit.put(NewJob { tenant: Some("t".into()), ..job("k") }).await;
    let tried = kit.put(job("tried")).await;
    let worker = kit.worker().await;
    let kinds = Some(Arc::new(vec!["tried".to_owned()]));
    let claim = kit.store.claim(ClaimRequest { kinds, ..ask(worker, "default", 1) }).await.unwrap();
    assert_eq!(ids(&claim), [tried]);
    kit.settle(worker, &claim, retry(Duration::ZERO, 1)).await;
    let patient = kit.put(starts_within(HOUR)).await;
    let elsewhere = kit.put(NewJob { queue: "q".into(), ..job("k") }).await;
    kit.clock.advance(SECOND * 5);
    assert_eq!(expire(kit).await, 2);
    assert_eq!((kit.state(plain).await, kit.state(of_tenant).await), (State::Dead, State::Dead));
    assert_eq!((kit.state(tried).await, kit.state(patient).await), (State::Ready, State::Ready));
    kit.clock.advance(SECOND * 55);
    assert_eq!(expire(kit).await, 2, "they have the queue's time to finish");
    assert_eq!((kit.state(tried).await, kit.state(patient).await), (State::Dead, State::Dead));
    assert_eq!(kit.state(elsewhere).await, State::Ready);
}

async fn a_pattern_has_deadlines_for_its_queues(kit: &Kit) {
    let rules = QueueRules { start_within_ms: Some(5000), ..QueueRules::default() };
    assert!(kit.store.set_queue("mail:*", Some(rules)).await.unwrap());
    let late = kit.put(NewJob { queue: "mail:a".into(), ..job("k") }).await;
    let other = kit.put(NewJob { queue: "news".into(), ..job("k") }).await;
    kit.clock.advance(SECOND * 5);
    assert_eq!(expire(kit).await, 1);
    assert_eq!((kit.state(late).await, kit.state(other).await), (State::Dead, State::Ready));
}

async fn thousands_die_in_parts(kit: &Kit) {
    const JOBS: usize = 1200;
    let new = |_| NewJob { id: JobId::new(), ..starts_within(SECOND) };
    kit.store.enqueue((0..JOBS).map(new).collect()).await.unwrap();
    kit.clock.advance(SECOND);
    let (mut died, mut parts) = (0, 0);
    loop {
        let Expired { jobs, more } = kit.store.expire(&RuleBook::default()).await.unwrap();
        (died, parts) = (died + jobs, parts + 1);
        if !more {
            break;
        }
    }
    assert_eq!((died, parts), (JOBS as u64, 3));
    assert_eq!(depth(kit, "default").await.depth(), 0);
}

async fn a_claim_and_a_deadline_at_the_same_time_agree(kit: &Kit) {
    let (worker, book) = (kit.worker().await, RuleBook::default());
    let neighbour = kit.neighbour().await;
    for _ in 0..20 {
        let new = |_| NewJob { id: JobId::new(), ..starts_within(SECOND) };
        let jobs: Vec<NewJob> = (0..30).map(new).collect();
        let sent: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        kit.store.enqueue(jobs).await.unwrap();
        kit.clock.advance(SECOND);
        let (one, other, claim) =
            tokio::join!(kit.store.expire(&book), neighbour.expire(&book), kit.take(worker, 10));
        let died = one.unwrap().jobs + other.unwrap().jobs;
        let taken = ids(&claim);
        assert_eq!(died as usize + taken.len(), sent.len(), "each of them once");
        for id in sent {
            let expected = if taken.contains(&id) { State::Running } else { State::Dead };
            assert_eq!(kit.state(id).await, expected);
        }
        for at in 0..taken.len() {
            let item = super::kit::item(&claim, at, done());
            let settled = kit.store.settle(worker, vec![item]).await.unwrap();
            assert_eq!(settled, [Settled::Accepted]);
        }
    }
    neighbour.close().await;
}

async fn a_queue_has_deadlines_for_what_was_due_later_than_it_came(kit: &Kit) {
    let rules = QueueRules { finish_within_ms: Some(60_000), ..QueueRules::default() };
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
    for tenant in [None, Some("t".to_owned())] {
        let new = || NewJob { tenant: tenant.clone(), ..job("k") };
        let replayed = kit.finish(new(), dead("no")).await;
        let tried = kit.put(new()).await;
        kit.run_to(tried, retry(SECOND * 50, 1)).await;
        let put_off = kit.put(new()).await;
        kit.run_to(put_off, retry(SECOND * 50, 0)).await;
        let delayed = kit.put(NewJob { due: Due::In(SECOND * 50), ..new() }).await;
        kit.clock.advance(SECOND * 30);
        let by = By { who: "ada", why: None };
        assert_eq!(kit.store.dead_replay(&[replayed], by, None).await.unwrap(), [replayed]);
        kit.clock.advance(SECOND * 29);
        assert_eq!(expire(kit).await, 0, "there is a second left");
        kit.clock.advance(SECOND);
        assert_eq!(expire(kit).await, 3);
        for id in [tried, put_off, delayed] {
            assert_eq!(kit.state(id).await, State::Dead);
        }
        kit.clock.advance(SECOND * 29);
        assert_eq!(expire(kit).await, 0, "it has all its time again");
        kit.clock.advance(SECOND);
        assert_eq!((expire(kit).await, kit.state(replayed).await), (1, State::Dead));
    }
}

async fn however_many_wait_in_a_higher_band_hide_nobody_who_is_late(kit: &Kit) {
    let rules = QueueRules { finish_within_ms: Some(60_000), ..QueueRules::default() };
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
    for tenant in [None, Some("t".to_owned())] {
        let new = |priority| NewJob { tenant: tenant.clone(), priority, ..job("k") };
        let delayed = NewJob { due: Due::In(SECOND * 30), ..new(Priority::Low) };
        let late = kit.put(delayed).await;
        kit.clock.advance(SECOND * 29);
        let others: Vec<NewJob> = (0..300).map(|_| new(Priority::Urgent)).collect();
        let ids: Vec<JobId> = others.iter().map(|job| job.id).collect();
        kit.store.enqueue(others).await.unwrap();
        kit.clock.advance(SECOND * 31);
        assert_eq!((expire(kit).await, kit.state(late).await), (1, State::Dead));
        kit.store.cancel(ids, "seen").await.unwrap();
    }
}
