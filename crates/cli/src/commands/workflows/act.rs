//! `tidemill workflows signal`, `pause`, `resume`, `reset` and `cancel`.

use serde_json::json;
use serde_json::value::RawValue;
use tidemill::{CancelAnswer, JobId, Limits, Payload};

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// What to send, and to whom.
#[derive(Debug, clap::Args)]
pub struct Signal {
    /// The run
    id: JobId,
    /// The name of the signal
    name: String,
    /// What it carries, as JSON
    #[arg(default_value = "null")]
    payload: String,
    /// Sent again under the same id, it is not sent again
    #[arg(long = "once", value_name = "ID")]
    once: Option<String>,
}

/// From where a run goes on.
#[derive(Debug, clap::Args)]
pub struct Reset {
    /// The run
    id: JobId,
    /// The step, by its key: the first column of `workflows show`
    #[arg(long = "to", value_name = "STEP")]
    step: String,
}

/// Which run to call off.
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// The run
    id: JobId,
    /// Why
    #[arg(long, default_value = "called off by an operator")]
    reason: String,
}

/// Sends it.
pub async fn signal(app: &App, args: Signal) -> Outcome {
    let Signal { id, name, payload, once } = args;
    let payload = Payload::parse(&payload, &Limits::default()).map_err(tidemill::Error::from)?;
    let raw = RawValue::from_string(payload.into_string());
    let raw = raw.map_err(|e| tidemill::core::Error::PayloadNotJson { reason: e.to_string() });
    let mut signal = tidemill::Signal::new(name, &raw.map_err(tidemill::Error::from)?);
    if let Some(once) = once {
        signal = signal.id(once);
    }
    let mill = app.open_existing().await?;
    mill.signal(id, signal).await?;
    mill.close().await;
    say(app, id, "signalled", "it is kept until the run asks for it");
    Ok(Exit::Ok)
}

/// Pauses it.
pub async fn pause(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    mill.pause_run(id).await?;
    mill.close().await;
    say(app, id, "paused", "it goes no further than where it waits next");
    Ok(Exit::Ok)
}

/// Lets it go on.
pub async fn resume(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    mill.resume_run(id).await?;
    mill.close().await;
    say(app, id, "resumed", "it goes on");
    Ok(Exit::Ok)
}

/// Lets it go on from a step.
pub async fn reset(app: &App, args: Reset) -> Outcome {
    let mill = app.open_existing().await?;
    mill.reset_run(args.id, &args.step).await?;
    mill.close().await;
    say(app, args.id, "reset", &format!("it goes on from {:?}", args.step));
    Ok(Exit::Ok)
}

/// Calls it off.
pub async fn cancel(app: &App, args: Cancel) -> Outcome {
    let mill = app.open_existing().await?;
    let answer = mill.cancel(args.id, &args.reason).await?;
    mill.close().await;
    let (word, sentence) = match answer {
        CancelAnswer::Cancelled => ("cancelled", "what it did is undone"),
        CancelAnswer::Requested => ("requested", "it runs; it is told, and what it did is undone"),
        CancelAnswer::Finished => ("finished", "it had finished already"),
        CancelAnswer::Unknown => return Err(tidemill::Error::JobUnknown { id: args.id }.into()),
    };
    say(app, args.id, word, sentence);
    Ok(Exit::Ok)
}

fn say(app: &App, id: JobId, answer: &str, sentence: &str) {
    if app.json {
        output::json(&json!({ "id": id, "answer": answer }));
    } else {
        output::line(format!("{id} {answer}: {sentence}"));
    }
}
