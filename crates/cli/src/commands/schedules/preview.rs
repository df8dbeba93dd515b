//! `tidemill schedules preview`: the next slots, of a schedule or of a rule that is not set yet.

use comfy_table::Cell;
use tidemill::{ComingSlot, Enqueue, KeyDue, Schedule, Tidemill, Timestamp};

use crate::app::App;
use crate::commands::schedules::set::{Bounds, When};
use crate::duration::relative;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Which slots.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The schedule; without it, a rule is given
    #[arg(conflicts_with_all = ["rule", "bounds"])]
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
        show_all(&slots, now);
    }
    Ok(Exit::Ok)
}

/// Slots in a table, each with all of its jobs.
fn show_all(slots: &[ComingSlot], now: Timestamp) {
    if slots.iter().all(|slot| slot.keys.is_empty()) {
        return show(slots, now);
    }
    let mut table = output::table(&["SLOT", "WALL CLOCK", "IN", "KEY", "DUE"]);
    for slot in slots {
        for KeyDue { key, due_at, .. } in &slot.keys {
            let [at, local, when] = moment(slot, now);
            table.add_row([at, local, when, Cell::new(key), due(slot.slot, *due_at)]);
        }
    }
    output::show(&table);
}

/// Slots in a table, a line for each.
pub fn show(slots: &[ComingSlot], now: Timestamp) {
    let mut table = output::table(&["SLOT", "WALL CLOCK", "IN", "DUE"]);
    for slot in slots {
        let [at, local, when] = moment(slot, now);
        let due = match slot.keys.as_slice() {
            [first, .., last] => {
                let (from, to) = (later(slot.slot, first.due_at), later(slot.slot, last.due_at));
                let keys = output::count(slot.keys.len() as u64, "key", "keys");
                Cell::new(format!("{from} to {to} later, {keys}"))
            }
            _ => due(slot.slot, slot.due_at),
        };
        table.add_row([at, local, when, due]);
    }
    output::show(&table);
}

fn moment(slot: &ComingSlot, now: Timestamp) -> [Cell; 3] {
    [Cell::new(slot.slot), Cell::new(&slot.local), Cell::new(relative(slot.slot, now))]
}

fn due(slot: Timestamp, due_at: Timestamp) -> Cell {
    if due_at == slot {
        return output::quiet("at once");
    }
    Cell::new(format!("{} later", later(slot, due_at)))
}

/// How long after its slot a job is due.
fn later(slot: Timestamp, due_at: Timestamp) -> String {
    crate::duration::short(due_at.duration_since(slot).unsigned_abs()).to_string()
}
