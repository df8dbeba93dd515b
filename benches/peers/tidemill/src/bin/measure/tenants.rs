//! What turns cost: drain rate and claims with no tenants, and with ever more that have work.

use tidemill::Tidemill;

use crate::Res;
use crate::load::{drain, job, part};

const JOBS: u64 = 60_000;
const SAMPLES: usize = 5;

/// Measures the numbers of tenants in turn, round after round: the machine drifts.
pub async fn measure(mill: &Tidemill) -> Res<()> {
    let numbers = [0, 1, 10, 1_000, 10_000];
    let mut rates = vec![Vec::new(); numbers.len()];
    for _ in 0..SAMPLES {
        for (tenants, rates) in numbers.iter().zip(&mut rates) {
            fill(mill, *tenants).await?;
            let (rate, claims) = drain(mill, JOBS, 500).await?;
            rates.push((rate, part(&claims, 0.5), part(&claims, 0.99)));
        }
    }
    for (tenants, mut rates) in numbers.into_iter().zip(rates) {
        rates.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let (rate, p50, p99) = rates[SAMPLES / 2];
        println!(
            "{tenants:>6} tenants: drain {rate:>7.0}/s, claim of 500 p50 {p50:.2} ms, p99 {p99:.2} ms"
        );
    }
    Ok(())
}

/// Half of the jobs are of the first tenant; the others share the rest.
async fn fill(mill: &Tidemill, tenants: u64) -> Res<()> {
    const BATCH: u64 = 5000;
    for first in (0..JOBS).step_by(BATCH as usize) {
        let jobs = (first..first + BATCH).map(|n| match tenants {
            0 => job(n),
            1 => job(n).tenant("tenant 0"),
            _ if n % 2 == 0 => job(n).tenant("tenant 0"),
            _ => job(n).tenant(format!("tenant {}", n / 2 % tenants)),
        });
        mill.enqueue_many(jobs).await?;
    }
    Ok(())
}
