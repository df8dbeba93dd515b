//! Many jobs that are due in the same second: what claims take before it, and from it on.

use std::time::{Duration, Instant};

use tidemill::{Tidemill, Timestamp};

use crate::Res;
use crate::load::{Hand, fill, job, part, rest};

const BATCH: u64 = 5000;
const CLAIM: usize = 100;
/// How long claims are watched on each side of the moment.
const SIDE: Duration = Duration::from_secs(5);

pub async fn measure(mill: &Tidemill, n: u64) -> Res<()> {
    // As long as writing takes, with room to spare.
    let probe = Instant::now();
    mill.enqueue_many((0..BATCH).map(job)).await?;
    let per_job = probe.elapsed() / BATCH as u32;
    let wait = per_job * u32::try_from(n * 3)? + 4 * SIDE;
    let due = later(Timestamp::now(), wait)?;
    for first in (0..n).step_by(BATCH as usize) {
        let jobs = (first..n.min(first + BATCH)).map(|number| job(number).run_at(due));
        mill.enqueue_many(jobs).await?;
    }
    println!("{n} jobs are written, and due at {due}");
    fill(mill, 300_000).await?;
    let hand = Hand::register(mill).await?;
    let until = later(due, SIDE)?;
    let from_us = due.as_microsecond() - i64::try_from(SIDE.as_micros())?;
    let (mut before, mut after) = (Vec::new(), Vec::new());
    loop {
        let now = Timestamp::now();
        if now >= until {
            break;
        }
        if now.as_microsecond() < from_us {
            rest(Duration::from_millis(50)).await;
            hand.beat().await?;
            continue;
        }
        let start = Instant::now();
        let claim = hand.claim(CLAIM).await?;
        let took = start.elapsed();
        let times = if now < due { &mut before } else { &mut after };
        times.push((took, claim.jobs.len()));
        hand.settle(claim).await?;
    }
    for (when, times) in [("before", before), ("after", after)] {
        let jobs: usize = times.iter().map(|(_, jobs)| jobs).sum();
        let mut times: Vec<Duration> = times.into_iter().map(|(took, _)| took).collect();
        times.sort();
        let (p50, p99, most) = (part(&times, 0.5), part(&times, 0.99), part(&times, 1.0));
        let rate = jobs as f64 / SIDE.as_secs_f64();
        println!(
            "{when}: {rate:.0} jobs/s, claims of {CLAIM} p50 {p50:.2} ms, p99 {p99:.2} ms, max {most:.2} ms"
        );
    }
    Ok(())
}

fn later(at: Timestamp, by: Duration) -> Res<Timestamp> {
    Ok(Timestamp::from_microsecond(at.as_microsecond() + i64::try_from(by.as_micros())?)?)
}
