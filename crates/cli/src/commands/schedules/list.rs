//! `tidemill schedules list`: all schedules, by name.

use comfy_table::{Cell, Color};
use tidemill::{Rule, Timestamp};
use tidemill_store::ScheduleView;

use crate::app::App;
use crate::duration::{relative, short};
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which schedules.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Only those of this owner
    #[arg(long)]
    owner: Option<String>,
}

/// Lists them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let schedules = mill.schedules().list(args.owner.as_deref()).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        schedules.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if schedules.is_empty() {
        eprintln!(
            "there are no schedules; `tidemill schedules set NAME KIND --cron '0 3 * * *'` makes one"
        );
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["NAME", "RULE", "ZONE", "KIND", "NEXT", "LAST", "OWNER"]);
    for view in &schedules {
        table.add_row(row(view, now));
    }
    output::show(&table);
    Ok(Exit::Ok)
}

fn row(view: &ScheduleView, now: Timestamp) -> [Cell; 7] {
    let definition = &view.definition;
    let last = view.last_slot.map(|slot| relative(slot, now));
    [
        Cell::new(&definition.name),
        Cell::new(rule(&definition.rule)),
        Cell::new(&definition.zone),
        Cell::new(&definition.job.kind),
        next(view, now),
        last.map_or_else(|| output::quiet("–"), Cell::new),
        Cell::new(&definition.owner),
    ]
}

fn next(view: &ScheduleView, now: Timestamp) -> Cell {
    match view.next_at {
        _ if view.paused => Cell::new("paused").fg(Color::Yellow),
        Some(next) => Cell::new(relative(next, now)),
        None => output::quiet("over"),
    }
}

/// A rule in one line.
pub fn rule(rule: &Rule) -> String {
    match rule {
        Rule::Cron(cron) => cron.clone(),
        Rule::EveryMs(ms) => format!("every {}", short(std::time::Duration::from_millis(*ms))),
        Rule::Once(at) => format!("once at {at}"),
    }
}
