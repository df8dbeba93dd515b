//! Cancelling: a waiting job never starts, and a running handler is told, in whichever process.

use std::sync::Arc;

use tidemill::testing::drain;
use tidemill::{CancelAnswer, Enqueue, Fail, JobId, Retry, State};
use tokio::sync::Notify;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    cancelled_job_that_waited_never_starts,
    cancel_reaches_a_handler_that_runs_in_another_process,
    handler_that_panics_when_it_is_told_is_cancelled,
    handler_that_finishes_all_the_same_is_done,
    retry_that_was_called_off_does_not_come,
    run_now_brings_a_scheduled_job_forward,
);

async fn cancelled_job_that_waited_never_starts(kit: Kit) {
    use CancelAnswer::{Cancelled, Finished, Unknown};
    let mill = kit.open_still().await;
    let ready = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let later = mill.enqueue(Enqueue::from(Echo::new("x")).delay(SOON)).await.unwrap().id();
    let answers = mill.cancel_many(vec![ready, later, JobId::new()], "stop it").await.unwrap();
    assert_eq!(answers, [Cancelled, Cancelled, Unknown]);
    assert_eq!(mill.cancel(ready, "again").await.unwrap(), Finished);
    kit.advance(SOON);
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker).await.unwrap().attempts, 0);
    let view = mill.job(ready).await.unwrap().unwrap();
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("stop it")));
}

async fn cancel_reaches_a_handler_that_runs_in_another_process(kit: Kit) {
    let (here, there) = (kit.open().await, kit.open().await);
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let worker = there.worker().handle(move |_: Echo, cx| {
        let starts = Arc::clone(&starts);
        async move {
            starts.notify_one();
            cx.cancelled().await;
            Err(Fail::cancel("told to end"))
        }
    });
    let running = worker.start().await.unwrap();
    let id = here.enqueue(Echo::new("x")).await.unwrap().id();
    started.notified().await;
    assert_eq!(here.cancel(id, "enough").await.unwrap(), CancelAnswer::Requested);
    let view = here.wait(id, SOON).await.unwrap();
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("enough")));
    running.stop().await;
    assert_eq!(there.counts().cancelled, 1);
}

async fn handler_that_panics_when_it_is_told_is_cancelled(kit: Kit) {
    let mill = kit.open().await;
    let started = Arc::new(Notify::new());
    let starts = Arc::clone(&started);
    let worker = mill.worker().handle(move |_: Echo, cx| {
        let starts = Arc::clone(&starts);
        async move {
            starts.notify_one();
            cx.cancelled().await;
            panic!("out of luck")
        }
    });
    let running = worker.start().await.unwrap();
    let job = Enqueue::from(Echo::new("x")).retry(Retry::never());
    let id = mill.enqueue(job).await.unwrap().id();
    started.notified().await;
    assert_eq!(mill.cancel(id, "enough").await.unwrap(), CancelAnswer::Requested);
    let view = mill.wait(id, SOON).await.unwrap();
    assert_eq!((view.state, view.error.as_deref()), (State::Cancelled, Some("enough")));
    running.stop().await;
}

async fn handler_that_finishes_all_the_same_is_done(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill.worker().handle(|echo: Echo, cx| async move {
        let answer = cx.mill()?.cancel(cx.id(), "too late").await?;
        assert_eq!(answer, CancelAnswer::Requested);
        Ok(echo.text)
    });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Done);
}

async fn retry_that_was_called_off_does_not_come(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = || {
        mill.worker().handle(|_: Echo, cx| async move {
            cx.mill()?.cancel(cx.id(), "enough").await?;
            Err(Fail::transient("again, please"))
        })
    };
    assert_eq!(drain(worker()).await.unwrap().attempts, 1);
    assert_eq!(mill.job(id).await.unwrap().unwrap().state, State::Cancelled);
    kit.advance(std::time::Duration::from_hours(2));
    assert_eq!(drain(worker()).await.unwrap().attempts, 0);
}

async fn run_now_brings_a_scheduled_job_forward(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Enqueue::from(Echo::new("x")).delay(SOON)).await.unwrap().id();
    assert!(mill.run_now(id).await.unwrap());
    let worker = mill.worker().handle(|echo: Echo, _cx| async move { Ok(echo.text) });
    assert_eq!(drain(worker).await.unwrap().done, 1);
    assert!(!mill.run_now(id).await.unwrap());
}
