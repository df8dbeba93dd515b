//! What a worker with few slots gets done when its handlers are short: how long a slot is idle
//! between two jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidemill::{Payload, Settings, Tidemill};
use tokio::sync::Notify;

use crate::Res;
use crate::load::{fill, rest};

/// Drains with 1, 4, 16 and 64 slots, by handlers that take no time, a millisecond, and ten.
pub async fn measure(mill: &Tidemill, seconds: u64) -> Res<()> {
    for takes in [Duration::ZERO, Duration::from_millis(1), Duration::from_millis(10)] {
        for slots in [1, 4, 16, 64] {
            let per_second = if takes.is_zero() { 10_000.0 } else { 1.0 / takes.as_secs_f64() };
            let wanted = (per_second * slots as f64).min(15_000.0) * seconds as f64;
            fill(mill, wanted as u64).await?;
            let (jobs, secs) = drain(mill, slots, takes, wanted as u64).await?;
            println!("{slots:>3} slots, {takes:>4?}: {:>6.0} jobs/s", jobs as f64 / secs);
        }
    }
    Ok(())
}

async fn drain(mill: &Tidemill, slots: usize, takes: Duration, jobs: u64) -> Res<(u64, f64)> {
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (count, ended) = (Arc::clone(&done), Arc::clone(&over));
    let handler = move |_: Payload, _cx| {
        let (count, ended) = (Arc::clone(&count), Arc::clone(&ended));
        async move {
            if !takes.is_zero() {
                rest(takes).await;
            }
            if count.fetch_add(1, Relaxed) + 1 == jobs {
                ended.notify_one();
            }
            Ok(Payload::null())
        }
    };
    let start = Instant::now();
    let worker = mill.worker().slots(slots).handle_raw("measure", Settings::default(), handler);
    let worker = worker.start().await?;
    over.notified().await;
    let secs = start.elapsed().as_secs_f64();
    worker.stop().await;
    Ok((done.load(Relaxed), secs))
}
