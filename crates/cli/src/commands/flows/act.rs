//! `tidemill flows cancel`, `retry` and `wait`.

use serde_json::json;
use tidemill::FlowId;

use super::document::Document;
use super::{draw, watch};
use crate::app::{App, whoami};
use crate::commands::jobs::wait::Patience;
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
    /// Only the dead jobs of this step
    #[arg(long)]
    step: Option<String>,
    /// Who asks [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Calls it off.
pub async fn cancel(app: &App, args: Cancel) -> Outcome {
    let mill = app.open_existing().await?;
    let jobs = mill.cancel_flow(args.id, &args.reason).await?;
    mill.close().await;
    let sentence = count(jobs, "job never starts", "jobs never start");
    say(app, args.id, "called off", jobs, &format!("{sentence}, and what runs is told"));
    Ok(Exit::Ok)
}

/// Sends its dead jobs on their way again.
pub async fn retry(app: &App, args: Retry) -> Outcome {
    let mill = app.open_existing().await?;
    let by = args.by.unwrap_or_else(whoami);
    let jobs = mill.retry_flow(args.id, args.step.as_deref(), &by).await?;
    mill.close().await;
    let sentence = count(jobs, "job is on its way again", "jobs are on their way again");
    say(app, args.id, "retried", jobs, &sentence);
    Ok(Exit::Ok)
}

/// Waits until it has ended, and says how.
pub async fn wait(app: &App, id: FlowId, patience: Patience) -> Outcome {
    let mill = app.open_existing().await?;
    let view =
        Late::wait("waiting for the flow").during(mill.wait_flow(id, patience.limit())).await?;
    mill.close().await;
    if app.json {
        output::json(&Document::from(&view));
    } else {
        output::line(draw::said(&view));
    }
    Ok(watch::exit_of(view.head.state))
}

fn say(app: &App, id: FlowId, answer: &str, jobs: u64, sentence: &str) {
    if app.json {
        output::json(&json!({ "id": id, "answer": answer.replace(' ', "_"), "jobs": jobs }));
    } else {
        output::line(format!("{id} {answer}: {sentence}"));
    }
}
