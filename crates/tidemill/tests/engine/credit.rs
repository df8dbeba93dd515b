//! Credit: what a worker takes in advance is never hoarded, and never spent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidemill::{JobFilter, State, Tidemill};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    a_handler_that_becomes_slow_leaves_the_jobs_to_others,
    a_stop_in_full_flight_spends_nothing,
    short_jobs_all_run_once,
);

fn jobs(number: usize) -> impl Iterator<Item = Echo> {
    (0..number).map(|n| Echo::new(&n.to_string()))
}

async fn finished(mill: &Tidemill) {
    eventually("all jobs to finish", 2 * SOON, async || {
        let left = mill.unfinished().await.unwrap();
        (left.waiting + left.running == 0).then_some(())
    })
    .await;
}

async fn a_handler_that_becomes_slow_leaves_the_jobs_to_others(kit: Kit) {
    let (mill, other) = (kit.open().await, kit.open().await);
    let (quick, ran) = (Arc::new(Semaphore::new(200)), Arc::new(AtomicUsize::new(0)));
    let (permits, count) = (Arc::clone(&quick), Arc::clone(&ran));
    // Short until two hundred have run, then stuck.
    let worker = mill.worker().slots(4).handle(move |echo: Echo, _cx| {
        let (permits, count) = (Arc::clone(&permits), Arc::clone(&count));
        async move {
            permits.acquire().await.unwrap().forget();
            count.fetch_add(1, SeqCst);
            Ok(echo.text)
        }
    });
    mill.enqueue_many(jobs(1000)).await.unwrap();
    let stuck = worker.start().await.unwrap();
    eventually("the worker to be stuck", SOON, async || {
        (ran.load(SeqCst) == 200 && stuck.busy() == 4).then_some(())
    })
    .await;
    // All but what is stuck in its slots is free for somebody else, whatever it had at hand.
    let handler = |echo: Echo, _cx| async move { Ok(echo.text) };
    let free = other.worker().slots(4).handle(handler).start().await.unwrap();
    eventually("the other worker to do the rest", 2 * SOON, async || {
        let left = other.unfinished().await.unwrap();
        (left.waiting == 0 && left.running == 4).then_some(())
    })
    .await;
    assert_eq!(stuck.busy(), 4);
    quick.add_permits(4);
    finished(&mill).await;
    stuck.stop().await;
    free.stop().await;
    // A worker counts what it settled after the store has it.
    assert_eq!(mill.counts().done + other.counts().done, 1000);
}

async fn a_stop_in_full_flight_spends_nothing(kit: Kit) {
    const JOBS: usize = 2000;
    let mill = kit.open().await;
    mill.enqueue_many(jobs(JOBS)).await.unwrap();
    let mut done = 0;
    for round in 1..=3 {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ran);
        let worker = mill.worker().slots(4).handle(move |echo: Echo, _cx| {
            count.fetch_add(1, SeqCst);
            async move { Ok(echo.text) }
        });
        let worker = worker.start().await.unwrap();
        eventually("some jobs to run", SOON, async || (ran.load(SeqCst) > 300).then_some(())).await;
        worker.stop().await;
        done += ran.load(SeqCst);
        let left = mill.unfinished().await.unwrap();
        assert_eq!((left.waiting as usize, left.running), (JOBS - done, 0), "round {round}");
    }
    let filter = JobFilter { state: Some(State::Ready), limit: 1000, ..JobFilter::default() };
    let waiting = mill.jobs(&filter).await.unwrap();
    assert!(waiting.iter().all(|view| (view.attempt, view.lost) == (0, 0)));
}

async fn short_jobs_all_run_once(kit: Kit) {
    let (one, two) = (kit.open().await, kit.open().await);
    let ran = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for mill in [&one, &two] {
        let count = Arc::clone(&ran);
        let worker = mill.worker().slots(2).handle(move |echo: Echo, _cx| {
            count.fetch_add(1, SeqCst);
            async move { Ok(echo.text) }
        });
        workers.push(worker.start().await.unwrap());
    }
    one.enqueue_many(jobs(1500)).await.unwrap();
    finished(&one).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!(ran.load(SeqCst), 1500);
    assert_eq!(one.counts().stale + two.counts().stale, 0);
}
