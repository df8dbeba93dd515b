//! `tidemill jobs`: list, show, follow, why, cancel, retry, priority, wait.

mod change;
mod follow;
mod list;
pub mod show;
pub mod wait;
mod why;

use tidemill::JobId;

use crate::app::App;
use crate::exit::Outcome;

/// What to do with jobs. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List jobs, newest first (the default)
    List(list::Args),
    /// Show a job: payload, wishes, attempts, output, error
    Show {
        /// The job
        id: JobId,
    },
    /// Follow what a job says while it runs, until it ends
    Follow(follow::Args),
    /// Say why a job is not running: every gate that holds it
    Why {
        /// The job
        id: JobId,
    },
    /// Call jobs off; a running handler is told
    Cancel(change::Cancel),
    /// Run jobs again or at once: dead ones are replayed, scheduled ones are due now
    Retry(change::Retry),
    /// Let a job that waits do so in another band: urgent, high, normal or low
    Priority(change::Priority),
    /// Wait until a job has finished, and print its output
    Wait {
        /// The job
        id: JobId,
        #[command(flatten)]
        patience: wait::Patience,
    },
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::Args::default())) {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show { id } => show::run(app, id).await,
        Verb::Follow(args) => follow::run(app, args).await,
        Verb::Why { id } => why::run(app, id).await,
        Verb::Cancel(args) => change::cancel(app, args).await,
        Verb::Retry(args) => change::retry(app, args).await,
        Verb::Priority(args) => change::priority(app, args).await,
        Verb::Wait { id, patience } => wait::run(app, id, patience).await,
    }
}
