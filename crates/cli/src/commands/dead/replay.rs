//! `tidemill dead replay`: at a pace, and behind a canary.
//!
//! One goes first, then ten, then the rest; when one dies of the same error again the replay stops
//! by itself. Before a single one goes, its payload can be edited.

use std::io::Write;
use std::process::Command;

use tidemill::{By, DeadFilter, JobId, PlanAct, ReplayPace, ReplayReport};

use super::act::not_dead;
use super::plans;
use super::target::Target;
use crate::app::{App, whoami};
use crate::duration::{Span, short};
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
use crate::pretty::pretty;
use crate::progress::Late;

const AFTER_HELP: &str = "\
Examples:
  tidemill dead replay 019a3c1e-…                     one
  tidemill dead replay 019a3c1e-… --edit              one, its payload edited first
  tidemill dead replay --fingerprint 5fd1e2a0c0de1234 --pace 20
  tidemill dead replay --kind charge --since 2h --yes";

/// Which dead letters, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// At most this many a second
    #[arg(long, value_name = "JOBS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pace: u32,
    /// Send all without trying one, then ten, first
    #[arg(long)]
    no_canary: bool,
    /// How long to wait for a canary to finish
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    canary_wait: Span,
    /// Replay a single one with this payload
    #[arg(long, value_name = "JSON", conflicts_with = "edit")]
    payload: Option<String>,
    /// Edit the payload of a single one in $EDITOR first
    #[arg(long)]
    edit: bool,
    /// Only make a plan and show it; `dead apply` sends them all at once, `dead undo` takes back those that wait
    #[arg(long, conflicts_with_all = ["edit", "payload"])]
    plan: bool,
    /// Why; kept with the dead letters. Those that hold up a saga need it
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Who replays [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Replays them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let single = args.target.only_id();
    if single.is_none() && (args.edit || args.payload.is_some()) {
        return Err(
            Failure::usage("a new payload is for a single dead letter").hint("give exactly one id")
        );
    }
    let who = args.by.unwrap_or_else(whoami);
    let by = By::from(&who).because(args.why.as_deref());
    let pace = ReplayPace {
        jobs_per_second: args.pace,
        canary: !args.no_canary,
        canary_wait: args.canary_wait.0,
    };
    let mill = app.open_existing().await?;
    if args.plan {
        let filter = args.target.meant(&mill, "replay").await?.filter;
        let why = by.why.unwrap_or_default();
        plans::show(app, &mill.dead().plan(filter, PlanAct::Replay, &who, why).await?);
        return Ok(Exit::Ok);
    }
    let Some(filter) = args.target.settle(&mill, "replay").await? else {
        app.trail.nothing();
        return Ok(Exit::Ok);
    };
    let outcome = match single {
        Some(id) => {
            let edited = if args.edit { edit(&mill, id).await? } else { None };
            one(app, &mill, id, by, args.payload.or(edited)).await
        }
        None => many(app, &mill, &filter, by, &pace).await,
    };
    mill.close().await;
    outcome
}

async fn one(app: &App, mill: &Mill, id: JobId, by: By<'_>, payload: Option<String>) -> Outcome {
    if !mill.dead().replay_one(id, by, payload.as_deref()).await? {
        return Err(not_dead(app, id));
    }
    tell(app, &ReplayReport { replayed: 1, ..ReplayReport::default() });
    Ok(Exit::Ok)
}

async fn many(
    app: &App,
    mill: &Mill,
    filter: &DeadFilter,
    by: By<'_>,
    pace: &ReplayPace,
) -> Outcome {
    let bar = std::cell::RefCell::new(Late::new("replaying", Some(0)));
    let progress = |sent, all| {
        let mut bar = bar.borrow_mut();
        bar.steps(all);
        bar.set(sent);
    };
    let report = mill.dead().replay(filter, by, pace, progress).await?;
    drop(bar);
    tell(app, &report);
    if let Some(id) = report.stopped_by {
        let again = format!("tidemill dead show {id}{}", app.store_option());
        let message = format!("the canary {id} died of the same error again; the rest was left");
        return Err(Failure::new(Exit::Failed, "canary_died", message).hint(again));
    }
    if let Some(id) = report.unfinished_canary {
        let waited = short(pace.canary_wait);
        let message = format!("the canary {id} had not finished after {waited}; the rest was left");
        return Err(Failure::new(Exit::Timeout, "canary_unfinished", message).hint(
            "is a worker running that knows its kind? --canary-wait waits longer, --no-canary not at all",
        ));
    }
    Ok(Exit::Ok)
}

fn tell(app: &App, report: &ReplayReport) {
    if app.json {
        return output::json(report);
    }
    let replayed = output::count(report.replayed, "dead letter", "dead letters");
    match report.left {
        0 => output::line(format!("replayed {replayed}")),
        left => output::line(format!("replayed {replayed}, left {}", output::grouped(left))),
    }
}

/// The payload as it was saved in the editor; `None` when it was not changed.
async fn edit(mill: &Mill, id: JobId) -> Outcome<Option<String>> {
    let view = mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    let before = pretty(view.job.payload.as_str());
    let mut file = tempfile::Builder::new().prefix("payload-").suffix(".json").tempfile()?;
    writeln!(file, "{before}")?;
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());
    // Through a shell, because $EDITOR may have options of its own.
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$1\"")).arg("sh").arg(file.path());
    let status = command.status()?;
    if !status.success() {
        let message = format!("the editor {editor:?} failed; nothing was replayed");
        return Err(Failure::new(Exit::Failed, "editor_failed", message));
    }
    let after = std::fs::read_to_string(file.path())?;
    Ok((after.trim() != before).then_some(after))
}
