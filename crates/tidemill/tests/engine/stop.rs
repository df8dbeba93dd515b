//! Stopping: quiet, drain, tell, give back unspent. Nothing is lost and nothing is left running.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tidemill::{Enqueue, Fail, JobId, Running, State, Stop, Tidemill, Worker};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Notify;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    short_job_finishes_while_the_worker_stops,
    long_job_is_told_and_given_back_unspent,
    deaf_job_is_dropped_and_given_back_unspent,
    stop_without_patience_ends_also_right_after_a_claim,
    stopped_worker_takes_nothing_more,
    idle_worker_stops_while_a_job_comes_and_leaves_it_whole,
    worker_that_nobody_holds_runs_on_whole,
    stop_that_nobody_waits_for_goes_on_to_its_end,
    job_that_panics_when_it_is_told_is_given_back_unspent,
    stop_may_wait_as_long_as_it_takes,
);

/// Drain for so long, then grace for so long.
fn stop(drain: Duration, grace: Duration) -> Stop {
    Stop { drain, grace }
}

async fn start_one(mill: &Tidemill, worker: Worker, started: &Notify) -> (JobId, Running) {
    let running = worker.start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    started.notified().await;
    (id, running)
}

/// Nobody has it, nothing was spent, and the next worker runs it as its first attempt.
async fn was_given_back(mill: &Tidemill, id: JobId) {
    let view = mill.job(id).await.unwrap().unwrap();
    assert_eq!((view.state, view.attempt, view.lost), (State::Ready, 0, 0));
    assert_eq!(mill.unfinished().await.unwrap().running, 0);
    assert!(mill.workers().await.unwrap().is_empty());
    let next = mill.worker().handle(|_: Echo, cx| async move { Ok(cx.attempt().to_string()) });
    let running = next.start().await.unwrap();
    assert_eq!(mill.result::<Echo>(id, SOON).await.unwrap(), "1");
    running.stop().await;
}

/// A worker whose handler says that it has started, and then waits until it may go on.
fn waiting(mill: &Tidemill, started: &Arc<Notify>, go_on: &Arc<Notify>) -> Worker {
    let (started, go_on) = (Arc::clone(started), Arc::clone(go_on));
    mill.worker().handle(move |echo: Echo, _cx| {
        let (starts, goes_on) = (Arc::clone(&started), Arc::clone(&go_on));
        async move {
            starts.notify_one();
            goes_on.notified().await;
            Ok(echo.text)
        }
    })
}

async fn short_job_finishes_while_the_worker_stops(kit: Kit) {
    let mill = kit.open().await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = waiting(&mill, &started, &go_on).stop_as(stop(SOON, SOON));
    let (id, running) = start_one(&mill, worker, &started).await;
    let stopping = tokio::spawn(running.stop());
    go_on.notify_one();
    stopping.await.unwrap();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
    assert!(mill.workers().await.unwrap().is_empty());
}

async fn long_job_is_told_and_given_back_unspent(kit: Kit) {
    let mill = kit.open().await;
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let worker = mill.worker().stop_as(stop(Duration::ZERO, SOON)).handle(move |_: Echo, cx| {
        let starts = Arc::clone(&starts);
        async move {
            starts.notify_one();
            cx.cancelled().await;
            Err::<String, _>(Fail::permanent("cleaned up; not to be taken for a failure"))
        }
    });
    let (id, running) = start_one(&mill, worker, &started).await;
    running.stop().await;
    was_given_back(&mill, id).await;
}

async fn deaf_job_is_dropped_and_given_back_unspent(kit: Kit) {
    let mill = kit.open().await;
    let started = Arc::new(Notify::new());
    let alive = Arc::new(());
    let (starts, lives) = (Arc::clone(&started), Arc::clone(&alive));
    let stop = stop(Duration::from_millis(5), Duration::from_millis(5));
    let worker = mill.worker().stop_as(stop).handle(move |_: Echo, _cx| {
        let (starts, lives) = (Arc::clone(&starts), Arc::clone(&lives));
        async move {
            starts.notify_one();
            std::future::pending::<()>().await;
            drop(lives);
            Ok(String::new())
        }
    });
    let (id, running) = start_one(&mill, worker, &started).await;
    running.stop().await;
    assert_eq!(Arc::strong_count(&alive), 1, "the handler is gone");
    was_given_back(&mill, id).await;
}

