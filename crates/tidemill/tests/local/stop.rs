//! How a queue ends: drained, stopped, dropped, or with its runtime.

use std::time::Duration;

use tidemill::local::{Error, PER_MINUTE, Queue};
use tokio::time::timeout;

use super::kit::{Lab, settle};

#[tokio::test(start_paused = true)]
async fn close_takes_nothing_more_and_waits_for_what_it_has() {
    let lab = Lab::new(Queue::builder().concurrency(1).depth_max(1));
    let (running, let_go) = lab.hold(0);
    let waiting = lab.queue.try_push(lab.quick(1)).unwrap();
    let (queue, task) = (lab.queue.clone(), lab.quick(2));
    let outside = tokio::spawn(async move { queue.run(task).await });
    settle().await;
    let close = lab.queue.close();
    assert_eq!(outside.await.unwrap(), Err(Error::Closed), "who waits for room is told");
    assert_eq!(lab.queue.try_push(async {}).unwrap_err().code(), "queue_closed");
    assert_eq!(lab.queue.run(async {}).await.unwrap_err().code(), "queue_closed");
    let_go.send(()).unwrap();
    close.await;
    assert_eq!((running.await, waiting.await), (Ok(0), Ok(1)));
    let counts = lab.queue.counts();
    assert_eq!((counts.done, counts.rejected), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn stop_calls_off_what_waits_and_what_runs() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (running, _held) = lab.hold(0);
    let (waiting, _held_too) = lab.hold(1);
    settle().await;
    let drained = timeout(Duration::from_secs(30), lab.queue.close()).await;
    assert!(drained.is_err());
    lab.queue.stop().await;
    assert_eq!((running.await, waiting.await), (Err(Error::Cancelled), Err(Error::Cancelled)));
    assert_eq!(lab.started(), [0]);
}

#[tokio::test(start_paused = true)]
async fn clear_calls_off_what_waits_only() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (running, let_go) = lab.hold(0);
    let waiting: Vec<_> = (1..4).map(|name| lab.hold(name)).collect();
    assert_eq!(lab.queue.clear(), 3);
    for (task, _) in waiting {
        assert_eq!(task.await, Err(Error::Cancelled));
    }
    let_go.send(()).unwrap();
    assert_eq!(running.await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn tasks_outlive_the_queue_unless_it_is_paused() {
    for paused in [false, true] {
        let queue = Queue::builder().concurrency(1).rate(1, PER_MINUTE).build().unwrap();
        let tasks: Vec<_> = (0..3).map(|name| queue.try_push(async move { name })).collect();
        settle().await;
        if paused {
            queue.pause();
        }
        drop(queue);
        for (name, task) in tasks.into_iter().enumerate() {
            let expected = if paused && name > 0 { Err(Error::Cancelled) } else { Ok(name) };
            assert_eq!(task.unwrap().await, expected);
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

#[test]
fn end_of_the_runtime_is_the_answer_of_all_that_it_held() {
    for rate in [1_000_000, 1] {
        let first = runtime();
        let (tasks, queue) = first.block_on(async {
            let queue = Queue::builder().concurrency(3).rate(rate, PER_MINUTE).depth_max(100_000);
            let queue = queue.build().unwrap();
            let hold = |_| queue.try_push(std::future::pending::<()>()).unwrap();
            let tasks: Vec<_> = (0..50_000).map(hold).collect();
            settle().await;
            (tasks, queue)
        });
        drop(first);
        runtime().block_on(async {
            for task in tasks {
                assert_eq!(task.await, Err(Error::Cancelled));
            }
            assert_eq!(queue.run(async {}).await, Err(Error::Closed));
            queue.on_idle().await;
        });
    }
}
