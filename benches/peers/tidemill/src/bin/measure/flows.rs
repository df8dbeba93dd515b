//! What flows cost: chains and fan-outs beside plain jobs, and whether a join of many children is slower than one
//! of few.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidemill::{Enqueue, Flow, FlowId, Payload, Settings, Tidemill};
use tokio::sync::Notify;

use crate::Res;
use crate::busy::{busy, per_job};
use crate::load::{Hand, job, part};

const SAMPLES: usize = 3;
const SLOTS: usize = 200;
const CHAIN: u64 = 5;
const FAN: u64 = 100;
const BATCH: u64 = 10;

/// Runs about `jobs` jobs each way, round after round: the machine drifts. Then one join of 10, of 10,000 and, if
/// `is_large`, of a million children.
pub async fn measure(mill: &Tidemill, jobs: u64, is_large: bool) -> Res<()> {
    let names = ["plain jobs", "chains of 5", "fan-outs of 100, joined"];
    let (chains, fans) = (jobs / CHAIN, jobs / (FAN + 2));
    let mut rates = [const { Vec::new() }; 3];
    let mut works = [const { Vec::new() }; 3];
    let mut starts = [const { Vec::new() }; 3];
    for _ in 0..SAMPLES {
        let runs = [
            run(mill, jobs, plain(mill, jobs)).await?,
            run(mill, chains * CHAIN, start(mill, chains, chain)).await?,
            run(mill, fans * (FAN + 2), start(mill, fans, fan)).await?,
        ];
        for (kind, (started, ran, worked)) in runs.into_iter().enumerate() {
            starts[kind].push(started);
            rates[kind].push(ran);
            works[kind].push(worked);
        }
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[SAMPLES / 2]
    };
    let (rates, starts) = (rates.each_mut().map(median), starts.each_mut().map(median));
    let works = works.each_mut().map(median);
    for (kind, name) in names.iter().enumerate() {
        let (rate, start, work) = (rates[kind], starts[kind], works[kind]);
        let part = 100.0 * rate / rates[0];
        println!(
            "{name:<26} {rate:>7.0} jobs/s, {part:>4.0} % of plain, {work:.1} us of processors a job; \
             written at {start:>6.0} jobs/s"
        );
    }
    join(mill, 10, 200).await?;
    join(mill, 10_000, 1).await?;
    if is_large {
        join(mill, 1_000_000, 1).await?;
    }
    Ok(())
}

async fn plain(mill: &Tidemill, jobs: u64) -> Res<()> {
    for first in (0..jobs).step_by(1000) {
        mill.enqueue_many((first..jobs.min(first + 1000)).map(job)).await?;
    }
    Ok(())
}

/// Starts so many flows, some at a time.
async fn start(mill: &Tidemill, flows: u64, flow: fn(u64) -> Flow) -> Res<()> {
    const AT_A_TIME: u64 = 64;
    for first in (0..flows).step_by(AT_A_TIME as usize) {
        let starting = (first..flows.min(first + AT_A_TIME)).map(|n| {
            let mill = mill.clone();
            tokio::spawn(async move { mill.start(flow(n)).await })
        });
        for started in starting.collect::<Vec<_>>() {
            started.await??;
        }
    }
    Ok(())
}

fn chain(n: u64) -> Flow {
    let chain = Flow::new("chain").step("a", job(n)).then("b", job(n));
    chain.then("c", job(n)).then("d", job(n)).then("e", job(n))
}

fn fan(n: u64) -> Flow {
    let fan = Flow::new("fan").step("first", job(n)).fan_out("fan", (0..FAN).map(job));
    fan.after("first").step("sum", job(n)).after("fan")
}

/// Lets a worker run what `fill` brings, all of it written before it starts. Answers at how many jobs per second they
/// were written, and ran.
async fn run(
    mill: &Tidemill,
    jobs: u64,
    fill: impl Future<Output = Res<()>>,
) -> Res<(f64, f64, f64)> {
    let start = Instant::now();
    fill.await?;
    let filled = start.elapsed().as_secs_f64();
    let (done, over) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let ended = Arc::clone(&over);
    let handler = move |_: Payload, _cx| {
        if done.fetch_add(1, Relaxed) + 1 == jobs {
            ended.notify_one();
        }
        async { Ok(Payload::null()) }
    };
    let (start, before) = (Instant::now(), busy());
    let worker = mill.worker().slots(SLOTS).handle_raw("measure", Settings::default(), handler);
    let worker = worker.start().await?;
    over.notified().await;
    let (secs, work) = (start.elapsed().as_secs_f64(), per_job(before, jobs));
    worker.stop().await;
    Ok((jobs as f64 / filled, jobs as f64 / secs, work))
}

/// Children settled per second, ten at a time whatever their number, and how long after the last of them the join's own
/// job can be had; one join after another.
async fn join(mill: &Tidemill, children: u64, times: u64) -> Res<()> {
    let hand = Hand::register(mill).await?;
    let (mut took, mut waits, mut last) = (Duration::ZERO, Vec::new(), None);
    for _ in 0..times {
        let flow = Flow::new("join").fan_out("child", Vec::<Enqueue>::new());
        let flow = flow.step("sum", job(0)).after("child");
        let id = mill.start_with(flow, "child", (0..children).map(job)).await?;
        while mill.store().tend_flows().await? {}
        let mut left = children;
        while left > 0 {
            let claim = hand.claim(left.min(BATCH) as usize).await?;
            left -= claim.jobs.len() as u64;
            let start = Instant::now();
            hand.settle(claim).await?;
            took += start.elapsed();
        }
        let start = Instant::now();
        let claim = next(mill, &hand).await?;
        waits.push(start.elapsed());
        hand.settle(claim).await?;
        hand.beat().await?;
        last = Some(id);
    }
    waits.sort();
    let (rate, wait) = ((times * children) as f64 / took.as_secs_f64(), part(&waits, 0.5));
    println!(
        "a join of {children:>9} children: {rate:>6.0} settled/s; the join {wait:.1} ms after"
    );
    ended(mill, last).await
}

/// The join's own job, as soon as it is let go.
async fn next(mill: &Tidemill, hand: &Hand<'_>) -> Res<tidemill::store::Claim> {
    loop {
        let claim = hand.claim(10).await?;
        if !claim.jobs.is_empty() {
            return Ok(claim);
        }
        mill.store().now().await?;
    }
}

async fn ended(mill: &Tidemill, id: Option<FlowId>) -> Res<()> {
    let Some(id) = id else { return Ok(()) };
    mill.wait_flow(id, Duration::from_secs(60)).await?;
    Ok(())
}
