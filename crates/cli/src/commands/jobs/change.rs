//! `tidemill jobs cancel`, `retry` and `priority`: each job is answered on a line of its own.
//!
//! The exit code is that of the worst answer: 3 for an unknown job, 5 for one that could not be.

use serde_json::json;
use tidemill::{By, CancelAnswer, JobId, Retried};
use tidemill_client::Error;

use crate::app::{App, whoami};
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output;

/// Which jobs to call off.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The jobs
    #[arg(required = true)]
    ids: Vec<JobId>,
    /// Why
    #[arg(long, default_value = "called off by an operator")]
    reason: String,
}

/// Which jobs to run again.
#[derive(Debug, clap::Args)]
pub struct Retry {
    /// The jobs
    #[arg(required = true)]
    ids: Vec<JobId>,
    /// Why; kept with those that are dead. Needed for one that holds up a saga
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Who asks [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
}

/// Which job is to wait in which band.
#[derive(Debug, clap::Args)]
pub struct Priority {
    /// The job
    id: JobId,
    /// urgent, high, normal or low
    band: tidemill::Priority,
}

/// Calls them off.
pub async fn cancel(app: &App, args: Cancel) -> Outcome {
    let mill = app.open_existing().await?;
    let answers = mill.cancel_many(args.ids.clone(), &args.reason).await?;
    mill.close().await;
    let told = args.ids.iter().zip(answers).map(|(id, answer)| match answer {
        CancelAnswer::Cancelled => say(app, *id, "cancelled", "cancelled", Exit::Ok),
        CancelAnswer::Requested => say(
            app,
            *id,
            "requested",
            "runs; its handler is told, no further attempt starts",
            Exit::Ok,
        ),
        CancelAnswer::Finished => say(app, *id, "finished", "had finished already", Exit::Conflict),
        CancelAnswer::Unknown => say(app, *id, "unknown", "is not known", Exit::NotFound),
    });
    Ok(told.max().unwrap_or(Exit::Ok))
}

/// Runs them again.
pub async fn retry(app: &App, args: Retry) -> Outcome {
    let mill = app.open_existing().await?;
    let by = args.by.unwrap_or_else(whoami);
    let by = By::from(&by).because(args.why.as_deref());
    let mut worst = Exit::Ok;
    for id in args.ids {
        worst = worst.max(retry_one(app, &mill, id, by).await?);
    }
    mill.close().await;
    Ok(worst)
}

async fn retry_one(app: &App, mill: &Mill, id: JobId, by: By<'_>) -> Outcome {
    Ok(match mill.retry(id, by, None).await {
        Ok(Retried::Replayed) => say(app, id, "replayed", "was dead, is ready again", Exit::Ok),
        Ok(Retried::Due) => say(app, id, "due", "is due now", Exit::Ok),
        Err(error) => refused(app, id, error)?,
    })
}

/// Lets it wait in another band.
pub async fn priority(app: &App, Priority { id, band }: Priority) -> Outcome {
    let mill = app.open_existing().await?;
    let moved = mill.set_priority(id, band).await;
    mill.close().await;
    match moved {
        Ok(()) => Ok(say(app, id, "moved", &format!("waits as {}", band.word()), Exit::Ok)),
        Err(error) => refused(app, id, error),
    }
}

/// What is told of a job with which it could not be done; what is wrong with the store is told as ever.
fn refused(app: &App, id: JobId, error: Error) -> Outcome {
    match error.code() {
        "job_unknown" => Ok(say(app, id, "unknown", "is not known", Exit::NotFound)),
        "job_not_now" => {
            let sentence = error.to_string();
            let why = sentence.strip_prefix(&format!("the job {id} ")).unwrap_or(&sentence);
            Ok(say(app, id, "refused", why, Exit::Conflict))
        }
        _ => Err(error.into()),
    }
}

fn say(app: &App, id: JobId, answer: &str, sentence: &str, exit: Exit) -> Exit {
    if app.json {
        output::json(&json!({ "id": id, "answer": answer }));
    } else {
        output::line(format!("{id} {sentence}"));
    }
    exit
}
