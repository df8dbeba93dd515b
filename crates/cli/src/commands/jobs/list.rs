//! `tidemill jobs list`: a page of jobs, newest first.

use comfy_table::Cell;
use tidemill::{JobFilter, JobId, JobView, State, Timestamp};

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

const ERROR_CHARS_MAX: usize = 48;

/// Which jobs.
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// In this state: blocked, scheduled, ready, running, done, cancelled or dead
    #[arg(long)]
    state: Option<State>,
    /// Of this kind
    #[arg(long)]
    kind: Option<String>,
    /// In this queue
    #[arg(long)]
    queue: Option<String>,
    /// Of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// With this key
    #[arg(long)]
    key: Option<String>,
    /// With this tag
    #[arg(long)]
    tag: Option<String>,
    /// At most this many, up to 1,000 [default: 50]
    #[arg(long, value_name = "JOBS")]
    limit: Option<usize>,
    /// Made before this job: the last one of the page before
    #[arg(long, value_name = "ID")]
    before: Option<JobId>,
}

impl From<Args> for JobFilter {
    fn from(args: Args) -> Self {
        let Args { state, kind, queue, tenant, key, tag, limit, before } = args;
        let limit = limit.unwrap_or(0);
        Self { state, kind, queue, tenant, key, tag, before, limit, look_max: 0 }
    }
}

/// Lists them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let filter = JobFilter::from(args);
    let mill = app.open_existing().await?;
    let (page, now) = (mill.jobs_page(&filter).await?, mill.now().await?);
    let jobs = page.jobs;
    mill.close().await;
    if app.json {
        jobs.iter().for_each(output::json);
    } else if !jobs.is_empty() {
        show(&jobs, now);
    } else if page.next.is_none() {
        eprintln!("no job matches");
    }
    if let Some(next) = page.next {
        let hint = if jobs.len() < filter.page_rows() {
            format!("no more among the 20,000 jobs looked at; look on: --before {next}")
        } else {
            format!("the next page: --before {next}")
        };
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn show(jobs: &[JobView], now: Timestamp) {
    let mut table = output::table(&["ID", "KIND", "QUEUE", "STATE", "ATTEMPTS", "CREATED", "WHAT"]);
    for job in jobs {
        table.add_row(row(job, now));
    }
    output::show_clipped(&mut table);
}

fn row(view: &JobView, now: Timestamp) -> [Cell; 7] {
    let attempts = view.attempt + u16::from(view.state == State::Running);
    [
        Cell::new(view.job.id),
        Cell::new(&view.job.kind),
        Cell::new(&view.job.queue),
        output::state(view.state),
        output::number(u64::from(attempts)),
        Cell::new(relative(view.job.created_at, now)),
        Cell::new(what(view, now)),
    ]
}

/// The one thing to know about a job in its state.
fn what(view: &JobView, now: Timestamp) -> String {
    let error = || output::first_line(view.error.as_deref().unwrap_or_default(), ERROR_CHARS_MAX);
    let due = view.due_at.map(|due| relative(due, now)).unwrap_or_default();
    match view.state {
        State::Scheduled if view.error.is_some() => format!("again {due}: {}", error()),
        State::Scheduled => format!("due {due}"),
        State::Running if view.cancel_requested => "called off, still running".to_owned(),
        State::Dead | State::Cancelled => error(),
        State::Done => view.output.as_ref().map_or_else(String::new, |output| {
            output::first_line(&output::shown(output.as_str()), ERROR_CHARS_MAX)
        }),
        State::Blocked | State::Ready | State::Running => String::new(),
    }
}
