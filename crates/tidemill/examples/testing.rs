//! Testing code that uses jobs: no server, no waiting, and a clock that moves when told.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use tidemill::{Clock, Context, Enqueue, Fail, Job, ManualClock, Tidemill, Worker, testing};

#[derive(Serialize, Deserialize)]
struct Remind {
    user: u64,
}

impl Job for Remind {
    const KIND: &'static str = "remind";
    type Output = ();
}

/// What is tested: the first attempt fails, the second succeeds.
async fn remind(job: Remind, cx: Context) -> Result<(), Fail> {
    if cx.attempt() == 1 {
        return Err(Fail::transient("the mail server is away").retry_after(Duration::from_mins(5)));
    }
    println!("user {} was reminded at attempt {}", job.user, cx.attempt());
    Ok(())
}

fn worker(mill: &Tidemill) -> Worker {
    mill.worker().handle(remind)
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let clock = ManualClock::default();
    let builder = Tidemill::builder().clock(Clock::Manual(clock.clone()));
    let mill = builder.open("sqlite::memory:").await?;

    let tomorrow = Duration::from_hours(24);
    mill.enqueue(Enqueue::from(Remind { user: 7 }).delay(tomorrow)).await?;
    testing::assert_enqueued::<Remind>(&mill, |job| job.user == 7).await;
    println!("today: {} attempts", testing::drain(worker(&mill)).await?.attempts);
    clock.advance(tomorrow);
    println!("tomorrow: {} to be retried", testing::drain(worker(&mill)).await?.again);
    clock.advance(Duration::from_mins(5));
    println!("later: {} done", testing::drain(worker(&mill)).await?.done);

    let settled = testing::run_inline(worker(&mill), Remind { user: 8 }).await?;
    println!("inline: {}", matches!(settled, tidemill::core::Settlement::Again { .. }));
    Ok(())
}
