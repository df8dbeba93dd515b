//! Acts on a schedule: delete, pause, resume, run now, backfill.

use serde_json::json;
use tidemill::{Backfill, KeyDue};
use tidemill_store::schedule::{Fired, What};

use crate::app::App;
use crate::commands::schedules::{OWNER, history};
use crate::duration::Moment;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// What to delete.
#[derive(Debug, clap::Args)]
pub struct Delete {
    /// The schedule
    name: String,
    /// Whose it is
    #[arg(long, default_value = OWNER)]
    owner: String,
}

/// Which slots to fire.
#[derive(Debug, clap::Args)]
pub struct Fill {
    /// The schedule
    name: String,
    /// From this moment on: a time, or a duration ago
    #[arg(long, value_name = "MOMENT")]
    from: Moment,
    /// Until before this moment [default: now]
    #[arg(long, value_name = "MOMENT")]
    to: Option<Moment>,
    /// Also slots that have fired
    #[arg(long)]
    again: bool,
    /// Show the slots and fire none
    #[arg(long)]
    dry_run: bool,
}

pub async fn delete(app: &App, args: &Delete) -> Outcome {
    let mill = app.open_existing().await?;
    mill.schedules().delete(&args.name, &args.owner).await?;
    mill.close().await;
    let sentence = format!("the schedule {} is deleted; jobs it has made stay", args.name);
    output::did(app, &json!({ "name": args.name, "answer": "deleted" }), &sentence);
    Ok(Exit::Ok)
}

pub async fn pause(app: &App, name: &str) -> Outcome {
    let mill = app.open_existing().await?;
    mill.schedules().pause(name).await?;
    mill.close().await;
    let sentence = format!("{name} rests until it is resumed");
    output::did(app, &json!({ "name": name, "answer": "paused" }), &sentence);
    Ok(Exit::Ok)
}

pub async fn resume(app: &App, name: &str) -> Outcome {
    let mill = app.open_existing().await?;
    mill.schedules().resume(name).await?;
    mill.close().await;
    let sentence =
        format!("{name} goes on; what it missed meanwhile can be filled with `schedules backfill`");
    output::did(app, &json!({ "name": name, "answer": "resumed" }), &sentence);
    Ok(Exit::Ok)
}

pub async fn run_now(app: &App, name: &str) -> Outcome {
    let mill = app.open_existing().await?;
    let fired = mill.schedules().run_now(name).await?;
    mill.close().await;
    if app.json {
        output::json(&fired);
    }
    match (fired.what, fired.job) {
        (What::Fired, Some(job)) if fired.keys.is_empty() => {
            if !app.json {
                output::line(job);
                eprintln!("enqueued");
            }
            Ok(Exit::Ok)
        }
        (What::Fired, Some(_)) => {
            if !app.json {
                show_keys(&fired.keys);
            }
            Ok(Exit::Ok)
        }
        (_, job) => {
            let job = job.map_or_else(String::new, |job| format!(" {job}"));
            let message = format!("no job was made: the job before{job} has not finished");
            Err(Failure::new(Exit::Conflict, "schedule_overlap", message)
                .hint("wait for it, cancel it, or set --overlap allow"))
        }
    }
}

pub async fn backfill(app: &App, args: &Fill) -> Outcome {
    let mill = app.open_existing().await?;
    let now = mill.now().await?;
    let to = args.to.map_or(now, |to| to.resolve(now));
    let range = Backfill { from: args.from.resolve(now), to, again: args.again };
    if args.dry_run {
        let slots = mill.schedules().backfill_preview(&args.name, range).await?;
        mill.close().await;
        if app.json {
            slots.iter().for_each(output::json);
            return Ok(Exit::Ok);
        }
        let mut table = output::table(&["SLOT", "WALL CLOCK", "WOULD"]);
        for slot in &slots {
            let would = if slot.fired && !args.again { "stay: it has fired" } else { "fire" };
            table.add_row([slot.slot.to_string(), slot.local.clone(), would.to_owned()]);
        }
        output::show(&table);
        return Ok(Exit::Ok);
    }
    let fired = mill.schedules().backfill(&args.name, range).await?;
    mill.close().await;
    if app.json {
        fired.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    show(&fired);
    Ok(Exit::Ok)
}

/// The jobs of a run, one for each key.
fn show_keys(keys: &[KeyDue]) {
    let mut table = output::table(&["KEY", "JOB", "DUE"]);
    for KeyDue { key, job, due_at } in keys {
        let job = job.map_or_else(String::new, |job| job.to_string());
        table.add_row([key.clone(), job, due_at.to_string()]);
    }
    output::show(&table);
    eprintln!("{} enqueued", output::count(keys.len() as u64, "job", "jobs"));
}

fn show(fired: &[Fired]) {
    let mut table = output::table(&["SLOT", "WHAT", "JOBS"]);
    for slot in fired {
        let jobs = output::number(u64::from(slot.jobs));
        table.add_row([comfy_table::Cell::new(slot.slot), history::what(slot.what), jobs]);
    }
    output::show(&table);
    let jobs: u64 = fired.iter().map(|slot| u64::from(slot.jobs)).sum();
    eprintln!("{} enqueued", output::count(jobs, "job", "jobs"));
}
