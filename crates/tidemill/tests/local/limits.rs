//! How many run, how many start, and that both can change while tasks wait.

use std::time::Duration;

use tidemill::local::{Error, PER_SECOND, Queue};
use tokio::time::{Instant, advance};

use super::kit::{Lab, settle};

#[tokio::test(start_paused = true)]
async fn no_more_run_than_may() {
    let lab = Lab::new(Queue::builder().concurrency(2));
    let mut tasks: Vec<_> = (0..5).map(|name| lab.hold(name)).collect();
    settle().await;
    assert_eq!(lab.started(), [0, 1]);
    let (first, let_go) = tasks.remove(0);
    let_go.send(()).unwrap();
    assert_eq!(first.await, Ok(0));
    settle().await;
    assert_eq!(lab.started(), [0, 1, 2]);
    assert_eq!((lab.queue.counts().running, lab.queue.size()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn concurrency_changes_while_tasks_wait() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let mut tasks: Vec<_> = (0..6).map(|name| lab.hold(name)).collect();
    lab.queue.set_concurrency(4).unwrap();
    settle().await;
    assert_eq!(lab.queue.counts().running, 4);
    lab.queue.set_concurrency(2).unwrap();
    for _ in 0..2 {
        let (task, let_go) = tasks.remove(0);
        let_go.send(()).unwrap();
        task.await.unwrap();
        settle().await;
        assert_eq!(lab.started().len(), 4, "none starts while as many run as may");
    }
    let (task, let_go) = tasks.remove(0);
    let_go.send(()).unwrap();
    task.await.unwrap();
    settle().await;
    assert_eq!(lab.started().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn no_window_holds_more_starts_than_the_rate() {
    let lab = Lab::new(Queue::builder().rate(3, PER_SECOND));
    let begin = Instant::now();
    for name in 0..10 {
        lab.queue.try_push(lab.quick(name)).unwrap().detach();
        settle().await;
        advance(Duration::from_millis(70)).await;
    }
    lab.queue.on_idle().await;
    let starts = lab.starts();
    assert_eq!(lab.started(), (0..10).collect::<Vec<_>>());
    for four in starts.windows(4) {
        assert!(four[3] - four[0] >= PER_SECOND, "{four:?}");
    }
    // And none waited for longer than that: three windows and what tokio's timer rounds up.
    let took = *starts.last().unwrap() - begin;
    assert!(took <= PER_SECOND * 3 + Duration::from_millis(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn rate_changes_while_tasks_wait() {
    let lab = Lab::new(Queue::builder().rate(1, Duration::from_hours(1)));
    for name in 0..10 {
        lab.queue.try_push(lab.quick(name)).unwrap().detach();
    }
    settle().await;
    assert_eq!(lab.started(), [0]);
    lab.queue.set_rate(4, Duration::from_hours(1)).unwrap();
    settle().await;
    assert_eq!(lab.started().len(), 4, "the one that started under the old rate counts");
    lab.queue.set_rate(4, PER_SECOND).unwrap();
    advance(PER_SECOND).await;
    settle().await;
    assert_eq!(lab.started().len(), 8, "the gate that slept for an hour no longer counts");
    lab.queue.remove_rate();
    settle().await;
    assert_eq!(lab.started().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn pause_holds_starts_and_nothing_else() {
    let lab = Lab::new(Queue::builder().concurrency(2).rate(1, PER_SECOND));
    let (running, let_go) = lab.hold(0);
    settle().await;
    lab.queue.pause();
    lab.queue.try_push(lab.quick(1)).unwrap().detach();
    let_go.send(()).unwrap();
    assert_eq!(running.await, Ok(0));
    advance(PER_SECOND * 10).await;
    settle().await;
    assert_eq!(lab.started(), [0]);
    lab.queue.resume();
    settle().await;
    assert_eq!(lab.started(), [0, 1], "resumed, it waits for no timer");
}

#[tokio::test(start_paused = true)]
async fn rules_that_start_nothing_are_refused_and_change_nothing() {
    let queue = Queue::builder().concurrency(3).build().unwrap();
    let hour = Duration::from_hours(1);
    for refused in [
        Queue::builder().concurrency(0).build().err(),
        Queue::builder().depth_max(0).build().err(),
        Queue::builder().rate(0, hour).build().err(),
        Queue::builder().rate(1, Duration::ZERO).build().err(),
        Queue::builder().timeout(Duration::ZERO).build().err(),
        queue.set_concurrency(0).err(),
        queue.set_rate(0, hour).err(),
        queue.set_rate(1, Duration::ZERO).err(),
    ] {
        let refused = refused.unwrap();
        assert_eq!(refused.code(), "rule_invalid");
        assert!(refused.to_string().contains("; give"), "{refused}");
    }
    assert_eq!(queue.run(async { 1 }).await, Ok(1));
}

#[test]
fn queue_without_a_runtime_is_refused() {
    assert_eq!(Queue::builder().build().err(), Some(Error::RuntimeMissing));
}
