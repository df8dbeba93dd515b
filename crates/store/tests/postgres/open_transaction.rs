//! Callers whose transactions stay open: they hold up nothing but what they change.

use std::sync::Arc;

use tidemill_core::{ErrorClass, Failure, NewJob, OnDuplicate, Scope, Settlement, UniqueKey};
use tidemill_store::Settled;
use tidemill_testkit::databases::fresh_postgres_url;
use tokio::time::timeout;

use super::kit::{SOON, ask, connect, done, ids, items, job, store, worker};

const HELD: &str =
    "insert into tidemill_enqueue (kind, unique_key, on_duplicate) values ('k', 'a', ";

fn keyed() -> NewJob {
    let (key, on_duplicate) = (UniqueKey::given("k", "a"), OnDuplicate::default());
    let unique = UniqueKey {
        key,
        scope: Scope::default(),
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(unique), ..job() }
}

#[tokio::test]
async fn who_learns_of_a_duplicate_does_not_hold_up_the_end_of_the_other() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    for policy in ["reject", "join", "throttle"] {
        store.enqueue(vec![keyed()]).await.unwrap();
        let claim = store.claim(ask(worker, 1)).await.unwrap();
        let caller = connect(&url).await;
        caller.batch_execute(&format!("begin; {HELD} '{policy}')")).await.unwrap();
        let settled = timeout(SOON, store.settle(worker, items(&claim, &done()))).await;
        assert_eq!(settled.unwrap().unwrap(), [Settled::Accepted], "{policy}");
        caller.batch_execute("commit").await.unwrap();
    }
    store.close().await;
}

#[tokio::test]
async fn a_job_that_a_caller_relies_on_starts_when_the_caller_has_committed() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    for end in ["commit", "rollback"] {
        store.enqueue(vec![keyed()]).await.unwrap();
        let caller = connect(&url).await;
        caller.batch_execute(&format!("begin; {HELD} 'run_once_more')")).await.unwrap();
        let none = store.claim(ask(worker, 1)).await.unwrap();
        assert!(none.jobs.is_empty(), "it would not see what the caller writes");
        caller.batch_execute(end).await.unwrap();
        let claim = store.claim(ask(worker, 1)).await.unwrap();
        assert_eq!(claim.jobs.len(), 1, "{end}");
        store.settle(worker, items(&claim, &done())).await.unwrap();
        assert!(store.claim(ask(worker, 1)).await.unwrap().jobs.is_empty(), "there was one");
    }
    store.close().await;
}

#[tokio::test]
async fn a_letter_that_is_purged_at_this_moment_is_not_replayed_and_keeps_no_key() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    store.enqueue(vec![keyed()]).await.unwrap();
    let claim = store.claim(ask(worker, 1)).await.unwrap();
    let dead = Settlement::Dead { failure: Failure::new("k", ErrorClass::Permanent, "no") };
    store.settle(worker, items(&claim, &dead)).await.unwrap();
    let id = ids(&claim)[0];
    let purger = connect(&url).await;
    purger.batch_execute("begin").await.unwrap();
    let purge = include_str!("../../src/postgres/sql/purge.sql");
    purger.query(purge, &[&vec![id.0]]).await.unwrap();
    let replay = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.dead_replay(&[id], "me".into(), None).await }
    });
    let looker = connect(&url).await;
    let waits = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let blocked = async { while looker.query(waits, &[]).await.unwrap().is_empty() {} };
    timeout(SOON, blocked).await.unwrap();
    purger.batch_execute("commit").await.unwrap();
    let replayed = timeout(SOON, replay).await.unwrap().unwrap().unwrap();
    assert!(replayed.is_empty(), "{replayed:?}");
    for table in ["unique_key", "attempt", "job"] {
        let rows = looker.query(&format!("select from tidemill.{table}"), &[]).await.unwrap();
        assert!(rows.is_empty(), "{table}");
    }
    store.close().await;
}
