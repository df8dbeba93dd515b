//! Postgres is away: at the start a clear error, in the middle patience, and nobody is blamed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill::{State, Tidemill};
use tidemill_testkit::Cluster;
use tidemill_testkit::eventually::eventually;
use tokio::sync::Notify;

use super::kit::{Echo, SOON};

#[tokio::test]
async fn postgres_that_is_down_at_the_start_is_named() {
    let mut cluster = Cluster::start().unwrap();
    let url = cluster.url("postgres");
    cluster.stop().unwrap();
    let error = Tidemill::open(&url).await.unwrap_err();
    assert_eq!(error.code(), "store_unavailable", "{error}");
    cluster.restart().unwrap();
    Tidemill::open(&url).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_and_enqueue_outlast_a_crash_of_postgres() {
    let mut cluster = Cluster::start().unwrap();
    let mill = Tidemill::open(&cluster.url("postgres")).await.unwrap();
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    let before = mill.enqueue(Echo::new("before")).await.unwrap().id();
    assert_eq!(mill.result::<Echo>(before, SOON).await.unwrap(), "before");
    for n in 0..3 {
        cluster.kill_9().unwrap();
        let asking = mill.clone();
        let enqueued = tokio::spawn(async move { asking.enqueue(Echo::new("during")).await });
        cluster.restart().unwrap();
        let during = enqueued.await.unwrap().unwrap().id();
        assert_eq!(mill.result::<Echo>(during, SOON).await.unwrap(), "during", "crash {n}");
    }
    assert_eq!(mill.job(before).await.unwrap().unwrap().state, State::Done);
    running.stop().await;
    assert!(mill.workers().await.unwrap().is_empty());
}

/// The database is away for longer than a lease. The handler is dropped, for others might have its
/// job by now; the job is neither lost nor blamed, and runs again as its first attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_ran_through_an_outage_is_not_blamed_for_it() {
    let mut cluster = Cluster::start().unwrap();
    let mill = Tidemill::open(&cluster.url("postgres")).await.unwrap();
    let (started, alive) = (Arc::new(Notify::new()), Arc::new(()));
    let (starts, lives) = (Arc::clone(&started), Mutex::new(Some(Arc::clone(&alive))));
    // After an outage a worker has the length of a lease to beat again: long, beside what a busy machine takes.
    let worker = mill.worker().lease_ttl(Duration::from_secs(2)).handle(move |_: Echo, cx| {
        let (starts, lives) = (Arc::clone(&starts), lives.lock().unwrap().take());
        async move {
            // Only the first run has it, and never lets it go by itself.
            if let Some(lives) = lives {
                starts.notify_one();
                std::future::pending::<()>().await;
                drop(lives);
            }
            Ok(cx.attempt().to_string())
        }
    });
    let running = worker.start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    started.notified().await;
    cluster.kill_9().unwrap();
    eventually("the handler to be dropped", SOON, async || {
        (Arc::strong_count(&alive) == 1).then_some(())
    })
    .await;
    cluster.restart().unwrap();
    assert_eq!(mill.result::<Echo>(id, SOON).await.unwrap(), "1");
    assert_eq!(mill.job(id).await.unwrap().unwrap().lost, 0);
    running.stop().await;
}
