//! What order costs: jobs of few and of many lines beside jobs that ask for none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use tidemill::{OnDead, Payload, Settings, Tidemill};
use tokio::sync::Notify;

use crate::Res;
use crate::load::job;

/// Enqueues and drains `jobs` of 1, 10, 1,000 lines, and of none.
pub async fn measure(mill: &Tidemill, jobs: u64) -> Res<()> {
    for lines in [1, 10, 1000, 0] {
        let jobs = if lines == 1 { jobs / 10 } else { jobs };
        let start = Instant::now();
        for first in (0..jobs).step_by(1000) {
            let batch = (first..jobs.min(first + 1000)).map(|n| match lines {
                0 => job(n),
                lines => job(n).key(format!("line {}", n % lines)).ordered(OnDead::Block),
            });
            mill.enqueue_many(batch).await?;
        }
        let enqueued = jobs as f64 / start.elapsed().as_secs_f64();
        let drained = drain(mill, jobs).await?;
        println!("{lines:>5} lines: {enqueued:>7.0} enqueued/s, {drained:>7.0} run/s");
    }
    Ok(())
}

async fn drain(mill: &Tidemill, jobs: u64) -> Res<f64> {
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let ended = Arc::clone(&over);
    let handler = move |_: Payload, _cx| {
        if done.fetch_add(1, Relaxed) + 1 == jobs {
            ended.notify_one();
        }
        async { Ok(Payload::null()) }
    };
    let start = Instant::now();
    let worker = mill.worker().slots(100).handle_raw("measure", Settings::default(), handler);
    let worker = worker.start().await?;
    over.notified().await;
    let secs = start.elapsed().as_secs_f64();
    worker.stop().await;
    Ok(jobs as f64 / secs)
}
