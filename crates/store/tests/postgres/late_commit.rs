//! Transactions that commit late bring jobs that were due before what was claimed meanwhile.

use std::time::{Duration, Instant};

use tidemill_core::Payload;
use tidemill_store::postgres::adapter::enqueue_in_postgres;
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::kit::{SOON, ask, connect, done, ids, items, job, store, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_behind_the_mark_is_found() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    let mut client = connect(&url).await;
    for _ in 0..3 {
        let late = job();
        let transaction = client.transaction().await.unwrap();
        enqueue_in_postgres(&transaction, std::slice::from_ref(&late)).await.unwrap();
        // Others come and go, and the mark moves on beyond the late one.
        for _ in 0..20 {
            store.enqueue(vec![job(), job()]).await.unwrap();
            let claim = store.claim(ask(worker, 2)).await.unwrap();
            store.settle(worker, items(&claim, &done())).await.unwrap();
        }
        transaction.commit().await.unwrap();
        let found = eventually("the late job", SOON, async || {
            let claim = store.claim(ask(worker, 2)).await.unwrap();
            (!claim.jobs.is_empty()).then_some(claim)
        });
        assert_eq!(ids(&found.await), [late.id]);
    }
}

/// An enqueue that is under way no longer than this is an ordinary one.
const ORDINARY: Duration = Duration::from_millis(15);
const TRIES_MAX: u32 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_being_written_while_a_claim_finds_nothing_is_had_by_the_next_one() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    let mut client = connect(&url).await;
    // On a busy machine a try may take so long that its job is a late one.
    for _ in 0..TRIES_MAX {
        let (began, late) = (Instant::now(), job());
        let transaction = client.transaction().await.unwrap();
        enqueue_in_postgres(&transaction, std::slice::from_ref(&late)).await.unwrap();
        assert!(store.claim(ask(worker, 1)).await.unwrap().jobs.is_empty());
        let is_ordinary = began.elapsed() < ORDINARY;
        transaction.commit().await.unwrap();
        let next = store.claim(ask(worker, 1)).await.unwrap();
        if is_ordinary {
            assert_eq!(ids(&next), [late.id]);
            return;
        }
        if next.jobs.is_empty() {
            store.cancel(vec![late.id], "it was a late one").await.unwrap();
        } else {
            store.settle(worker, items(&next, &done())).await.unwrap();
        }
    }
    panic!("none of {TRIES_MAX} tries took less than {ORDINARY:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sheaf_in_other_hands_is_no_reason_to_wait_for_a_hint() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    store.enqueue(vec![job()]).await.unwrap();
    let mut client = connect(&url).await;
    let transaction = client.transaction().await.unwrap();
    transaction.execute("select from tidemill.ready for update", &[]).await.unwrap();
    let claim = store.claim(ask(worker, 5)).await.unwrap();
    assert!(claim.jobs.is_empty(), "nobody waits for a lock");
    let wait =
        claim.next_due.expect("there is something to come back for").duration_since(claim.now);
    assert!(wait.as_millis() <= 100, "{wait:?}");
    transaction.rollback().await.unwrap();
    assert_eq!(store.claim(ask(worker, 5)).await.unwrap().jobs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roll_back_leaves_nothing_of_a_large_batch() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let mut client = connect(&url).await;
    let text = Payload::trusted(r#""\u00e9 \"quoted\"""#.into());
    let jobs: Vec<_> = (0..250).map(|_| tidemill_core::NewJob::new("k", text.clone())).collect();
    let transaction = client.transaction().await.unwrap();
    enqueue_in_postgres(&transaction, &jobs).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(store.unfinished().await.unwrap().waiting, 0);
    enqueue_in_postgres(&client, &jobs).await.unwrap();
    let worker = worker(&store).await;
    let claim = store.claim(ask(worker, 500)).await.unwrap();
    assert_eq!(ids(&claim), jobs.iter().map(|job| job.id).collect::<Vec<_>>(), "in their order");
    assert!(claim.jobs.iter().all(|taken| taken.job.payload == text), "to the letter");
    let rows = client.query("select count(*) from tidemill.lease", &[]).await.unwrap();
    assert_eq!(rows[0].get::<_, i64>(0), 1);
}

/// Of a batch, and alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_two_transactions_write_at_once_is_there_once() {
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let worker = worker(&store).await;
    let (mut client, observer) = (connect(&url).await, connect(&url).await);
    for more in [1, 0] {
        let both = job();
        let batch = || -> Vec<_> {
            std::iter::once(both.clone()).chain((0..more).map(|_| job())).collect()
        };
        let (first, second) = (batch(), batch());
        let mut expected: Vec<_> = first.iter().chain(&second[1..]).map(|job| job.id).collect();
        let transaction = client.transaction().await.unwrap();
        enqueue_in_postgres(&transaction, &first).await.unwrap();
        let other = connect(&url).await;
        let asked = tokio::spawn(async move { enqueue_in_postgres(&other, &second).await });
        let waits = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        eventually("the other one to wait", SOON, async || {
            observer.query_opt(waits, &[]).await.unwrap().map(drop)
        })
        .await;
        transaction.commit().await.unwrap();
        assert_eq!(asked.await.unwrap().unwrap().len(), more + 1);
        let depth = store.depths(&["default".to_owned()]).await.unwrap()[0].depth();
        assert_eq!(depth, expected.len() as u64);
        let claim = store.claim(ask(worker, 9)).await.unwrap();
        let mut taken = ids(&claim);
        taken.sort_unstable();
        expected.sort_unstable();
        assert_eq!(taken, expected);
        store.settle(worker, items(&claim, &done())).await.unwrap();
    }
}
