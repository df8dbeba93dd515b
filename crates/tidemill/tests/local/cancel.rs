//! What a dropped handle, a cancel and a timeout do.

use std::sync::Arc;
use std::time::Duration;

use tidemill::local::{Error, OnDrop, Queue};
use tokio::time::{Instant, timeout};

use super::kit::{Lab, settle};

#[tokio::test(start_paused = true)]
async fn dropped_handle_calls_off_a_task_that_waits() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (first, let_go) = lab.hold(0);
    let token = Arc::new(());
    let (task, inside) = (lab.quick(1), token.clone());
    let second = async move { (task.await, inside) };
    let second = lab.queue.try_push(second).unwrap();
    assert_eq!(Arc::strong_count(&token), 2);
    drop(second);
    assert_eq!(Arc::strong_count(&token), 1, "its future is gone at once");
    assert_eq!(lab.queue.size(), 0);
    let_go.send(()).unwrap();
    first.await.unwrap();
    lab.queue.on_idle().await;
    assert_eq!(lab.started(), [0]);
    assert_eq!(lab.queue.counts().cancelled, 1);
}

#[tokio::test(start_paused = true)]
async fn dropped_run_calls_off_its_task() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (_first, _held) = lab.hold(0);
    let run = timeout(Duration::from_secs(1), lab.queue.run(lab.quick(1)));
    assert!(run.await.is_err());
    assert_eq!((lab.queue.size(), lab.queue.counts().cancelled), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_handle_treats_a_running_task_as_was_chosen() {
    for (on_drop, done, cancelled) in [(OnDrop::Cancel, 0, 1), (OnDrop::Finish, 1, 0)] {
        let lab = Lab::new(Queue::builder().concurrency(1).on_drop(on_drop));
        let (task, let_go) = lab.hold(0);
        settle().await;
        drop(task);
        settle().await;
        assert_eq!(let_go.send(()).is_ok(), on_drop == OnDrop::Finish);
        lab.queue.on_idle().await;
        let counts = lab.queue.counts();
        assert_eq!((counts.done, counts.cancelled), (done, cancelled), "{on_drop:?}");
        assert_eq!(lab.queue.run(async { 1 }).await, Ok(1), "its slot is free");
    }
}

#[tokio::test(start_paused = true)]
async fn detached_task_runs_to_its_end() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (first, let_go) = lab.hold(0);
    let (second, let_second_go) = lab.hold(1);
    second.detach();
    first.detach();
    let_go.send(()).unwrap();
    let_second_go.send(()).unwrap();
    lab.queue.on_idle().await;
    assert_eq!(lab.queue.counts().done, 2);
}

#[tokio::test(start_paused = true)]
async fn cancel_is_the_answer_of_a_waiting_and_of_a_running_task() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (running, _held) = lab.hold(0);
    let (waiting, _held_too) = lab.hold(1);
    settle().await;
    waiting.cancel();
    running.cancel();
    running.cancel();
    assert_eq!(waiting.await, Err(Error::Cancelled));
    assert_eq!(running.await, Err(Error::Cancelled));
    let counts = lab.queue.counts();
    assert_eq!((counts.cancelled, counts.running, counts.queued), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn cancel_between_start_and_first_poll_is_kept() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (task, _held) = lab.hold(0);
    assert_eq!(lab.queue.counts().running, 1);
    task.cancel();
    assert_eq!(task.await, Err(Error::Cancelled));
    assert_eq!(lab.started(), [] as [usize; 0]);
}

#[tokio::test(start_paused = true)]
async fn task_that_runs_too_long_times_out_and_frees_its_slot() {
    let second = Duration::from_secs(1);
    let lab = Lab::new(Queue::builder().concurrency(1).timeout(second));
    let begin = Instant::now();
    let (task, _held) = lab.held(0);
    let (patient, _held_too) = lab.held(1);
    let task = lab.queue.try_push(task).unwrap();
    let patient = lab.queue.task().timeout(second * 5).try_push(patient).unwrap();
    assert_eq!(task.await, Err(Error::TimedOut { limit: second }));
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert_eq!(patient.await, Err(Error::TimedOut { limit: second * 5 }));
    assert_eq!(begin.elapsed().as_secs(), 6, "the wait is not counted");
    assert_eq!(lab.queue.counts().timed_out, 2);
    assert_eq!(lab.queue.run(lab.quick(2)).await, Ok(2));
}
