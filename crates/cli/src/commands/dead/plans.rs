//! `tidemill dead plans`, `apply` and `undo`: what is to be done to many dead letters, done and taken back.

use comfy_table::Cell;
use tidemill::{PlanAct, PlanStage, PlanView, Triage};
use tidemill_core::PlanId;

use super::target::ask;
use crate::app::{App, program, whoami};
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Which page of plans, or one of them.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Only this one, with its groups
    id: Option<PlanId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Made before this plan: the last one of the page before
    #[arg(long, value_name = "PLAN")]
    before: Option<PlanId>,
}

/// Which plan.
#[derive(Debug, clap::Args)]
pub struct One {
    /// The plan
    id: PlanId,
    /// Who does it [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// The plans that are kept, newest first.
pub async fn list(app: &App, args: List) -> Outcome {
    let mill = app.open_existing().await?;
    if let Some(id) = args.id {
        show(app, &mill.dead().find_plan(id).await?);
        return Ok(Exit::Ok);
    }
    let plans = mill.dead().plans(args.before, args.limit).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        plans.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if plans.is_empty() {
        eprintln!("there are no plans; an act on dead letters makes one, with --plan only that");
        return Ok(Exit::Ok);
    }
    let mut table =
        output::table(&["ID", "STAGE", "ACT", "LETTERS", "DONE", "UNDONE", "MADE", "BY", "WHY"]);
    for plan in &plans {
        table.add_row([
            Cell::new(plan.id),
            Cell::new(plan.stage.word()),
            Cell::new(act(plan.act)),
            output::number(plan.letters),
            output::number(plan.done),
            output::number(plan.undone),
            Cell::new(relative(plan.made_at, now)),
            Cell::new(&plan.by),
            Cell::new(output::first_line(&plan.why, 40)),
        ]);
    }
    output::show_clipped(&mut table);
    if let Some(last) = plans.last().filter(|_| plans.len() == args.limit) {
        let hint = format!("the next page: --before {}", last.id);
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

/// Does what a plan says; goes on where it was stopped.
pub async fn apply(app: &App, args: One) -> Outcome {
    let mill = app.open_existing().await?;
    let applied = mill.dead().apply(args.id, &args.by.unwrap_or_else(whoami)).await?;
    mill.close().await;
    told(app, &applied);
    Ok(Exit::Ok)
}

/// Takes back what a plan did.
pub async fn undo(app: &App, args: One) -> Outcome {
    let mill = app.open_existing().await?;
    let undone = mill.dead().undo(args.id, &args.by.unwrap_or_else(whoami)).await?;
    mill.close().await;
    told(app, &undone);
    Ok(Exit::Ok)
}

fn act(act: PlanAct) -> String {
    match act {
        PlanAct::Triage(to) => format!("triage {}", to.word()),
        other => other.word().to_owned(),
    }
}

/// A plan as people read it before they apply it.
pub fn show(app: &App, plan: &PlanView) {
    if app.json {
        return output::json(plan);
    }
    let letters = output::count(plan.letters, "dead letter", "dead letters");
    output::line(format!("plan {}: {} {letters} ({})", plan.id, act(plan.act), plan.stage.word()));
    for line in groups(plan) {
        output::line(line);
    }
    let (program, store, id) = (program(), app.store_option(), plan.id);
    let hint = match plan.stage {
        PlanStage::Made | PlanStage::Applying => {
            let back = if plan.undoable { "" } else { ", and cannot be undone" };
            format!("do it until {:.0}{back}: {program} dead apply {id}{store}", plan.expires_at)
        }
        PlanStage::Applied if plan.undoable => {
            format!("take it back: {program} dead undo {id}{store}")
        }
        _ => return,
    };
    eprintln!("{}", output::Paint::stderr().dim(&hint));
}

fn groups(plan: &PlanView) -> impl Iterator<Item = String> {
    plan.groups.iter().map(|group| {
        let error = output::first_line(&group.error, 70);
        format!("  {:>7}  {}  {error}", output::grouped(group.count), group.kind)
    })
}

/// Shows what a plan would do, and asks.
pub fn confirmed(plan: &PlanView, verb: &str) -> Outcome<bool> {
    ask(groups(plan), plan.letters, verb)
}

/// What a plan came to.
pub fn told(app: &App, plan: &PlanView) {
    let word = match plan.act {
        PlanAct::Replay => "replayed",
        PlanAct::Triage(to) => Triage::word(to),
        PlanAct::Archive => "archived",
        PlanAct::Delete => "deleted",
    };
    if app.json {
        let mut told = serde_json::json!({ "plan": plan.id, "passed": plan.passed });
        told[word] = plan.done.into();
        if plan.stage == PlanStage::Undone {
            told["undone"] = plan.undone.into();
            told["stayed"] = plan.stayed.into();
        }
        return output::json(&told);
    }
    let count = |n| output::count(n, "dead letter", "dead letters");
    if plan.stage == PlanStage::Undone {
        output::line(format!("undone: {} of {}", output::grouped(plan.undone), count(plan.done)));
        return;
    }
    let passed = match plan.passed {
        0 => String::new(),
        passed => format!(", passed {} that had changed", output::grouped(passed)),
    };
    output::line(format!("{word} {}{passed}", count(plan.done)));
    if plan.undoable {
        let (program, store) = (program(), app.store_option());
        let hint = format!("take it back: {program} dead undo {}{store}", plan.id);
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
}
