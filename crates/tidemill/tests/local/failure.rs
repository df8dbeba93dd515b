//! A panic is its task's error, an `Err` is its task's answer, and the counts tell them apart.

use std::time::Duration;

use tidemill::local::{Error, Queue};
use tokio::time::advance;

use super::kit::{Lab, settle};

#[tokio::test(start_paused = true)]
async fn panic_is_the_error_of_its_task_and_frees_its_slot() {
    let queue = Queue::builder().concurrency(1).build().unwrap();
    let panicked = queue.try_push(async { panic!("no {}", "luck") }).unwrap();
    let after = queue.try_push(async { 1 }).unwrap();
    let error: Result<(), Error> = panicked.await;
    assert_eq!(error, Err(Error::Panicked { message: "no luck".into() }));
    assert_eq!(after.await, Ok(1));
    assert_eq!((queue.counts().failed, queue.counts().done), (1, 1));
}

/// What panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("broken");
    }
}

#[tokio::test(start_paused = true)]
async fn panic_in_a_destructor_frees_the_slot_too() {
    let queue = Queue::builder().concurrency(1).build().unwrap();
    let fragile = queue.try_push(async { Fragile }).unwrap();
    fragile.detach();
    queue.on_idle().await;
    let inside = queue.try_push(async {
        let _fragile = Fragile;
        tokio::task::yield_now().await;
    });
    assert_eq!(inside.unwrap().await.unwrap_err().code(), "task_panicked");
    let waits = Fragile;
    queue.pause();
    let waiting = queue.try_push(async move { drop(waits) }).unwrap();
    waiting.cancel();
    queue.resume();
    assert_eq!(waiting.await, Err(Error::Cancelled));
    assert_eq!(queue.run(async { 1 }).await, Ok(1));
    let counts = queue.counts();
    assert_eq!((counts.failed, counts.cancelled, counts.done), (2, 1, 1));
}

#[derive(Debug, PartialEq)]
enum Problem {
    Mine,
    Queue(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Queue(error)
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_counts_errors_and_has_one_kind_of_them() {
    let queue = Queue::builder().build().unwrap();
    assert_eq!(queue.attempt(async { Ok::<_, Problem>(1) }).await, Ok(1));
    assert_eq!(queue.attempt(async { Err::<(), _>(Problem::Mine) }).await, Err(Problem::Mine));
    assert_eq!((queue.counts().done, queue.counts().failed), (1, 1));
    queue.close().await;
    let refused = queue.attempt(async { Ok::<_, Problem>(1) }).await;
    assert_eq!(refused, Err(Problem::Queue(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn counts_tell_how_long_tasks_waited_and_ran() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (first, let_go) = lab.hold(0);
    let second = lab.queue.try_push(lab.quick(1)).unwrap();
    settle().await;
    advance(Duration::from_secs(3)).await;
    let_go.send(()).unwrap();
    first.await.unwrap();
    second.await.unwrap();
    let counts = lab.queue.counts();
    let three = Duration::from_secs(3);
    assert_eq!((counts.wait_total, counts.wait_max, counts.wait_mean()), (three, three, three / 2));
    assert_eq!((counts.run_total, counts.run_max, counts.run_mean()), (three, three, three / 2));
    assert_eq!((counts.enqueued, counts.started), (2, 2));
}
