//! Two jobs that are the same: what makes them so, and what the second one gets.

use serde::{Deserialize, Serialize};
use tidemill::{Enqueue, Job, OnDuplicate, Receipt, Tidemill, Unique, testing};

#[derive(Serialize, Deserialize)]
struct Rebuild {
    shop: u64,
    because: String,
}

impl Job for Rebuild {
    const KIND: &'static str = "rebuild";
    type Output = String;
}

/// The same shop is the same work, whatever the reason.
fn rebuild(because: &str, on_duplicate: OnDuplicate) -> Enqueue {
    let job = Rebuild { shop: 7, because: because.into() };
    Enqueue::from(job).unique(Unique::by_fields(["shop"]).on_duplicate(on_duplicate))
}

fn word(receipt: &Receipt) -> &'static str {
    match receipt {
        Receipt::Enqueued { .. } | Receipt::Diverted { .. } => "enqueued",
        Receipt::Rejected { .. } => "rejected",
        Receipt::Joined { .. } => "joined",
        Receipt::Replaced { .. } => "replaced",
        Receipt::Kept { .. } => "kept for afterwards",
    }
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let mill = Tidemill::open("sqlite::memory:").await?;
    for (because, policy) in [
        ("a new price", OnDuplicate::Reject),
        ("a new name", OnDuplicate::Reject),
        ("a new photo", OnDuplicate::Join),
        ("a new colour", OnDuplicate::Replace),
    ] {
        println!("{because}: {}", word(&mill.enqueue(rebuild(because, policy)).await?));
    }
    let worker = mill.worker().handle(|job: Rebuild, _cx| async move {
        println!("rebuilt shop {} because of {}", job.shop, job.because);
        Ok(job.because)
    });
    testing::drain(worker).await?;
    let again = mill.enqueue(rebuild("a new day", OnDuplicate::Reject)).await?;
    println!("a new day: {}", word(&again));
    Ok(())
}
