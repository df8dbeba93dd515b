//! Many jobs held at one gate: what claims of other work take before, meanwhile, and while the limit is lifted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill::core::QueueRules;
use tidemill::core::gate::{Counts, Per, QueueLimit};
use tidemill::{Enqueue, Tidemill};

use crate::Res;
use crate::load::{Hand, QUEUE, fill, part};

const BATCH: u64 = 5000;
const CLAIM: usize = 100;
const SLOW: &str = "slow";
/// How long claims are watched.
const SPAN: Duration = Duration::from_secs(4);
/// Other work, enough for that long.
const OTHERS: u64 = 300_000;
/// Of the crowd, those let through one by one.
const ONE_BY_ONE: usize = 100;

/// `with_keys`: each job of the crowd has a key of its own, so that on Postgres each has a row of its own.
pub async fn measure(mill: &Tidemill, n: u64, with_keys: bool) -> Res<()> {
    let limits = Arc::new(vec![QueueLimit {
        queue: QUEUE.into(),
        gate: format!("{QUEUE}/one"),
        kind: Some(SLOW.into()),
        counts: Counts::Per(Per::All),
        concurrency: Some(1),
        rate: None,
        hold: false,
        breaker: None,
    }]);
    let hand = Hand::register(mill).await?.under(&limits);
    fill(mill, OTHERS).await?;
    watch("before", &hand, SPAN).await?;
    while !hand.claim_and_settle(1000).await? {}
    crowd(mill, n, with_keys).await?;
    let (held, mut times, mut inside) = (Instant::now(), Vec::new(), None);
    loop {
        let asked = Instant::now();
        let claim = hand.claim(CLAIM).await?;
        times.push(asked.elapsed());
        let is_over = claim.jobs.is_empty() && claim.next_due.is_none();
        inside = inside.or((!claim.jobs.is_empty()).then_some(claim));
        if is_over {
            break;
        }
    }
    report("while they are held back", times, 0, held.elapsed());
    fill(mill, OTHERS).await?;
    watch("while they are held", &hand, SPAN).await?;
    while !hand.claim_and_settle(1000).await? {}
    let mut times = Vec::new();
    for _ in 0..ONE_BY_ONE {
        let start = Instant::now();
        if let Some(claim) = inside.take() {
            hand.settle(claim).await?;
        }
        while inside.is_none() {
            let claim = hand.claim(CLAIM).await?;
            inside = (!claim.jobs.is_empty()).then_some(claim);
        }
        times.push(start.elapsed());
    }
    report("from the end of one to the start of the next", times, 0, SPAN);
    fill(mill, OTHERS).await?;
    let free = hand.clone().under(&Arc::default());
    let lifting = async {
        let start = Instant::now();
        mill.store().set_queue(QUEUE, Some(QueueRules::default())).await?;
        println!("all of them may try again after {:.2} s", start.elapsed().as_secs_f64());
        Res::Ok(())
    };
    let (lifted, watched) = tokio::join!(lifting, watch("while it is lifted", &free, SPAN));
    lifted?;
    watched?;
    watch("afterwards", &free, SPAN).await
}

async fn crowd(mill: &Tidemill, n: u64, with_keys: bool) -> Res<()> {
    for first in (0..n).step_by(BATCH as usize) {
        let one = |number: u64| {
            let key = if with_keys { number } else { 0 };
            Enqueue::raw(SLOW, "{}".to_owned()).key(format!("key {key}"))
        };
        mill.enqueue_many((first..n.min(first + BATCH)).map(one)).await?;
    }
    println!("{n} jobs are written");
    Ok(())
}

/// Claims and settles for so long.
async fn watch(when: &str, hand: &Hand<'_>, span: Duration) -> Res<()> {
    let (start, mut times, mut jobs) = (Instant::now(), Vec::new(), 0);
    while start.elapsed() < span {
        let asked = Instant::now();
        let claim = hand.claim(CLAIM).await?;
        times.push(asked.elapsed());
        jobs += claim.jobs.len();
        hand.settle(claim).await?;
    }
    hand.beat().await?;
    report(when, times, jobs, start.elapsed());
    Ok(())
}

fn report(when: &str, mut times: Vec<Duration>, jobs: usize, span: Duration) {
    times.sort();
    let (p50, p99, most) = (part(&times, 0.5), part(&times, 0.99), part(&times, 1.0));
    let (number, rate) = (times.len(), jobs as f64 / span.as_secs_f64());
    println!(
        "{when}: {number} times p50 {p50:.2} ms, p99 {p99:.2} ms, max {most:.2} ms; {rate:.0} jobs/s"
    );
}
