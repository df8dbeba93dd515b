//! Drain rate with few and with many jobs waiting, or with many finished ones kept.
//!
//! A small store and a large one take turns, since the machine drifts by more than what is looked
//! for: a pair of neighbouring samples shares its weather, and what counts is the ratio of pairs.

use tidemill::Tidemill;

use crate::Res;
use crate::load::{drain, fill, part};

const SAMPLE: u64 = 50_000;
const BATCH: usize = 500;
/// What the small store has waiting at any time.
const REST: u64 = 10_000;

/// Makes one of two stores large and drains them in turns, `pairs` times each.
pub async fn measure(
    small: &Tidemill,
    large: &Tidemill,
    jobs: u64,
    pairs: usize,
    finish: bool,
) -> Res<()> {
    fill(small, REST).await?;
    fill(large, REST).await?;
    let filled = fill(large, jobs).await?;
    println!("{jobs} more enqueued, {:.0}/s", jobs as f64 / filled.as_secs_f64());
    if finish {
        let (rate, _) = drain(large, jobs, BATCH).await?;
        println!("{jobs} finished and kept, {rate:.0}/s");
    }
    let mut ratios = Vec::new();
    for pair in 0..pairs {
        // Who goes first changes, or one side would always find what the other left to be written.
        let (few, many) = if pair % 2 == 0 {
            let few = sample(small, "few").await?;
            (few, sample(large, "many").await?)
        } else {
            let many = sample(large, "many").await?;
            (sample(small, "few").await?, many)
        };
        ratios.push(many / few);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |part: f64| ratios.get((pairs as f64 * part) as usize).copied().unwrap_or_default();
    println!("many / few: {:.2} (quartiles {:.2} and {:.2})", at(0.5), at(0.25), at(0.75));
    Ok(())
}

async fn sample(mill: &Tidemill, name: &str) -> Res<f64> {
    fill(mill, SAMPLE).await?;
    let (rate, claims) = drain(mill, SAMPLE, BATCH).await?;
    let (p50, p99) = (part(&claims, 0.5), part(&claims, 0.99));
    println!("{name:>6}: drain {rate:>8.0}/s, claim of {BATCH} p50 {p50:.2} ms, p99 {p99:.2} ms");
    Ok(rate)
}
