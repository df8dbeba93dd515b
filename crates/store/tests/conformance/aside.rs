//! What tenants have that only waits for the clock is laid aside, so that turns pass it by; to everybody else it waits
//! as before.

use std::collections::HashSet;

use tidemill_core::job::edit::Edit;
use tidemill_core::{Due, JobId, NewJob, OnDuplicate, Overflow, Priority, Scope, State};
use tidemill_store::{EditAnswer, JobFilter, Receipt, Settled};

use super::bounds::bound;
use super::kit::{HOUR, Kit, SECOND, done, ids, item, job, retry, unique};
use super::plain_sql;

over_both_stores!(
    what_was_laid_aside_comes_back_when_it_is_due,
    more_than_one_claim_brings_back_is_taken_to_the_last,
    retries_of_many_tenants_are_laid_aside_and_come_back,
    what_has_no_tenant_is_not_laid_aside,
    it_can_be_cancelled_and_run_now,
    it_moves_to_another_band_and_back,
    it_is_replaced_by_another_of_its_key,
    it_is_replaced_by_plain_sql,
    it_is_dropped_where_room_is_needed,
    it_is_listed_and_counted_as_what_waits_for_the_clock,
);

/// More than a round meets without laying it aside.
const IDLE: usize = 200;
/// What a round meets and leaves.
const LEFT: usize = 64;

fn of(tenant: &str) -> NewJob {
    NewJob { tenant: Some(tenant.into()), ..job("k") }
}

fn later(number: usize) -> NewJob {
    NewJob { due: Due::In(HOUR), ..of(&format!("idle {number:05}")) }
}

/// How many jobs of tenants with such a name are laid aside, by a look from outside.
async fn laid_aside(kit: &Kit, like: &str) -> i64 {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let conn = rusqlite::Connection::open(file).unwrap();
        let count = "select count(*) from tidemill_ready where line = 3 and tenant like ?1";
        return conn.query_one(count, [like], |row| row.get(0)).unwrap();
    }
    let (client, connection) =
        tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let count = "select coalesce(sum(cardinality(ids) - taken), 0)::int8 from tidemill.ready \
                 where line = 3 and tenant like $1";
    client.query_one(count, &[&like]).await.unwrap().get(0)
}

/// Many tenants that have nothing due stand behind the one that is served next.
async fn surround(kit: &Kit, priority: Priority) {
    let worker = kit.worker().await;
    kit.put(NewJob { priority, ..of("busy") }).await;
    while finish_one(kit, worker).await {}
    kit.store.deregister(worker).await.unwrap();
    let others = (0..IDLE).map(|number| NewJob { priority, ..later(number) });
    kit.store.enqueue(others.collect()).await.unwrap();
}

/// Takes turns in a band until this many of such a name are laid aside.
async fn pass_by(kit: &Kit, priority: Priority, like: &str, number: usize) {
    let worker = kit.worker().await;
    for claims in 0.. {
        let laid = laid_aside(kit, like).await;
        if laid >= number as i64 {
            break;
        }
        assert!(claims < 100, "{laid} are laid aside");
        kit.put(NewJob { priority, ..of("busy") }).await;
        finish_one(kit, worker).await;
    }
    while finish_one(kit, worker).await {}
    kit.store.deregister(worker).await.unwrap();
}

/// Answers whether there was one.
async fn finish_one(kit: &Kit, worker: tidemill_core::WorkerId) -> bool {
    let claim = kit.take(worker, 1).await;
    if claim.jobs.is_empty() {
        return claim.next_due.is_some_and(|at| at <= kit.clock.now() + SECOND);
    }
    assert_eq!(kit.settle(worker, &claim, done()).await, Settled::Accepted);
    true
}

/// Lays one aside, with those of many other tenants.
async fn lay_aside(kit: &Kit, one: NewJob) -> JobId {
    let priority = one.priority;
    surround(kit, priority).await;
    let one = NewJob { id: JobId::new(), tenant: Some("calm".into()), due: Due::In(HOUR), ..one };
    let one = kit.put(one).await;
    pass_by(kit, priority, "calm", 1).await;
    one
}

