//! `tidemill jobs cancel` and `tidemill jobs retry`: each job is answered on a line of its own.
//!
//! The exit code is that of the worst answer: 3 for an unknown job, 5 for one that could not be.

use serde_json::json;
use tidemill::{CancelAnswer, JobId, State, Tidemill};

use crate::app::{App, whoami};
use crate::exit::{Exit, Outcome};
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
    /// Who asks [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
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
    let mut worst = Exit::Ok;
    for id in args.ids {
        worst = worst.max(retry_one(app, &mill, id, &by).await?);
    }
    mill.close().await;
    Ok(worst)
}

async fn retry_one(app: &App, mill: &Tidemill, id: JobId, by: &str) -> Outcome {
    let Some(view) = mill.job(id).await? else {
        return Ok(say(app, id, "unknown", "is not known", Exit::NotFound));
    };
    let done = match view.state {
        State::Dead => mill.dead().replay_one(id, by, None).await?,
        State::Scheduled => mill.run_now(id).await?,
        _ => false,
    };
    Ok(match view.state {
        State::Dead if done => say(app, id, "replayed", "was dead, is ready again", Exit::Ok),
        State::Scheduled if done => say(app, id, "due", "is due now", Exit::Ok),
        state => say(app, id, "refused", why_not(state), Exit::Conflict),
    })
}

fn why_not(state: State) -> &'static str {
    match state {
        State::Blocked => "waits for another job; it starts when that one has finished",
        State::Ready => "is ready already; it waits for a worker",
        State::Running => "is running; cancel it first, or wait",
        State::Done => "is done; enqueue the work again instead",
        State::Cancelled => "was cancelled; enqueue the work again instead",
        State::Dead | State::Scheduled => "has changed meanwhile; look at it again",
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
