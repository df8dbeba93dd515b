//! `tidemill schedules`: rules of time, when they fire next, and what became of their slots.
//!
//! What is set here belongs to the owner `cli` unless another is named, so that no service's deploy
//! deletes it. It refuses to change or delete what belongs to another owner.

mod act;
mod declare;
mod history;
mod list;
mod preview;
mod set;
mod show;

use crate::app::App;
use crate::exit::Outcome;

/// What to do with schedules. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List schedules, and when they fire next (the default)
    List(list::Args),
    /// Show one schedule with its next slots and its latest history
    Show {
        /// The schedule
        name: String,
    },
    /// Set a schedule by its name: make it, or change it
    Set(Box<set::Args>),
    /// Make the schedules of an owner exactly those of a file
    Declare(declare::Args),
    /// Delete a schedule and its history; jobs it has made stay
    Delete(act::Delete),
    /// Let a schedule rest
    Pause {
        /// The schedule
        name: String,
    },
    /// End the rest of a schedule; what it missed meanwhile is not caught up
    Resume {
        /// The schedule
        name: String,
    },
    /// Make its job now, beside its slots
    Run {
        /// The schedule
        name: String,
    },
    /// Show the next slots of a schedule, or of a rule that is not set yet
    Preview(preview::Args),
    /// Fire slots of the past that have not fired
    Backfill(act::Fill),
    /// Show what became of its slots, latest first
    History(history::Args),
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::Args::default())) {
        Verb::List(args) => list::run(app, args).await,
        Verb::Show { name } => show::run(app, &name).await,
        Verb::Set(args) => set::run(app, *args).await,
        Verb::Declare(args) => declare::run(app, &args).await,
        Verb::Delete(args) => act::delete(app, &args).await,
        Verb::Pause { name } => act::pause(app, &name).await,
        Verb::Resume { name } => act::resume(app, &name).await,
        Verb::Run { name } => act::run_now(app, &name).await,
        Verb::Preview(args) => preview::run(app, args).await,
        Verb::Backfill(args) => act::backfill(app, &args).await,
        Verb::History(args) => history::run(app, &args).await,
    }
}

/// The owner of what is set from the command line.
const OWNER: &str = "cli";
