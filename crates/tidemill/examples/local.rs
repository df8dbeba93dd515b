//! Throttles an API client within one process: at most two calls at once, five starts in any 50 ms.

use std::time::{Duration, Instant};
use tidemill::Priority;
use tidemill::local::{Error, Queue};

async fn call(page: u32) -> u32 {
    tokio::time::sleep(Duration::from_millis(2)).await;
    page * page
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let queue = Queue::builder().concurrency(2).rate(5, Duration::from_millis(50)).build()?;
    let begin = Instant::now();
    let mut calls = Vec::new();
    for page in 1..=20 {
        calls.push(queue.push(call(page)).await?);
    }
    let urgent = queue.task().priority(Priority::Urgent).run(async { "out of turn" });
    println!("urgent: {}", urgent.await?);
    let mut sum = 0;
    for call in calls {
        sum += call.await?;
    }
    println!("sum of squares: {sum}");
    println!("throttled: {}", begin.elapsed() >= Duration::from_millis(200));
    queue.close().await;
    let counts = queue.counts();
    println!("done: {}, failed: {}, waiting: {}", counts.done, counts.failed, counts.queued);
    Ok(())
}
