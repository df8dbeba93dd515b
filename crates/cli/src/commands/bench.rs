//! `tidemill bench`: what this machine and this store can do, in half a minute.
//!
//! Told neither a store nor a server, it measures a SQLite file of its own in a temporary folder. It refuses a store
//! that has unfinished jobs, uses a queue of its own, and takes away what it made.

mod clean;
mod phases;

use std::time::Duration;

use serde::Serialize;

use crate::app::{App, interrupted};
use crate::duration::short;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
use phases::Phases;

/// How much to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many jobs
    #[arg(long, value_name = "N", default_value_t = 50_000,
        value_parser = clap::value_parser!(u64).range(100..=5_000_000))]
    jobs: u64,
}

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// Enqueued in thousands, jobs a second.
    pub bulk_per_second: u64,
    /// Enqueued one at a time by 32 producers, jobs a second.
    pub single_32_per_second: u64,
    /// Enqueued one at a time by one producer, jobs a second.
    pub single_1_per_second: u64,
    /// Claimed, run and settled by one worker, jobs a second.
    pub drain_per_second: u64,
    /// From the enqueue to the start of the handler, by an idle worker.
    pub latency_p50_us: u64,
    /// The same, the slowest of a hundred.
    pub latency_p99_us: u64,
}

/// Measures.
pub async fn run(app: &App, args: Args) -> Outcome {
    let scratch = tempfile::Builder::new().prefix("tidemill-bench-").tempdir()?;
    let has_place = app.store.is_some() || app.server.is_some();
    let own = format!("sqlite:{}", scratch.path().join("bench.db").display());
    let app = if has_place { app.clone() } else { App { store: Some(own), ..app.clone() } };
    let mill = app.open().await?;
    refuse_busy(&mill).await?;
    eprintln!("measuring {} with {} jobs", app.place(), output::grouped(args.jobs));
    let mut phases = Phases::new(&mill, args.jobs);
    let figures = tokio::select! {
        figures = phases.run() => Some(figures?),
        () = interrupted() => None,
    };
    if has_place {
        phases.empty().await?;
        clean::up(&mill).await?;
    }
    phases.stop().await;
    mill.close().await;
    let Some(figures) = figures else {
        return Err(Failure::new(Exit::Failed, "interrupted", "stopped before the end"));
    };
    show(&app, &figures);
    Ok(Exit::Ok)
}

async fn refuse_busy(mill: &Mill) -> Outcome<()> {
    let queues = mill.queues().await?;
    let jobs = queues.iter().map(|queue| queue.depth + queue.running).sum();
    if jobs == 0 {
        return Ok(());
    }
    let message =
        format!("the store has {}", output::count(jobs, "unfinished job", "unfinished jobs"));
    Err(Failure::new(Exit::Conflict, "store_in_use", message)
        .hint("measure an empty database, or name neither a store nor a server to measure a file of its own"))
}

fn show(app: &App, figures: &Figures) {
    if app.json {
        return output::json(figures);
    }
    let rate = |rate| output::right(format!("{} jobs/s", output::grouped(rate)));
    let time = |us| output::right(short(Duration::from_micros(us)));
    let mut table = output::table(&["MEASURED", "FIGURE", "WHAT IT IS"]);
    for (name, figure, what) in [
        ("enqueue, in thousands", rate(figures.bulk_per_second), "one caller, batches of 1,000"),
        (
            "enqueue, 32 producers",
            rate(figures.single_32_per_second),
            "one at a time each, commits shared",
        ),
        ("enqueue, 1 producer", rate(figures.single_1_per_second), "one at a time, a commit each"),
        ("drain", rate(figures.drain_per_second), "one worker: claim, run, settle, results kept"),
        (
            "latency, median",
            time(figures.latency_p50_us),
            "enqueue to handler, worker idle, same process",
        ),
        ("latency, p99", time(figures.latency_p99_us), "ninety-nine of a hundred are faster"),
    ] {
        table.add_row([comfy_table::Cell::new(name), figure, output::quiet(what)]);
    }
    output::show(&table);
}
