//! A full queue: who is refused, who waits, and who is told when it has shrunk.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidemill::local::{Error, Queue};

use super::kit::{Lab, settle};

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn full_queue_answers_at_once() {
    let lab = Lab::new(Queue::builder().depth_max(2).paused());
    let _waiting = [0, 1].map(|name| lab.hold(name));
    let refused = lab.queue.try_push(lab.quick(2)).unwrap_err();
    assert_eq!((refused.code(), lab.queue.counts().rejected), ("queue_full", 1));
    assert_eq!(refused, Error::Full { depth_max: 2 });
    lab.queue.resume();
    settle().await;
    assert_eq!(lab.queue.run(lab.quick(3)).await, Ok(3), "those that run take no room");
}

#[tokio::test(start_paused = true)]
async fn push_waits_for_room_in_the_order_of_asking() {
    let lab = Lab::new(Queue::builder().concurrency(1).depth_max(1));
    let (running, let_go) = lab.hold(0);
    let (waiting, let_waiting_go) = lab.hold(1);
    let (mut first, mut second) =
        (pin!(lab.queue.push(lab.quick(2))), pin!(lab.queue.push(lab.quick(3))));
    assert!(poll(first.as_mut()).is_pending());
    assert!(poll(second.as_mut()).is_pending());
    settle().await;
    let_go.send(()).unwrap();
    running.await.unwrap();
    settle().await;
    let late = lab.queue.try_push(lab.quick(9));
    assert_eq!(late.unwrap_err().code(), "queue_full", "the room is kept for who waited");
    assert!(poll(second.as_mut()).is_pending());
    let Poll::Ready(Ok(first)) = poll(first.as_mut()) else { panic!("there is room") };
    let_waiting_go.send(()).unwrap();
    waiting.await.unwrap();
    let second = second.await.unwrap();
    assert_eq!((first.await, second.await), (Ok(2), Ok(3)));
    assert_eq!(lab.started(), [0, 1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_leaves_the_room_to_the_next() {
    let lab = Lab::new(Queue::builder().depth_max(1).paused());
    let (waiting, _held) = lab.hold(0);
    let mut second = pin!(lab.queue.push(lab.quick(2)));
    {
        let mut first = pin!(lab.queue.push(lab.quick(1)));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(second.as_mut()).is_pending());
        drop(waiting);
        assert!(poll(second.as_mut()).is_pending(), "the room is kept for the first");
    }
    let Poll::Ready(Ok(handle)) = poll(second.as_mut()) else { panic!("the first gave up") };
    drop(handle);
    assert_eq!(lab.queue.counts().rejected, 0);
    lab.queue.on_idle().await;
}

#[tokio::test(start_paused = true)]
async fn mark_is_reached_when_fewer_wait() {
    let lab = Lab::new(Queue::builder().concurrency(1).paused());
    let mut waiting: Vec<_> = (0..10).map(|name| lab.hold(name)).collect();
    lab.queue.on_size_below(11).await;
    let (mut five, mut one) = (pin!(lab.queue.on_size_below(5)), pin!(lab.queue.on_size_below(0)));
    assert!(poll(five.as_mut()).is_pending() && poll(one.as_mut()).is_pending());
    waiting.truncate(5);
    assert!(poll(five.as_mut()).is_pending(), "five wait, which is not fewer than five");
    waiting.truncate(4);
    assert!(poll(five.as_mut()).is_ready() && poll(one.as_mut()).is_pending());
    lab.queue.clear();
    assert!(poll(one.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn idle_means_that_nothing_waits_or_runs() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    lab.queue.on_idle().await;
    let (first, let_go) = lab.hold(0);
    let (second, let_second_go) = lab.hold(1);
    let mut idle = pin!(lab.queue.on_idle());
    for (task, let_go) in [(first, let_go), (second, let_second_go)] {
        assert!(poll(idle.as_mut()).is_pending());
        let_go.send(()).unwrap();
        task.await.unwrap();
    }
    assert!(poll(idle.as_mut()).is_ready());
}
