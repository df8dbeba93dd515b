//! First in, first out, within a band; and no band starves.

use tidemill::Priority;
use tidemill::local::Queue;

use super::kit::{Lab, settle};

#[tokio::test(start_paused = true)]
async fn band_is_first_in_first_out() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    for name in 0..200 {
        lab.queue.try_push(lab.quick(name)).unwrap().detach();
    }
    lab.queue.on_idle().await;
    assert_eq!(lab.started(), (0..200).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn higher_bands_go_first_and_low_gets_its_share() {
    let lab = Lab::new(Queue::builder().concurrency(1).paused());
    for priority in [Priority::Low, Priority::Normal, Priority::High, Priority::Urgent] {
        for _ in 0..60 {
            let task = lab.queue.task().priority(priority);
            task.try_push(lab.quick(priority as usize)).unwrap().detach();
        }
    }
    lab.queue.resume();
    lab.queue.on_idle().await;
    let started = lab.started();
    assert_eq!(started[0], Priority::Urgent as usize);
    let served = |band: usize| started[..60].iter().filter(|name| **name == band).count();
    assert_eq!([served(0), served(1), served(2), served(3)], [32, 16, 8, 4]);
}

#[tokio::test(start_paused = true)]
async fn urgent_task_overtakes_those_that_wait() {
    let lab = Lab::new(Queue::builder().concurrency(1));
    let (first, let_go) = lab.hold(0);
    for name in 1..50 {
        lab.queue.try_push(lab.quick(name)).unwrap().detach();
    }
    let urgent = lab.queue.task().priority(Priority::Urgent).try_push(lab.quick(99)).unwrap();
    settle().await;
    let_go.send(()).unwrap();
    first.await.unwrap();
    urgent.await.unwrap();
    assert_eq!(lab.started()[..2], [0, 99]);
}