async fn stop_without_patience_ends_also_right_after_a_claim(kit: Kit) {
    let mill = kit.open().await;
    for _ in 0..20 {
        let worker = mill
            .worker()
            .stop_as(stop(Duration::ZERO, Duration::ZERO))
            .handle(|_: Echo, _cx| std::future::pending::<Result<String, Fail>>());
        let running = worker.start().await.unwrap();
        mill.enqueue_many((0..5).map(|_| Echo::new("x"))).await.unwrap();
        running.stop().await;
    }
    let unfinished = mill.unfinished().await.unwrap();
    assert_eq!((unfinished.waiting, unfinished.running), (100, 0));
}

async fn stopped_worker_takes_nothing_more(kit: Kit) {
    let mill = kit.open().await;
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    let running = worker.start().await.unwrap();
    let known = mill.workers().await.unwrap();
    assert_eq!((known.len(), known[0].id), (1, running.id()));
    assert_eq!((known[0].kinds.as_slice(), known[0].slots), (&["echo".to_owned()][..], 100));
    running.stop().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Ready);
}

/// The job is done, or it waits as if nobody had seen it.
async fn idle_worker_stops_while_a_job_comes_and_leaves_it_whole(kit: Kit) {
    let mill = kit.open().await;
    for round in 0..20 {
        let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
        let running = worker.start().await.unwrap();
        let first = mill.enqueue(Echo::new("first")).await.unwrap().id();
        assert_eq!(mill.result::<Echo>(first, SOON).await.unwrap(), "first");
        let (id, stopped) = tokio::join!(
            async { mill.enqueue(Echo::new("second")).await.unwrap().id() },
            tokio::time::timeout(SOON, running.stop()),
        );
        stopped.expect("it stops soon");
        let view = mill.job(id).await.unwrap().unwrap();
        assert!(matches!(view.state, State::Done | State::Ready), "round {round}: {view:?}");
        assert!(view.state == State::Done || (view.attempt, view.lost) == (0, 0));
        assert_eq!(mill.unfinished().await.unwrap().running, 0);
        mill.cancel(id, "not needed").await.unwrap();
    }
}

async fn worker_that_nobody_holds_runs_on_whole(kit: Kit) {
    let mill = kit.open().await;
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    drop(worker.start().await.unwrap());
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    assert_eq!(mill.result::<Echo>(id, SOON).await.unwrap(), "x");
    // Its clockwork runs on as well: this ends a job that no worker takes in its time.
    let untaken = Enqueue::from(Echo::new("x")).queue("nobody").start_within(SOON / 1000);
    let untaken = mill.enqueue(untaken).await.unwrap().id();
    assert_eq!(mill.wait(untaken, SOON).await.unwrap().state, State::Dead);
}

async fn stop_that_nobody_waits_for_goes_on_to_its_end(kit: Kit) {
    let mill = kit.open().await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = waiting(&mill, &started, &go_on).stop_as(stop(SOON, SOON));
    let (id, running) = start_one(&mill, worker, &started).await;
    assert!(running.stop().now_or_never().is_none(), "its job still runs");
    go_on.notify_one();
    eventually("the worker signs off", SOON, async || {
        mill.workers().await.unwrap().is_empty().then_some(())
    })
    .await;
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
}

async fn job_that_panics_when_it_is_told_is_given_back_unspent(kit: Kit) {
    let mill = kit.open().await;
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let worker = mill.worker().stop_as(stop(Duration::ZERO, SOON)).handle(move |_: Echo, cx| {
        let starts = Arc::clone(&starts);
        async move {
            starts.notify_one();
            cx.cancelled().await;
            panic!("not to be taken for a failure")
        }
    });
    let (id, running) = start_one(&mill, worker, &started).await;
    running.stop().await;
    was_given_back(&mill, id).await;
}

async fn stop_may_wait_as_long_as_it_takes(kit: Kit) {
    let mill = kit.open().await;
    let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = waiting(&mill, &started, &go_on).stop_as(stop(Duration::MAX, Duration::MAX));
    let (id, running) = start_one(&mill, worker, &started).await;
    go_on.notify_one();
    running.stop().await;
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
    assert!(mill.workers().await.unwrap().is_empty(), "it has signed off");
}
