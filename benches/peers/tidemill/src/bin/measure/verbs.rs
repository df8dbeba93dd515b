//! The three verbs that touch the store, alone on an idle one, by batch size.

use std::time::{Duration, Instant};

use tidemill::Tidemill;

use crate::Res;
use crate::load::{Hand, job, part};

pub async fn measure(mill: &Tidemill) -> Res<()> {
    println!(
        "{:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "batch", "enqueue", "claim", "settle", "empty", "jobs/s"
    );
    for (batch, rounds) in [(1, 500), (10, 300), (100, 200), (500, 60)] {
        let hand = Hand::register(mill).await?;
        let mut times: [Vec<Duration>; 4] = Default::default();
        for _ in 0..rounds {
            let start = Instant::now();
            mill.enqueue_many((0..batch).map(job)).await?;
            times[0].push(start.elapsed());
            let start = Instant::now();
            let claim = hand.claim(batch as usize).await?;
            times[1].push(start.elapsed());
            let start = Instant::now();
            hand.settle(claim).await?;
            times[2].push(start.elapsed());
            let start = Instant::now();
            hand.claim(batch as usize).await?;
            times[3].push(start.elapsed());
        }
        let p50 = times.map(|mut t| {
            t.sort();
            part(&t, 0.5)
        });
        let rate = batch as f64 * 1e3 / (p50[0] + p50[1] + p50[2]);
        let [enqueue, claim, settle, empty] = p50;
        println!(
            "{batch:>6} {enqueue:>6.3} ms {claim:>6.3} ms {settle:>6.3} ms {empty:>6.3} ms {rate:>9.0}"
        );
    }
    Ok(())
}
