//! `tidemill dead note`, `investigate`, `abandon`, `archive` and `delete`: what people make of dead letters.
//!
//! Each act is recorded on the dead letter as a note: who, when and why. All but notes go by a plan, which is shown
//! before it is applied, and can be undone.

use tidemill::{DeadFilter, JobId, PlanAct, Triage};
use tidemill_store::DeadLetter;

use super::plans;
use super::target::Target;
use crate::app::{App, whoami};
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;

const PAGE: usize = 1000;

/// A note on some.
#[derive(Debug, clap::Args)]
pub struct Note {
    #[command(flatten)]
    target: Target,
    /// What to note
    #[arg(long, short)]
    message: String,
    /// Who notes it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// An act on some, with its reason.
#[derive(Debug, clap::Args)]
pub struct Act {
    #[command(flatten)]
    target: Target,
    /// Why
    #[arg(long, short, default_value = "no reason given")]
    message: String,
    /// Who does it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Only make the plan and show it; `dead apply` does it
    #[arg(long)]
    plan: bool,
}

/// Notes it.
pub async fn note(app: &App, args: Note) -> Outcome {
    let by = args.by.unwrap_or_else(whoami);
    let mill = app.open_existing().await?;
    let Some(filter) = args.target.settle(&mill, "note").await? else {
        app.trail.nothing();
        return Ok(Exit::Ok);
    };
    let mut letters = 0;
    for page in matching(&mill, &filter).await?.chunks(PAGE) {
        letters += mill.dead().note(page, &by, &args.message).await?;
    }
    mill.close().await;
    if app.json {
        output::json(&serde_json::json!({ "noted": letters }));
    } else {
        output::line(format!("noted {}", output::count(letters, "dead letter", "dead letters")));
    }
    Ok(Exit::Ok)
}

/// All that are meant, listed first: what dies meanwhile is not among them.
async fn matching(mill: &Mill, filter: &DeadFilter) -> Outcome<Vec<JobId>> {
    let (mut ids, mut before) = (Vec::new(), None);
    loop {
        let letters = mill.dead().list(filter, before, PAGE).await?;
        ids.extend(letters.iter().map(|letter| letter.id));
        before = letters.last().filter(|_| letters.len() == PAGE).map(DeadLetter::place);
        if before.is_none() {
            return Ok(ids);
        }
    }
}

/// Marks them as looked at.
pub async fn investigate(app: &App, args: Act) -> Outcome {
    planned(app, args, "investigate", PlanAct::Triage(Triage::Investigated)).await
}

/// Marks them as not to be retried.
pub async fn abandon(app: &App, args: Act) -> Outcome {
    planned(app, args, "abandon", PlanAct::Triage(Triage::Abandoned)).await
}

/// Puts them aside.
pub async fn archive(app: &App, args: Act) -> Outcome {
    planned(app, args, "archive", PlanAct::Archive).await
}

/// Forgets them.
pub async fn delete(app: &App, args: Act) -> Outcome {
    planned(app, args, "delete", PlanAct::Delete).await
}

/// Says why none is deleted, if those that match are of flows.
async fn refuse_of_flows(mill: &Mill, filter: &DeadFilter) -> Outcome<()> {
    let Some(letter) = mill.dead().list(filter, None, 1).await?.into_iter().next() else {
        return Ok(());
    };
    let job = mill.job(letter.id).await?.map(|view| view.job);
    let Some(place) = job.and_then(|job| job.options.flow) else { return Ok(()) };
    let id = letter.id;
    let message =
        format!("the dead letter {id} is of the flow {}, and is forgotten with it", place.id);
    Err(Failure::new(Exit::Conflict, "letter_of_flow", message)
        .hint(format!("`tidemill dead archive {id}` puts it aside until then")))
}

/// Says which of those that are named is not dead any more; nothing is done to the others, either.
async fn refuse_undead(app: &App, mill: &Mill, filter: &DeadFilter) -> Outcome<()> {
    let letters = mill.dead().list(filter, None, filter.ids.len()).await?;
    match letters.iter().find(|letter| !letter.dead) {
        Some(letter) => Err(not_dead(app, letter.id)),
        None => Ok(()),
    }
}

/// What is said of a letter that is not dead any more.
pub fn not_dead(app: &App, id: JobId) -> Failure {
    let message = format!("the dead letter {id} is on its way already, or has recovered");
    Failure::new(Exit::Conflict, "not_dead", message)
        .hint(format!("tidemill jobs show {id}{}", app.store_option()))
}

async fn planned(app: &App, args: Act, verb: &str, act: PlanAct) -> Outcome {
    let by = args.by.unwrap_or_else(whoami);
    let mill = app.open_existing().await?;
    let meant = args.target.meant(&mill, verb).await?;
    let view = mill.dead().plan(meant.filter, act, &by, &args.message).await?;
    if view.letters < view.filter.ids.len() as u64 {
        refuse_undead(app, &mill, &view.filter).await?;
    }
    if args.plan {
        plans::show(app, &view);
        return Ok(Exit::Ok);
    }
    if view.letters == 0 && act == PlanAct::Delete {
        refuse_of_flows(&mill, &view.filter).await?;
    }
    if view.letters == 0 {
        eprintln!("no dead letter matches");
    }
    if view.letters == 0 || meant.asks && !plans::confirmed(&view, verb)? {
        app.trail.nothing();
        return Ok(Exit::Ok);
    }
    let applied = mill.dead().apply(view.id, &by).await?;
    mill.close().await;
    plans::told(app, &applied);
    Ok(Exit::Ok)
}
