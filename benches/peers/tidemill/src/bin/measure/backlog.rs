//! Drain rate with few and with many jobs waiting, or with many finished ones kept.

use tidemill::Tidemill;

use crate::Res;
use crate::load::{drain, fill, part};

const SAMPLE: u64 = 50_000;
const BATCH: usize = 500;

/// Samples of each side: the machine drifts, so a side is its median.
const SAMPLES: usize = 7;

/// Measures with 10,000 or so waiting, makes the store large, and measures again.
pub async fn measure(mill: &Tidemill, jobs: u64, finish: bool) -> Res<()> {
    let rest = 10_000;
    fill(mill, rest).await?;
    let before = median(mill, "small").await?;
    let filled = fill(mill, jobs).await?;
    println!("{jobs} more enqueued, {:.0}/s", jobs as f64 / filled.as_secs_f64());
    if finish {
        let (rate, _) = drain(mill, jobs, BATCH).await?;
        println!("{jobs} finished and kept, {rate:.0}/s");
    }
    let after = median(mill, if finish { "history" } else { "backlog" }).await?;
    println!("after / before: {:.2}", after / before);
    Ok(())
}

async fn median(mill: &Tidemill, name: &str) -> Res<f64> {
    let mut rates = Vec::new();
    for _ in 0..SAMPLES {
        fill(mill, SAMPLE).await?;
        rates.push(sample(mill, name).await?);
    }
    rates.sort_by(f64::total_cmp);
    Ok(rates[SAMPLES / 2])
}

async fn sample(mill: &Tidemill, name: &str) -> Res<f64> {
    let (rate, claims) = drain(mill, SAMPLE, BATCH).await?;
    let (p50, p99) = (part(&claims, 0.5), part(&claims, 0.99));
    println!("{name:>16}: drain {rate:>8.0}/s, claim of {BATCH} p50 {p50:.2} ms, p99 {p99:.2} ms");
    Ok(rate)
}
