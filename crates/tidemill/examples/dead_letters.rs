//! Jobs that gave up: look at them in groups, mend what was wrong, and replay them.

use serde::{Deserialize, Serialize};
use tidemill::{DeadFilter, Fail, Job, ReplayPace, Tidemill, Worker, testing};

#[derive(Serialize, Deserialize)]
struct Charge {
    customer: u64,
}

impl Job for Charge {
    const KIND: &'static str = "charge";
    type Output = String;
}

/// A worker before and after the mend.
fn worker(mill: &Tidemill, mended: bool) -> Worker {
    mill.worker().handle(move |job: Charge, _cx| async move {
        if job.customer > 1 && !mended {
            return Err(Fail::permanent(format!("customer {} has no address", job.customer)));
        }
        Ok(format!("charged {}", job.customer))
    })
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let mill = Tidemill::open("sqlite::memory:").await?;
    mill.enqueue_many((1..=4).map(|customer| Charge { customer })).await?;
    let drained = testing::drain(worker(&mill, false)).await?;
    println!("{} done, {} dead", drained.done, drained.dead);

    let all = DeadFilter::default();
    for group in mill.dead().groups(&all).await? {
        println!("{} x {} ({})", group.count, group.kind, group.class.word());
    }
    // At a pace; with the default one, a canary goes first and stops it all if it dies again.
    let pace = ReplayPace { canary: false, ..ReplayPace::default() };
    let report = mill.dead().replay(&all, "ada", &pace, |_, _| {}).await?;
    println!("{} replayed", report.replayed);
    let drained = testing::drain(worker(&mill, true)).await?;
    println!("{} done, {} dead", drained.done, drained.dead);
    Ok(())
}
