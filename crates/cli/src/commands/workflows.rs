//! `tidemill workflows`: list, show, signal, pause, resume, reset, cancel.

mod act;
mod list;
mod show;

use tidemill::JobId;

use crate::app::App;
use crate::exit::Outcome;

/// What to do with runs of workflows. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List runs, newest first (the default)
    List(list::Args),
    /// Show a run as a timeline: its steps, waits, tries and undos
    Show {
        /// The run
        id: JobId,
    },
    /// Send a run a signal
    Signal(act::Signal),
    /// Let a run go no further than where it waits next
    Pause {
        /// The run
        id: JobId,
    },
    /// Let a run go on that was paused or parked
    Resume {
        /// The run
        id: JobId,
    },
    /// Forget what a run did from a step on, and let it go on from there; only while it waits
    Reset(act::Reset),
    /// Call a run off; what it did is undone
    Cancel(act::Cancel),
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::Args::default())) {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show { id } => show::run(app, id).await,
        Verb::Signal(args) => act::signal(app, args).await,
        Verb::Pause { id } => act::pause(app, id).await,
        Verb::Resume { id } => act::resume(app, id).await,
        Verb::Reset(args) => act::reset(app, args).await,
        Verb::Cancel(args) => act::cancel(app, args).await,
    }
}
