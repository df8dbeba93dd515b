//! `tidemill flows`: list, show, start, add, begin, discard, cancel, retry, rerun, resolve, undo, wait.

mod act;
mod build;
mod document;
mod draw;
mod layout;
mod lines;
mod list;
mod note;
mod show;
mod start;
mod undo;
mod watch;

use tidemill::FlowId;

use crate::app::App;
use crate::commands::jobs::wait::Patience;
use crate::exit::Outcome;
use crate::mill::Mill;

/// What to do with flows. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List flows, newest first (the default)
    List(list::Args),
    /// Draw a flow: its steps, where they stand, what they wait for
    Show(show::Args),
    /// Start a flow from JSON
    Start(start::Args),
    /// Give steps of a flow that does not begin yet more jobs, from JSON lines
    Add(build::Add),
    /// Let a flow begin that was started with "building": true
    Begin {
        /// The flow
        id: FlowId,
    },
    /// Throw a flow away that has not begun
    Discard(build::Discard),
    /// Call a flow off: what waits never starts, what runs is told
    Cancel(act::Cancel),
    /// Send the dead jobs of a flow on their way again
    Retry(act::Retry),
    /// Let a step and everything behind it run again, as fresh jobs
    Rerun(act::Rerun),
    /// Say that the dead job of a step is seen to: it counts as done
    Resolve(act::Resolve),
    /// Say what would be undone if a saga turned back now, in that order; changes nothing
    Undo {
        /// The saga
        id: FlowId,
    },
    /// Wait until a flow has ended, or is a saga that is stuck
    Wait {
        /// The flow
        id: FlowId,
        #[command(flatten)]
        patience: Patience,
    },
}

/// Shows a flow until it has ended.
pub async fn follow(app: &App, mill: &Mill, id: FlowId) -> Outcome {
    watch::run(app, mill, id).await
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::Args::default())) {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show(args) => show::run(app, args).await,
        Verb::Start(args) => start::run(app, args).await,
        Verb::Add(args) => build::add(app, args).await,
        Verb::Begin { id } => build::begin(app, id).await,
        Verb::Discard(args) => build::discard(app, args).await,
        Verb::Cancel(args) => act::cancel(app, args).await,
        Verb::Retry(args) => act::retry(app, args).await,
        Verb::Rerun(args) => act::rerun(app, args).await,
        Verb::Resolve(args) => act::resolve(app, args).await,
        Verb::Undo { id } => undo::run(app, id).await,
        Verb::Wait { id, patience } => act::wait(app, id, patience).await,
    }
}
