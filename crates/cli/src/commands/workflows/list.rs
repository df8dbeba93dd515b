//! `tidemill workflows list`: a page of runs, newest first.

use comfy_table::{Cell, Color};
use serde::Serialize;
use tidemill::{JobId, JobView, RunFilter, RunView, Timestamp};

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which runs.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Those that are parked: their code differs from their journal
    #[arg(long)]
    parked: bool,
    /// Those that have not finished
    #[arg(long)]
    unfinished: bool,
    /// At most this many, up to 1,000 [default: 50]
    #[arg(long, value_name = "RUNS")]
    limit: Option<usize>,
    /// Made before this run: the last one of the page before
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
}

/// A run as a document.
#[derive(Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    run: &'a RunView,
    kind: &'a str,
    job_state: &'static str,
}

/// Lists them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let Args { kind, parked, unfinished, limit, before } = args;
    let filter = RunFilter { kind, parked, unfinished, before, limit: limit.unwrap_or(0) };
    let mill = app.open_existing().await?;
    let (runs, now) = (mill.runs(&filter).await?, mill.now().await?);
    let mut rows = Vec::with_capacity(runs.len());
    for run in &runs {
        rows.extend(mill.job(run.job).await?.map(|view| (run, view)));
    }
    mill.close().await;
    if app.json {
        for (run, view) in &rows {
            output::json(&Row { run, kind: &view.job.kind, job_state: view.state.word() });
        }
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        eprintln!("no run matches");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["ID", "KIND", "STATE", "BEGAN", "WAITS FOR"]);
    for (run, view) in &rows {
        table.add_row(row(run, view, now));
    }
    output::show(&table);
    if let Some(last) = runs.last().filter(|_| runs.len() == filter.page_rows()) {
        let hint = format!("the next page: --before {}", last.job);
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn row(run: &RunView, view: &JobView, now: Timestamp) -> [Cell; 5] {
    let state = match word(run, view) {
        "parked" => Cell::new("parked").fg(Color::Red),
        "paused" => Cell::new("paused").fg(Color::Yellow),
        other => Cell::new(other),
    };
    [
        Cell::new(run.job),
        Cell::new(&view.job.kind),
        state,
        Cell::new(relative(run.began_at, now)),
        Cell::new(waits(run, view)),
    ]
}

/// Where a run stands, in a word.
pub fn word(run: &RunView, view: &JobView) -> &'static str {
    match (view.state.is_final(), &run.parked, run.paused) {
        (false, Some(_), _) => "parked",
        (false, None, true) => "paused",
        _ => view.state.word(),
    }
}

/// What a run waits for, in words.
pub fn waits(run: &RunView, view: &JobView) -> String {
    match (&run.parked, &run.waits) {
        _ if view.state.is_final() => String::new(),
        (Some(parked), _) => parked.to_string(),
        (None, Some(waits)) => waits.what.join(", "),
        (None, None) => String::new(),
    }
}