async fn what_was_laid_aside_comes_back_when_it_is_due(kit: &Kit) {
    let (one, worker) = (lay_aside(kit, job("k")).await, kit.worker().await);
    let claim = kit.take(worker, 1000).await;
    assert!(claim.jobs.is_empty(), "{:?}", ids(&claim));
    assert_eq!(claim.next_due, Some(kit.clock.now() + HOUR), "whoever asks sets the alarm by it");
    kit.clock.advance(HOUR);
    let claim = kit.take(worker, 1000).await;
    assert_eq!(ids(&claim).into_iter().collect::<HashSet<_>>().len(), IDLE + 1);
    assert!(ids(&claim).contains(&one));
    assert_eq!(laid_aside(kit, "%").await, 0);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, 0);
}

async fn more_than_one_claim_brings_back_is_taken_to_the_last(kit: &Kit) {
    const MANY: usize = 2500;
    kit.store.enqueue((0..MANY).map(later).collect()).await.unwrap();
    pass_by(kit, Priority::Normal, "%", MANY - LEFT).await;
    let worker = kit.worker().await;
    kit.clock.advance(HOUR);
    let mut taken = HashSet::new();
    while taken.len() < MANY {
        let claim = kit.take(worker, 2000).await;
        assert!(!claim.jobs.is_empty(), "{} of {MANY}", taken.len());
        taken.extend(ids(&claim));
        let is_told = claim.next_due.is_some_and(|at| at <= kit.clock.now());
        let is_short = claim.jobs.len() < 2000;
        assert!(is_told || !is_short || taken.len() == MANY, "there is more than {}", taken.len());
    }
}

async fn retries_of_many_tenants_are_laid_aside_and_come_back(kit: &Kit) {
    let worker = kit.worker().await;
    kit.store.enqueue((0..IDLE).map(|n| of(&format!("t{n:03}"))).collect()).await.unwrap();
    let claim = kit.take(worker, IDLE).await;
    let failed = (0..IDLE).map(|at| item(&claim, at, retry(HOUR, 1)));
    kit.store.settle(worker, failed.collect()).await.unwrap();
    pass_by(kit, Priority::Normal, "%", IDLE - LEFT).await;
    kit.clock.advance(HOUR);
    let again = kit.take(worker, IDLE).await;
    assert_eq!(again.jobs.len(), IDLE);
    assert!(again.jobs.iter().all(|taken| taken.attempt == 2));
}

async fn what_has_no_tenant_is_not_laid_aside(kit: &Kit) {
    let alone = kit.put(NewJob { due: Due::In(HOUR), ..job("k") }).await;
    kit.store.enqueue((0..IDLE).map(later).collect()).await.unwrap();
    pass_by(kit, Priority::Normal, "%", IDLE - LEFT).await;
    assert_eq!(laid_aside(kit, "").await, 0);
    let worker = kit.worker().await;
    assert!(kit.take(worker, 1000).await.jobs.is_empty());
    kit.clock.advance(HOUR);
    let claim = kit.take(worker, 1000).await;
    assert_eq!(claim.jobs.len(), IDLE + 1);
    assert!(ids(&claim).contains(&alone));
}

async fn it_can_be_cancelled_and_run_now(kit: &Kit) {
    let one = lay_aside(kit, job("k")).await;
    assert!(kit.store.run_now(one).await.unwrap());
    kit.run_to(one, retry(HOUR, 1)).await;
    let other = lay_aside(kit, job("k")).await;
    assert_eq!(laid_aside(kit, "calm").await, 2, "the one that is to be tried again, too");
    kit.store.cancel(vec![one, other], "enough").await.unwrap();
    for id in [one, other] {
        assert_eq!(kit.state(id).await, State::Cancelled);
    }
    assert_eq!(laid_aside(kit, "calm").await, 0);
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    assert_eq!(
        kit.take(worker, 1000).await.jobs.len(),
        2 * IDLE,
        "all others, and neither of these"
    );
}

