//! `tidemill dead`: dead letters, from the first look to the last replay.

mod act;
mod list;
mod plans;
mod replay;
mod rules;
mod show;
mod target;

use crate::app::App;
use crate::exit::Outcome;

/// What to do with dead letters. Without a verb they are listed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List dead letters, latest death first (the default)
    List(list::List),
    /// Group dead letters by the error they died of
    Groups(list::Groups),
    /// Show a dead letter: error, attempts, notes, payload
    Show(show::Args),
    /// Draw some dead letters at random
    Sample(list::Sample),
    /// Send dead letters on their way again, one, many or by filter
    Replay(Box<replay::Args>),
    /// Note something on dead letters
    Note(act::Note),
    /// Mark dead letters as looked at
    Investigate(act::Act),
    /// Mark dead letters as not to be retried
    Abandon(act::Act),
    /// Put dead letters aside: kept, but out of the way
    Archive(act::Act),
    /// Forget dead letters, with their jobs
    Delete(act::Act),
    /// Plans: what was to be done to many dead letters, and what became of it
    Plans(plans::List),
    /// Do what a plan says, to exactly the dead letters that it named
    Apply(plans::One),
    /// Take back what a plan did, where that can be
    Undo(plans::One),
    /// Rules that replay known-recoverable dead letters by themselves
    Rules(rules::Args),
}

/// Runs the verb.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb.unwrap_or_else(|| Verb::List(list::List::default())) {
        Verb::List(args) => list::list(app, args).await,
        Verb::Groups(args) => list::groups(app, args).await,
        Verb::Show(args) => show::run(app, args).await,
        Verb::Sample(args) => list::sample(app, args).await,
        Verb::Replay(args) => replay::run(app, *args).await,
        Verb::Note(args) => act::note(app, args).await,
        Verb::Investigate(args) => act::investigate(app, args).await,
        Verb::Abandon(args) => act::abandon(app, args).await,
        Verb::Archive(args) => act::archive(app, args).await,
        Verb::Delete(args) => act::delete(app, args).await,
        Verb::Plans(args) => plans::list(app, args).await,
        Verb::Apply(args) => plans::apply(app, args).await,
        Verb::Undo(args) => plans::undo(app, args).await,
        Verb::Rules(args) => rules::run(app, args).await,
    }
}
