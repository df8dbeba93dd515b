//! What limits cost: drain rate without one, under one that never binds, and with a thousand jobs of ten for each of
//! ten thousand keys of which one may run at a time. A limit that never binds stands twice: one on more than all
//! workers together may hold, which counts nobody, and one that is counted and never full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidemill::Tidemill;
use tidemill::core::QueueRules;
use tidemill::core::gate::{Limit, Per};

use crate::Res;
use crate::load::{Hand, QUEUE, job, part};

const JOBS: u64 = 60_000;
const KEYS: u64 = 10_000;
const SAMPLES: usize = 5;

/// One way to drain.
struct Case {
    name: &'static str,
    has_keys: bool,
    limit: Option<Limit>,
}

fn cases() -> Vec<Case> {
    let limit = |per, most| Some(Limit { per, concurrency: Some(most), ..Limit::default() });
    let case = |name, has_keys, limit| Case { name, has_keys, limit };
    vec![
        case("no keys, no limit", false, None),
        case("no keys, a queue limit that cannot bind", false, limit(Per::All, 1_000_000)),
        case("10,000 keys, no limit", true, None),
        case("10,000 keys, a key limit that cannot bind", true, limit(Per::Key, 1_000_000)),
        case("10,000 keys, a key limit, counted, never full", true, limit(Per::Key, 1000)),
        case("10,000 keys, one of each at a time", true, limit(Per::Key, 1)),
    ]
}

async fn set(mill: &Tidemill, limit: Option<Limit>) -> Res<()> {
    let limits = limit.into_iter().map(|limit| ("measured".to_owned(), limit)).collect();
    let rules = QueueRules { limits, ..QueueRules::default() };
    mill.store().set_queue(QUEUE, Some(rules)).await?;
    Ok(())
}

/// Measures the cases in turn, round after round: the machine drifts.
pub async fn measure(mill: &Tidemill) -> Res<()> {
    let cases = cases();
    let mut rates = vec![Vec::new(); cases.len()];
    for _ in 0..SAMPLES {
        for (case, rates) in cases.iter().zip(&mut rates) {
            set(mill, case.limit.clone()).await?;
            fill(mill, case.has_keys).await?;
            rates.push(drain(mill).await?);
        }
    }
    set(mill, None).await?;
    for (case, mut rates) in cases.into_iter().zip(rates) {
        rates.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let (rate, p50) = rates[SAMPLES / 2];
        println!("{:<46} drain {rate:>7.0}/s, claim of 500 p50 {p50:.2} ms", case.name);
    }
    Ok(())
}

async fn fill(mill: &Tidemill, has_keys: bool) -> Res<()> {
    const BATCH: u64 = 5000;
    for first in (0..JOBS).step_by(BATCH as usize) {
        let jobs = (first..first + BATCH).map(|n| match has_keys {
            true => job(n).key(format!("customer:{}", n % KEYS)),
            false => job(n),
        });
        mill.enqueue_many(jobs).await?;
    }
    Ok(())
}

/// Two claimers, each settling one batch while it claims the next.
async fn drain(mill: &Tidemill) -> Res<(f64, f64)> {
    let (start, taken) = (Instant::now(), AtomicU64::new(0));
    let (one, two) = tokio::join!(drain_one(mill, &taken), drain_one(mill, &taken));
    let secs = start.elapsed().as_secs_f64();
    let mut times = one?;
    times.extend(two?);
    times.sort();
    Ok((JOBS as f64 / secs, part(&times, 0.5)))
}

async fn drain_one(mill: &Tidemill, taken: &AtomicU64) -> Res<Vec<std::time::Duration>> {
    let hand = Hand::register(mill).await?.by_rules().await?;
    let (mut times, mut before) = (Vec::new(), None);
    while taken.load(Ordering::Relaxed) < JOBS {
        let claiming = async {
            let start = Instant::now();
            hand.claim(500).await.map(|claim| (claim, start.elapsed()))
        };
        let settling = async {
            match before.take() {
                Some(claim) => hand.settle(claim).await,
                None => Ok(()),
            }
        };
        let (claimed, settled) = tokio::join!(claiming, settling);
        settled?;
        let (claim, took) = claimed?;
        taken.fetch_add(claim.jobs.len() as u64, Ordering::Relaxed);
        times.push(took);
        before = Some(claim);
    }
    if let Some(claim) = before {
        hand.settle(claim).await?;
    }
    hand.leave().await?;
    Ok(times)
}