async fn it_moves_to_another_band_and_back(kit: &Kit) {
    let one = lay_aside(kit, job("k")).await;
    for priority in [Priority::Low, Priority::Normal] {
        assert_eq!(kit.store.edit(one, &Edit::to(priority)).await.unwrap(), EditAnswer::Edited);
        assert_eq!(kit.view(one).await.job.priority, priority);
        assert_eq!(kit.state(one).await, State::Scheduled);
    }
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 1000).await.jobs.len(), IDLE + 1);
}

fn the_same() -> NewJob {
    let same = unique("same", Scope::Unfinished, OnDuplicate::Replace);
    NewJob { tenant: Some("calm".into()), ..same }
}

async fn it_is_replaced_by_another_of_its_key(kit: &Kit) {
    let one = lay_aside(kit, the_same()).await;
    assert_eq!(kit.enqueue(the_same()).await, Receipt::Replaced { id: one });
    assert_eq!(kit.state(one).await, State::Ready, "due at once, as the later one wished");
    kit.run_to(one, done()).await;
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    assert_eq!(kit.take(worker, 1000).await.jobs.len(), IDLE, "it was there once");
}

async fn it_is_replaced_by_plain_sql(kit: &Kit) {
    surround(kit, Priority::Normal).await;
    let wish = |payload| {
        format!(
            "INSERT INTO tidemill_enqueue (kind, tenant, unique_key, on_duplicate, delay_ms, payload) \
             VALUES ('k', 'calm', 'same', 'replace', 3600000, '{payload}')"
        )
    };
    plain_sql::run(kit, &wish("1")).await.unwrap();
    pass_by(kit, Priority::Normal, "calm", 1).await;
    plain_sql::run(kit, &wish("2")).await.unwrap();
    let filter = JobFilter {
        tenant: Some("calm".into()),
        state: Some(State::Scheduled),
        ..JobFilter::default()
    };
    let there = kit.store.jobs(&filter).await.unwrap().jobs;
    assert_eq!(there.iter().map(|view| view.job.payload.as_str()).collect::<Vec<_>>(), ["2"]);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, IDLE as u64 + 1);
}

async fn it_is_dropped_where_room_is_needed(kit: &Kit) {
    let one = lay_aside(kit, NewJob { priority: Priority::Low, ..job("k") }).await;
    bound(kit, "default", IDLE as u64 + 1, Overflow::DropOldest).await;
    kit.store.enqueue((0..=IDLE).map(|_| job("k")).collect()).await.unwrap();
    assert_eq!(kit.state(one).await, State::Cancelled);
    assert_eq!(laid_aside(kit, "%").await, 0, "all of the lowest band have gone");
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, IDLE as u64 + 1);
}

async fn it_is_listed_and_counted_as_what_waits_for_the_clock(kit: &Kit) {
    let one = lay_aside(kit, job("k")).await;
    assert_eq!(kit.state(one).await, State::Scheduled);
    let filter = JobFilter {
        state: Some(State::Scheduled),
        tenant: Some("calm".into()),
        ..JobFilter::default()
    };
    let listed = kit.store.jobs(&filter).await.unwrap().jobs;
    assert_eq!(listed.iter().map(|view| view.job.id).collect::<Vec<_>>(), [one]);
    assert_eq!(kit.store.unfinished().await.unwrap().waiting, IDLE as u64 + 1);
    let lane = kit.store.lane(one).await.unwrap().expect("it waits");
    assert_eq!((lane.ahead, lane.ahead_of_tenant), (IDLE as u64, 0));
    kit.clock.advance(HOUR + SECOND);
    // Due, and not brought back before somebody asks.
    let urgent = kit.put(NewJob { priority: Priority::Urgent, ..of("busy") }).await;
    let lane = kit.store.lane(urgent).await.unwrap().expect("it waits");
    assert_eq!(lane.others.get(&Priority::Normal), Some(&(IDLE as u64 + 1)));
}
