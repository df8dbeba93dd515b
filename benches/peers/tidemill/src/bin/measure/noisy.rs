//! One tenant with a million jobs and 9,999 with one each: how soon the small ones start, and what claims cost beside
//! tenants that have nothing due.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tidemill::{Enqueue, Tidemill};

use crate::Res;
use crate::load::{Hand, drain, job, part};

const SMALL: u64 = 9_999;
const CLAIM: usize = 500;
const BATCH: usize = 5_000;
/// Jobs of ten tenants that are claimed beside idle ones.
const ACTIVE: u64 = 60_000;
const SAMPLES: usize = 3;

/// The million is there first, as it would be.
pub async fn measure(mill: &Tidemill, n: u64) -> Res<()> {
    fill(mill, (0..n).map(|n| job(n).tenant("whale"))).await?;
    fill(mill, (0..SMALL).map(|n| job(n).tenant(small(n)))).await?;
    starts(mill).await?;
    beside_idle(mill).await
}

fn small(n: u64) -> String {
    format!("small {n}")
}

async fn fill(mill: &Tidemill, jobs: impl Iterator<Item = Enqueue>) -> Res<()> {
    let mut jobs = jobs.peekable();
    while jobs.peek().is_some() {
        mill.enqueue_many(jobs.by_ref().take(BATCH)).await?;
    }
    Ok(())
}

/// Claims and settles until all small ones have started.
async fn starts(mill: &Tidemill) -> Res<()> {
    let hand = Hand::register(mill).await?;
    let (mut started, mut claimed, mut times) = (HashSet::new(), 0_u64, Vec::new());
    while started.len() < SMALL as usize {
        let began = Instant::now();
        let claim = hand.claim(CLAIM).await?;
        times.push(began.elapsed());
        claimed += claim.jobs.len() as u64;
        let tenants = claim.jobs.iter().filter_map(|taken| taken.job.tenant.clone());
        started.extend(tenants.filter(|tenant| tenant.as_str() != "whale"));
        hand.settle(claim).await?;
    }
    times.sort();
    println!(
        "{SMALL} small tenants had all started after {claimed} jobs (the fair share: {}), {} claims of {CLAIM}, \
         p50 {:.2} ms, p99 {:.2} ms",
        SMALL + 1,
        times.len(),
        part(&times, 0.5),
        part(&times, 0.99)
    );
    Ok(())
}

/// In a queue's turns, tenants whose jobs are due tomorrow are in the way of those with work now, or not.
async fn beside_idle(mill: &Tidemill) -> Res<()> {
    drain_rest(mill).await?;
    let mut idle = 0;
    for number in [0, 1_000, 10_000] {
        let later = Duration::from_hours(24);
        fill(mill, (idle..number).map(|n| job(n).tenant(format!("idle {n}")).delay(later))).await?;
        idle = number;
        let mut rates = Vec::new();
        for _ in 0..SAMPLES {
            fill(mill, (0..ACTIVE).map(|n| job(n).tenant(format!("active {}", n % 10)))).await?;
            let (rate, claims) = drain(mill, ACTIVE, CLAIM).await?;
            rates.push((rate, part(&claims, 0.5)));
        }
        rates.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let (rate, p50) = rates[SAMPLES / 2];
        println!(
            "10 tenants with work beside {idle:>6} idle ones: drain {rate:>7.0}/s, claim of {CLAIM} p50 {p50:.2} ms"
        );
    }
    Ok(())
}

async fn drain_rest(mill: &Tidemill) -> Res<()> {
    let hand = Hand::register(mill).await?;
    while !hand.claim_and_settle(5_000).await? {}
    Ok(())
}
