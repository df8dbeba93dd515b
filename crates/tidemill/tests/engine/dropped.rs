//! Handlers that are dropped where they stand, and panic at that: their attempts come to what they would have come to.

use std::sync::Arc;
use std::time::Duration;

use tidemill::testing::drain;
use tidemill::{CancelAnswer, Context, Enqueue, Fail, JobId, JobView, State, Tidemill, Worker};
use tokio::sync::Notify;

use super::kit::{Echo, Kit, SOON};

over_both_stores!(
    attempt_that_ran_too_long_is_one,
    run_that_waits_is_one,
    job_that_was_called_off_is_one,
);

const SHORT: Duration = Duration::from_millis(5);

/// Panics when it is dropped, as a client does that must not be dropped on the runtime.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("a bomb was dropped");
    }
}

/// A worker whose handler says that it has started, and never ends.
fn deaf(mill: &Tidemill, started: &Arc<Notify>) -> Worker {
    let started = Arc::clone(started);
    mill.worker().handle(move |_: Echo, _cx| {
        let starts = Arc::clone(&started);
        async move {
            let _bomb = Bomb;
            starts.notify_one();
            std::future::pending::<Result<String, Fail>>().await
        }
    })
}

async fn view(mill: &Tidemill, id: JobId) -> JobView {
    mill.job(id).await.unwrap().unwrap()
}

async fn attempt_that_ran_too_long_is_one(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Enqueue::from(Echo::new("x")).run_timeout(SHORT)).await.unwrap().id();
    let worker = deaf(&mill, &Arc::default());
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.attempt), (State::Scheduled, 1));
    assert_eq!(view.error.as_deref(), Some("it ran longer than its limit of 5ms"));
}

async fn run_that_waits_is_one(kit: Kit) {
    let mill = kit.open_still().await;
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    let worker = mill.worker().handle(|echo: Echo, cx: Context| async move {
        let bomb = Bomb;
        cx.sleep(Duration::from_hours(1)).await?;
        std::mem::forget(bomb);
        Ok(echo.text)
    });
    assert_eq!(drain(worker).await.unwrap().again, 1);
    let view = view(&mill, id).await;
    assert_eq!((view.state, view.attempt, view.error), (State::Scheduled, 0, None));
    assert_eq!(view.due_at, Some(kit.clock.now() + Duration::from_hours(1)));
}

async fn job_that_was_called_off_is_one(kit: Kit) {
    let (mill, started) = (kit.open().await, Arc::new(Notify::new()));
    let worker = deaf(&mill, &started).cancel_grace(SHORT);
    let running = worker.start().await.unwrap();
    let id = mill.enqueue(Echo::new("x")).await.unwrap().id();
    started.notified().await;
    assert_eq!(mill.cancel(id, "enough").await.unwrap(), CancelAnswer::Requested);
    assert_eq!(mill.wait(id, SOON).await.unwrap().state, State::Cancelled);
    running.stop().await;
}
