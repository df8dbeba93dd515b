//! `tidemill schedules history`: what became of slots.

use comfy_table::{Cell, Color};
use tidemill::Timestamp;
use tidemill_store::FireView;
use tidemill_store::schedule::{How, What};

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which entries.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The schedule
    name: String,
    /// At most this many; 1,000 are kept
    #[arg(long, value_name = "ENTRIES", default_value_t = 50)]
    limit: usize,
}

/// Shows them.
pub async fn run(app: &App, args: &Args) -> Outcome {
    let mill = app.open_existing().await?;
    let entries = mill.schedules().history(&args.name, args.limit).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        entries.iter().for_each(output::json);
    } else if entries.is_empty() {
        eprintln!("no slot of {} has come yet", args.name);
    } else {
        show(&entries, now);
    }
    Ok(Exit::Ok)
}

/// Entries in a table.
pub fn show(entries: &[FireView], now: Timestamp) {
    let mut table = output::table(&["SLOT", "WHAT", "WHY", "JOBS", "JOB", "WHEN"]);
    for entry in entries {
        let job = entry.job.map_or_else(|| output::quiet("–"), Cell::new);
        table.add_row([
            Cell::new(slot(entry)),
            what(entry.what),
            Cell::new(why(entry.how)),
            output::number(u64::from(entry.jobs)),
            job,
            Cell::new(relative(entry.at, now)),
        ]);
    }
    output::show(&table);
}

fn slot(entry: &FireView) -> String {
    match entry.until {
        Some(until) => {
            let slots = output::count(entry.slots, "slot", "slots");
            format!("{} … {until} ({slots})", entry.slot)
        }
        None => entry.slot.to_string(),
    }
}

/// What became of a slot, in its colour.
pub fn what(what: What) -> Cell {
    let cell = Cell::new(what.word());
    match what {
        What::Fired => cell.fg(Color::Green),
        What::Missed | What::Skipped => cell.fg(Color::Yellow),
        What::Joined | What::Known => cell,
    }
}

fn why(how: How) -> &'static str {
    match how {
        How::Slot => "its time",
        How::RunNow => "run now",
        How::Backfill => "backfill",
        How::Again => "backfill again",
    }
}
