//! Schedules on a clock set by hand: a night in which clocks change, a silence, a job that is late.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill::testing::{drain, tend};
use tidemill::{
    Backfill, Clock, Job, ManualClock, Missed, Overlap, Schedule, Tidemill, Timestamp, slot_of,
};

#[derive(Serialize, Deserialize)]
struct Report {
    of: String,
}

impl Job for Report {
    const KIND: &'static str = "report";
    type Output = ();
}

fn report() -> Report {
    Report { of: "yesterday".into() }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

#[tokio::main]
async fn main() -> tidemill::Result<()> {
    let clock = ManualClock::at(at("2026-03-28T12:00:00Z"));
    let still = Clock::Manual(clock.clone());
    let mill = Tidemill::builder().clock(still).open("sqlite::memory:").await?;
    let schedules = mill.schedules();

    println!("a nightly report in Berlin, where 02:30 does not exist on 29 March:");
    let nightly = Schedule::cron("nightly", "30 2 * * *", report())
        .zone("Europe/Berlin")
        .missed(Missed::All(10))
        .overlap(Overlap::Skip);
    schedules.set(nightly).await?;
    for slot in schedules.preview("nightly", 3).await? {
        println!("  {}", slot.local);
    }

    println!("one that never fires is refused:");
    let never = Schedule::cron("never", "0 0 30 2 *", report());
    if let Err(error) = schedules.set(never).await {
        println!("  {}", error.code());
    }

    println!("after three days of silence the slots are caught up, and overlaps are skipped:");
    clock.set(at("2026-03-31T12:00:00Z"));
    tend(&mill).await?;
    for entry in schedules.history("nightly", 10).await?.iter().rev() {
        println!("  {} {}", entry.slot, entry.what.word());
    }

    println!("what was skipped is filled by hand:");
    let range = Backfill { from: at("2026-03-29T00:00:00Z"), to: clock.now(), again: false };
    for fired in schedules.backfill("nightly", range).await? {
        println!("  {} {}", fired.slot, fired.what.word());
    }
    let worker = mill.worker().handle(|report: Report, cx| async move {
        if let Some(slot) = slot_of(&cx.job().options) {
            println!("  report of {} for {slot}", report.of);
        }
        Ok(())
    });
    drain(worker).await?;

    println!("a service declares its own schedules and leaves the others alone:");
    let minutely = Schedule::every("minutely", Duration::from_mins(1), report());
    let declared = schedules.declare("reports", [minutely]).await?;
    println!("  made {:?}, deleted {:?}", declared.made, declared.deleted);
    Ok(())
}
