//! `tidemill workflows`: list, show, mail, export, replay, diff, signal, update, object, pause,
//! resume, reset, fork, skip, edit, cancel.

mod act;
mod advice;
mod ask;
mod diff;
mod export;
mod list;
mod mail;
mod place;
mod program;
mod replay;
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
    /// List what has come for a run: signals, updates and ends of its children
    Mail(mail::Args),
    /// Print everything that the code of a run saw, as a fixture for tests of the workflow
    Export {
        /// The run
        id: JobId,
    },
    /// Show what a new program makes of the runs under way, before it is deployed
    Replay(replay::Args),
    /// Show how the code of a run differs from its journal
    Diff(diff::Args),
    /// Send a run a signal
    Signal(act::Signal),
    /// Send a run an update, and print what it answers
    Update(ask::Update),
    /// Print what an object is: what jobs of one name and key keep between them
    Object(ask::Object),
    /// Let a run go no further than where it waits next
    Pause(act::Run),
    /// Let a run go on that was paused or parked
    Resume(act::Resume),
    /// Forget what a run did from a step on, and let it go on from there; only while it waits
    Reset(act::Reset),
    /// Let a new run go on from a step of a run, with its journal up to there; the run stays as it is
    Fork(act::Fork),
    /// Give a step that is stuck its outcome, or pass a signal over, and let the run go on; only while it waits
    Skip(act::Skip),
    /// Correct what a step returned or a signal carried, and let the run go on from there; only while it waits
    Edit(act::Edit),
    /// Call a run off; what it did is undone
    Cancel(act::Run),
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::Args::default())) {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show { id } => show::run(app, id).await,
        Verb::Mail(args) => mail::run(app, args).await,
        Verb::Export { id } => export::run(app, id).await,
        Verb::Replay(args) => replay::run(app, args).await,
        Verb::Diff(args) => diff::run(app, args).await,
        Verb::Signal(args) => act::signal(app, args).await,
        Verb::Update(args) => ask::update(app, args).await,
        Verb::Object(args) => ask::object(app, args).await,
        Verb::Pause(args) => act::pause(app, args).await,
        Verb::Resume(args) => act::resume(app, args).await,
        Verb::Reset(args) => act::reset(app, args).await,
        Verb::Fork(args) => act::fork(app, args).await,
        Verb::Skip(args) => act::skip(app, args).await,
        Verb::Edit(args) => act::edit(app, args).await,
        Verb::Cancel(args) => act::cancel(app, args).await,
    }
}
