//! `tidemill schedules preview`: the next slots, of a schedule or of a rule that is not set yet.

use comfy_table::Cell;
use tidemill::{ComingSlot, Enqueue, Schedule, Tidemill, Timestamp};

use crate::app::App;
use crate::commands::schedules::set::{Bounds, When};
use crate::duration::relative;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Which slots.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The schedule; without it, a rule is given
    #[arg(conflicts_with = "rule")]
    name: Option<String>,
    #[command(flatten)]
    when: When,
    #[command(flatten)]
    bounds: Bounds,
    /// How many, up to 1,000
    #[arg(short = 'n', long = "slots", value_name = "SLOTS", default_value_t = 10)]
    slots: usize,
}

/// Shows them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let (slots, now) = match (args.name, args.when.rule()) {
        (Some(name), _) => {
            let mill = app.open_existing().await?;
            let slots = mill.schedules().preview(&name, args.slots).await?;
            let now = mill.now().await?;
            mill.close().await;
            (slots, now)
        }
        (None, Some(rule)) => {
            // A rule needs no store but a clock.
            let mill = Tidemill::open("sqlite::memory:").await?;
            let schedule = Schedule::of("preview", rule, Enqueue::raw("preview", "null"));
            let schedule = args.bounds.of(schedule);
            let slots = mill.schedules().preview_of(schedule, args.slots).await?;
            let now = mill.now().await?;
            mill.close().await;
            (slots, now)
        }
        (None, None) => {
            return Err(Failure::usage("there is nothing to look ahead of")
                .hint("name a schedule, or give --cron, --every or --at"));
        }
    };
    if app.json {
        slots.iter().for_each(output::json);
    } else if slots.is_empty() {
        eprintln!("no slot is to come");
    } else {
        show(&slots, now);
    }
    Ok(Exit::Ok)
}

/// Slots in a table.
pub fn show(slots: &[ComingSlot], now: Timestamp) {
    let mut table = output::table(&["SLOT", "WALL CLOCK", "IN", "DUE"]);
    for slot in slots {
        let due = if slot.due_at == slot.slot {
            output::quiet("at once")
        } else {
            let later = slot.due_at.duration_since(slot.slot).unsigned_abs();
            Cell::new(format!("{} later", crate::duration::short(later)))
        };
        let (at, local) = (Cell::new(slot.slot), Cell::new(&slot.local));
        table.add_row([at, local, Cell::new(relative(slot.slot, now)), due]);
    }
    output::show(&table);
}
