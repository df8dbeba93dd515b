//! `tidemill flows cancel`, `retry`, `rerun`, `resolve` and `wait`.

use serde_json::json;
use tidemill::{By, FlowId, Limits, Payload};

use super::document::Document;
use super::{draw, watch};
use crate::app::{App, whoami};
use crate::commands::jobs::wait::{Patience, through_outages};
use crate::exit::{Exit, Outcome};
use crate::output::{self, count};
use crate::progress::Late;

/// Which flow to call off.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The flow
    id: FlowId,
    /// Why
    #[arg(long, default_value = "called off by an operator")]
    reason: String,
}

/// What of a flow to try again.
#[derive(Debug, clap::Args)]
pub struct Retry {
    /// The flow
    id: FlowId,
    /// Only the dead jobs of this step, and those of it that were called off. If it has none and the flow was called
    /// off, it goes on there
    #[arg(long)]
    step: Option<String>,
    /// Why; kept with the dead letters. Needed if the saga is stuck
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Who asks [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// From where a flow is to run again.
#[derive(Debug, clap::Args)]
pub struct Rerun {
    /// The flow
    id: FlowId,
    /// The step; what comes after it runs again too
    step: String,
}

/// What is seen to.
#[derive(Debug, clap::Args)]
pub struct Resolve {
    /// The flow
    id: FlowId,
    /// The step whose job is dead
    #[arg(long)]
    step: String,
    /// How it was seen to; kept with the dead letter
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// What it is to have returned, as JSON [default: null]
    #[arg(long, value_name = "JSON")]
    output: Option<String>,
    /// Who says so [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Lets a dead job count as done.
pub async fn resolve(app: &App, args: Resolve) -> Outcome {
    let output = args.output.as_deref().map(|text| Payload::parse(text, &Limits::default()));
    let output = output.transpose().map_err(tidemill::Error::from)?;
    let mill = app.open_existing().await?;
    let by = args.by.unwrap_or_else(whoami);
    let jobs = mill.resolve_step(args.id, &args.step, output, &by, &args.why).await?;
    mill.close().await;
    say(app, args.id, "resolved", jobs, &count(jobs, "job counts as done", "jobs count as done"));
    Ok(Exit::Ok)
}

/// Calls it off.
pub async fn cancel(app: &App, args: Cancel) -> Outcome {
    let mill = app.open_existing().await?;
    let jobs = mill.cancel_flow(args.id, &args.reason).await?;
    mill.close().await;
    let sentence = count(jobs, "job had not ended", "jobs had not ended");
    say(app, args.id, "called off", jobs, &format!("{sentence}; what runs is told"));
    Ok(Exit::Ok)
}

/// Sends its dead jobs on their way again.
pub async fn retry(app: &App, args: Retry) -> Outcome {
    let mill = app.open_existing().await?;
    let by = args.by.unwrap_or_else(whoami);
    let by = By::from(&by).because(args.why.as_deref());
    let jobs = mill.retry_flow(args.id, args.step.as_deref(), by).await?;
    mill.close().await;
    let sentence = count(jobs, "job is on its way again", "jobs are on their way again");
    say(app, args.id, "retried", jobs, &sentence);
    Ok(Exit::Ok)
}

/// Lets a step and everything behind it run again.
pub async fn rerun(app: &App, args: Rerun) -> Outcome {
    let mill = app.open_existing().await?;
    let jobs = mill.rerun_flow(args.id, &args.step).await?;
    mill.close().await;
    let sentence = count(jobs, "job runs again", "jobs run again");
    say(app, args.id, "rerun", jobs, &sentence);
    Ok(Exit::Ok)
}

/// Waits until it has ended, and says how.
pub async fn wait(app: &App, id: FlowId, patience: Patience) -> Outcome {
    let mill = app.open_existing().await?;
    let mut late = Late::wait("waiting for the flow");
    let waiting = through_outages(patience, |time| mill.wait_flow(id, time));
    let view = late.during(waiting).await?;
    mill.close().await;
    if app.json {
        output::json(&Document::from(&view));
    } else {
        output::line(draw::said(&view));
    }
    Ok(watch::exit_of(view.head.state))
}

/// Says what an act on a flow came to.
pub fn say(app: &App, id: FlowId, answer: &str, jobs: u64, sentence: &str) {
    if app.json {
        output::json(&json!({ "id": id, "answer": answer.replace(' ', "_"), "jobs": jobs }));
    } else {
        output::line(format!("{id} {answer}: {sentence}"));
    }
}
