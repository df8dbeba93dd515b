//! Settle, cancel and rescue lock in one order: whoever comes second waits, and nobody in a ring.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{NewJob, OnDead, OnDuplicate, Options, Payload, Scope, Settlement, UniqueKey};
use tidemill_store::Settled;
use tidemill_store::request::{RescueRules, Rescued};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;
use tokio_postgres::Client;

use super::kit::{SOON, ask, connect, done, items, job, store, worker};

fn keyed(key: &str) -> NewJob {
    let (scope, on_duplicate) = (Scope::Unfinished, OnDuplicate::Reject);
    let key = UniqueKey {
        key: UniqueKey::given("k", key),
        scope,
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(key), ..job() }
}

/// Every loss of a worker is one too many, and every worker is lost: all that it held is dead.
const AT_ONCE: RescueRules =
    RescueRules { lease_ttl: Duration::ZERO, clear_for: None, lost_max: 1 };

pub async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// How many sessions wait for a lock in this database.
pub const WAITING: &str = "select count(*) from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'";

/// Waits until this many others wait for a lock in this database.
pub async fn waiting(client: &Client, others: i64) {
    eventually("sessions that wait", SOON, async || {
        (count(client, WAITING).await == others).then_some(())
    })
    .await;
}

/// How many deadlocks the server has broken in this database; exact once all others have left.
pub async fn deadlocks(client: &Client) -> i64 {
    const OTHERS: &str = "select count(*) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    eventually("the others to leave", SOON, async || {
        (count(client, OTHERS).await == 0).then_some(())
    })
    .await;
    count(client, "select deadlocks from pg_stat_database where datname = current_database()").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_settle_and_a_rescue_of_keyed_jobs_do_not_wait_for_each_other() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    one.enqueue(vec![keyed("a"), keyed("b")]).await.unwrap();
    let mine = worker(&one).await;
    let claim = one.claim(ask(mine, 2)).await.unwrap();
    // The settle gets the key `a` and waits for `b`; the rescue comes while it does.
    let mut third = connect(&url).await;
    let holding = third.transaction().await.unwrap();
    holding
        .execute("select from tidemill.unique_key where key like '%b' for update", &[])
        .await
        .unwrap();
    let settling = {
        let (one, items) = (Arc::clone(&one), items(&claim, &done()));
        tokio::spawn(async move { one.settle(mine, items).await.unwrap() })
    };
    let looking = connect(&url).await;
    waiting(&looking, 1).await;
    let rescuing = {
        let two = Arc::clone(&two);
        tokio::spawn(async move { two.rescue(AT_ONCE).await.unwrap() })
    };
    waiting(&looking, 2).await;
    holding.rollback().await.unwrap();
    assert_eq!(settling.await.unwrap(), [Settled::Accepted; 2], "it came first");
    let rescued = Rescued { workers: 1, ..Rescued::default() };
    assert_eq!(rescuing.await.unwrap(), rescued, "nothing was left to rescue");
    one.close().await;
    two.close().await;
    drop(third);
    assert_eq!(deadlocks(&looking).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settles_and_rescues_of_many_keyed_jobs_meet_without_a_deadlock() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let looking = connect(&url).await;
    for round in 0..40 {
        let jobs = (0..20).map(|n| keyed(&format!("{round} {n}"))).collect();
        one.enqueue(jobs).await.unwrap();
        let mine = worker(&one).await;
        let (first, second) = (ask(mine, 10), ask(mine, 10));
        let first = one.claim(first).await.unwrap();
        let second = two.claim(second).await.unwrap();
        let mut all = items(&first, &done());
        all.extend(items(&second, &done()));
        // Against the order of keys and of tokens.
        all.reverse();
        let (settled, rescued) = tokio::join!(one.settle(mine, all), two.rescue(AT_ONCE));
        let accepted = settled.unwrap().iter().filter(|a| **a == Settled::Accepted).count();
        assert_eq!(accepted as u64 + rescued.unwrap().poisoned, 20, "each has one way");
    }
    one.close().await;
    two.close().await;
    assert_eq!(deadlocks(&looking).await, 0);
}

fn ordered(key: usize) -> NewJob {
    let options = Options { ordered: Some(OnDead::Skip), ..Options::default() };
    NewJob { key: Some(format!("line {key}")), options, ..job() }
}

/// One of a line that takes the place of the one before it of the same unique key.
fn replacing(key: &str, line: usize) -> NewJob {
    let (scope, on_duplicate) = (Scope::Unfinished, OnDuplicate::Replace);
    let key = UniqueKey {
        key: UniqueKey::given("k", key),
        scope,
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(key), ..ordered(line) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_batch_that_replaces_jobs_of_a_line_locks_all_its_keys_first() {
    let url = fresh_postgres_url();
    let one = store(&url).await;
    one.enqueue(vec![replacing("a", 0), replacing("b", 0)]).await.unwrap();
    let mut third = connect(&url).await;
    let holding = third.transaction().await.unwrap();
    let hold = "select from tidemill.unique_key where key like '%b' for update";
    holding.execute(hold, &[]).await.unwrap();
    let moving = {
        let one = Arc::clone(&one);
        tokio::spawn(async move { one.enqueue(vec![replacing("a", 1), replacing("b", 1)]).await })
    };
    let looking = connect(&url).await;
    waiting(&looking, 1).await;
    // It waits for the key, and holds nothing that whoever has the key may want next: this would be a ring.
    let lock = "select tidemill.lock_lines(array['default'], array[null], array['line 0'])";
    holding.execute(lock, &[]).await.unwrap();
    holding.rollback().await.unwrap();
    assert_eq!(moving.await.unwrap().unwrap().len(), 2);
    one.close().await;
    drop(third);
    assert_eq!(deadlocks(&looking).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_settles_cancels_and_rescues_of_lines_meet_without_a_deadlock() {
    const LINES: usize = 8;
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let looking = connect(&url).await;
    for _ in 0..30 {
        let up: Vec<_> = (0..LINES * 3).map(|n| ordered(n % LINES)).collect();
        let down: Vec<_> = (0..LINES * 3).map(|n| ordered(LINES - 1 - n % LINES)).collect();
        let called_off: Vec<_> = up.iter().step_by(2).map(|job| job.id).collect();
        one.enqueue(up).await.unwrap();
        let (mine, lost) = (worker(&one).await, worker(&two).await);
        let first = one.claim(ask(mine, LINES / 2)).await.unwrap();
        two.claim(ask(lost, LINES)).await.unwrap();
        let mut all = items(&first, &done());
        all.reverse();
        let follow_ups = vec![ordered(1), ordered(0)];
        all[0].settlement = Settlement::Done { output: Payload::null(), follow_ups };
        let (sent, settled, cancelled, rescued) = tokio::join!(
            two.enqueue(down),
            one.settle(mine, all),
            two.cancel(called_off, "enough"),
            one.rescue(AT_ONCE),
        );
        assert!(sent.is_ok() && settled.is_ok() && cancelled.is_ok() && rescued.is_ok());
    }
    // Whatever they did to each other, no line has lost its first.
    let mine = worker(&one).await;
    loop {
        let claim = one.claim(ask(mine, 100)).await.unwrap();
        if claim.jobs.is_empty() {
            break;
        }
        one.settle(mine, items(&claim, &done())).await.unwrap();
    }
    assert_eq!(one.unfinished().await.unwrap().waiting, 0);
    assert_eq!(count(&looking, "select count(*) from tidemill.line").await, 0);
    one.close().await;
    two.close().await;
    assert_eq!(deadlocks(&looking).await, 0);
}
