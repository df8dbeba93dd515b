//! What limits cost: drain rate without one, under one that never binds, by queue, kind, tenant and key, and with ten
//! thousand keys of which one may run at a time. A limit that never binds stands twice: one on more than all workers
//! together may hold, which counts nobody, and one that is counted and never full. A rate that never binds is always
//! kept.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tidemill::Tidemill;
use tidemill::core::QueueRules;
use tidemill::core::gate::{Limit, Per, Rate};

use crate::Res;
use crate::busy::{busy, per_job};
use crate::load::{Hand, QUEUE, job, part};

const JOBS: u64 = 60_000;
const KEYS: u64 = 10_000;
const TENANTS: u64 = 1000;
/// Above what the two claimers have at once, 1,000 each, and below what they may hold, twice their slots.
const COUNTED: u32 = 3000;

/// What jobs bear that limits count by.
#[derive(Clone, Copy)]
enum Of {
    Nobody,
    Keys,
    Tenants,
}

/// One way to drain.
struct Case {
    name: &'static str,
    of: Of,
    limit: Option<Limit>,
}

fn cases() -> Vec<Case> {
    let limit = |per, most| Some(Limit { per, concurrency: Some(most), ..Limit::default() });
    let of_kind = |most| {
        let kind = Some("measure".to_owned());
        Some(Limit { kind, concurrency: Some(most), ..Limit::default() })
    };
    let rate = Some(Rate { jobs: 1_000_000, per_ms: 1000, burst: 1_000_000 });
    let paced = |per| Some(Limit { per, rate, ..Limit::default() });
    let case = |name, of, limit| Case { name, of, limit };
    vec![
        case("no limit", Of::Nobody, None),
        case("a queue limit that cannot bind", Of::Nobody, limit(Per::All, 1_000_000)),
        case("a queue limit, counted, never full", Of::Nobody, limit(Per::All, COUNTED)),
        case("a kind limit that cannot bind", Of::Nobody, of_kind(1_000_000)),
        case("a kind limit, counted, never full", Of::Nobody, of_kind(COUNTED)),
        case("a rate that never binds", Of::Nobody, paced(Per::All)),
        case("1,000 tenants, no limit", Of::Tenants, None),
        case("1,000 tenants, a limit that cannot bind", Of::Tenants, limit(Per::Tenant, 1_000_000)),
        case(
            "1,000 tenants, a limit, counted, never full",
            Of::Tenants,
            limit(Per::Tenant, COUNTED),
        ),
        case("1,000 tenants, a rate that never binds", Of::Tenants, paced(Per::Tenant)),
        case("10,000 keys, no limit", Of::Keys, None),
        case("10,000 keys, a key limit that cannot bind", Of::Keys, limit(Per::Key, 1_000_000)),
        case("10,000 keys, a key limit, counted, never full", Of::Keys, limit(Per::Key, 1000)),
        case("10,000 keys, one of each at a time", Of::Keys, limit(Per::Key, 1)),
    ]
}

async fn set(mill: &Tidemill, limit: Option<Limit>) -> Res<()> {
    let limits = limit.into_iter().map(|limit| ("measured".to_owned(), limit)).collect();
    let rules = QueueRules { limits, ..QueueRules::default() };
    mill.store().set_queue(QUEUE, Some(rules)).await?;
    Ok(())
}

/// Measures the cases with `only` in their names in turn, round after round: the machine drifts.
pub async fn measure(mill: &Tidemill, only: &str, samples: usize) -> Res<()> {
    let mut cases = cases();
    cases.retain(|case| case.name.contains(only));
    let mut rates = vec![Vec::new(); cases.len()];
    for _ in 0..samples {
        for (case, rates) in cases.iter().zip(&mut rates) {
            set(mill, case.limit.clone()).await?;
            fill(mill, case.of).await?;
            rates.push(drain(mill).await?);
        }
    }
    set(mill, None).await?;
    for (case, mut rates) in cases.into_iter().zip(rates) {
        let mut work: Vec<f64> = rates.iter().map(|(.., work)| *work).collect();
        work.sort_by(f64::total_cmp);
        rates.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
        let (rate, p50, _) = rates[samples / 2];
        println!(
            "{:<46} drain {rate:>7.0}/s, claim of 500 p50 {p50:.2} ms, {:.1} us of processors a job",
            case.name,
            work[samples / 2]
        );
    }
    Ok(())
}

async fn fill(mill: &Tidemill, of: Of) -> Res<()> {
    const BATCH: u64 = 5000;
    for first in (0..JOBS).step_by(BATCH as usize) {
        let jobs = (first..first + BATCH).map(|n| match of {
            Of::Keys => job(n).key(format!("customer:{}", n % KEYS)),
            Of::Tenants => job(n).tenant(format!("tenant:{}", n % TENANTS)),
            Of::Nobody => job(n),
        });
        mill.enqueue_many(jobs).await?;
    }
    Ok(())
}

/// Two claimers, each settling one batch while it claims the next.
async fn drain(mill: &Tidemill) -> Res<(f64, f64, f64)> {
    let (start, before, taken) = (Instant::now(), busy(), AtomicU64::new(0));
    let (one, two) = tokio::join!(drain_one(mill, &taken), drain_one(mill, &taken));
    let secs = start.elapsed().as_secs_f64();
    let mut times = one?;
    times.extend(two?);
    times.sort();
    Ok((JOBS as f64 / secs, part(&times, 0.5), per_job(before, JOBS)))
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
