//! From just before the enqueue to the handler's first line, on an idle queue, in one process.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidemill::{Settings, Tidemill};

use crate::Res;
use crate::load::{job, part, rest};

const WARM_UP: u64 = 20;

pub async fn measure(mill: &Tidemill, probes: u64) -> Res<()> {
    let started = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&started);
    let handler = move |_, _| {
        if let Ok(mut seen) = seen.lock() {
            seen.push(Instant::now());
        }
        async { Ok(tidemill::Payload::null()) }
    };
    let worker = mill
        .worker()
        .queues(["default"])
        .handle_raw("measure", Settings::default(), handler)
        .start()
        .await?;
    let mut asked = Vec::new();
    for n in 0..WARM_UP + probes {
        asked.push(Instant::now());
        mill.enqueue(job(n)).await?;
        rest(Duration::from_millis(10 + n % 20)).await;
    }
    worker.stop().await;
    let started = started.lock().map_err(|e| e.to_string())?.clone();
    let waited = asked.iter().zip(&started).skip(WARM_UP as usize);
    let mut waited: Vec<Duration> = waited.map(|(asked, started)| *started - *asked).collect();
    waited.sort();
    let (p50, p99) = (part(&waited, 0.5), part(&waited, 0.99));
    println!("{} probes in one process: p50 {p50:.2} ms, p99 {p99:.2} ms", waited.len());
    Ok(())
}
