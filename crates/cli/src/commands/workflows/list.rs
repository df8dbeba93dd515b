//! `tidemill workflows list`: a page of runs, newest first.

use comfy_table::{Cell, Color};
use tidemill::{JobId, RunFilter, RunHead, RunPage, RunView, State, Timestamp};

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

/// Lists them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let Args { kind, parked, unfinished, limit, before } = args;
    let filter = RunFilter { kind, parked, unfinished, before, limit: limit.unwrap_or(0) };
    let mill = app.open_existing().await?;
    let (RunPage { runs, next }, now) = (mill.runs_page(&filter).await?, mill.now().await?);
    mill.close().await;
    if app.json {
        for head in &runs {
            output::json(head);
        }
        return Ok(Exit::Ok);
    }
    if runs.is_empty() && next.is_none() {
        eprintln!("no run matches");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["ID", "KIND", "STATE", "BEGAN", "WAITS FOR"]);
    for head in &runs {
        table.add_row(row(head, now));
    }
    output::show(&table);
    if let Some(next) = next {
        let hint = format!("the next page: --before {next}");
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn row(RunHead { run, kind, job_state }: &RunHead, now: Timestamp) -> [Cell; 5] {
    let state = match word(run, *job_state) {
        "parked" => Cell::new("parked").fg(Color::Red),
        "paused" => Cell::new("paused").fg(Color::Yellow),
        other => Cell::new(other),
    };
    [
        Cell::new(run.job),
        Cell::new(kind),
        state,
        Cell::new(relative(run.began_at, now)),
        Cell::new(waits(run, *job_state)),
    ]
}

/// Where a run stands, in a word.
pub fn word(run: &RunView, job: State) -> &'static str {
    match (job.is_final(), &run.parked, run.paused) {
        (false, Some(_), _) => "parked",
        (false, None, true) => "paused",
        _ => job.word(),
    }
}

/// What a run waits for, in words.
pub fn waits(run: &RunView, job: State) -> String {
    match (&run.parked, &run.waits) {
        _ if job.is_final() => String::new(),
        (Some(parked), _) => format!("{}: {parked}", parked.code.code()),
        (None, Some(waits)) => waits.what.join(", "),
        (None, None) => String::new(),
    }
}
