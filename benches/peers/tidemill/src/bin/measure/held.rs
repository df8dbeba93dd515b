//! A transaction held open elsewhere while 2,000 jobs/s pass: vacuum can clean nothing.

use std::time::{Duration, Instant};

use tidemill::Tidemill;
use tokio_postgres::NoTls;

use crate::Res;
use crate::load::{Hand, drain, fill, job, part};

const TICK: Duration = Duration::from_millis(10);
const JOBS_PER_TICK: u64 = 20;
const DRAINED: u64 = 300_000;
const REPORT: Duration = Duration::from_secs(30);

pub async fn measure(mill: &Tidemill, url: &str, seconds: u64) -> Res<()> {
    // Long enough that a drain looks from the heads more than once.
    fill(mill, DRAINED).await?;
    let (before, _) = drain(mill, DRAINED, 500).await?;
    println!("max drain before: {before:.0}/s");
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let hold = "begin isolation level repeatable read; select pg_current_xact_id(), count(*) from pg_class";
    client.batch_execute(hold).await?;
    pass(mill, Duration::from_secs(seconds)).await?;
    fill(mill, DRAINED).await?;
    let (after, _) = drain(mill, DRAINED, 500).await?;
    println!("max drain after, still held: {after:.0}/s, {:.2} of before", after / before);
    client.batch_execute("rollback").await?;
    drop(client);
    connection.await??;
    Ok(())
}

/// Half of the jobs come singly, half in one batch: the worst and the usual case together.
async fn pass(mill: &Tidemill, limit: Duration) -> Res<()> {
    let hand = Hand::register(mill).await?;
    let (start, mut reported) = (Instant::now(), Instant::now());
    let mut ticks = tokio::time::interval(TICK);
    let (mut claims, mut passed, mut n) = (Vec::new(), 0_u64, 0);
    while start.elapsed() < limit {
        ticks.tick().await;
        n += 1;
        let half = JOBS_PER_TICK / 2;
        let singles = (0..half).map(|i| mill.enqueue(job(n * half + i)));
        mill.enqueue_many((0..half).map(job)).await?;
        for single in singles.map(Box::pin) {
            single.await?;
        }
        let asked = Instant::now();
        let claim = hand.claim(100).await?;
        claims.push(asked.elapsed());
        passed += claim.jobs.len() as u64;
        hand.settle(claim).await?;
        if reported.elapsed() >= REPORT {
            hand.beat().await?;
            claims.sort();
            let rate = passed as f64 / reported.elapsed().as_secs_f64();
            let (p50, p99) = (part(&claims, 0.5), part(&claims, 0.99));
            let at = start.elapsed().as_secs();
            println!("{at:>5} s: {rate:>6.0} jobs/s, claim p50 {p50:.2} ms, p99 {p99:.2} ms");
            (claims, passed, reported) = (Vec::new(), 0, Instant::now());
        }
    }
    Ok(())
}
