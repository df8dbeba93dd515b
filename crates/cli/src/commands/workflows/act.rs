//! `tidemill workflows signal`, `pause`, `resume`, `reset`, `fork`, `skip`, `edit` and `cancel`.

use serde_json::json;
use serde_json::value::RawValue;
use tidemill::{CancelAnswer, ForkAs, JobId, Limits, Payload};

use crate::app::{App, whoami};
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output;

/// What to send, and to whom.
#[derive(Debug, clap::Args)]
pub struct Signal {
    /// The run
    pub id: JobId,
    /// The name of the signal
    pub name: String,
    /// What it carries, as JSON
    #[arg(default_value = "null", allow_negative_numbers = true)]
    pub payload: String,
    /// Sent again under the same id, it is not sent again
    #[arg(long = "once", value_name = "ID")]
    pub once: Option<String>,
}

/// Who acts, and why.
#[derive(Debug, clap::Args)]
pub struct Signed {
    /// Who acts [default: the user's name]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why; kept with the act
    #[arg(long, value_name = "TEXT", visible_alias = "reason", default_value = "")]
    why: String,
}

impl Signed {
    fn by(&self) -> String {
        self.by.clone().unwrap_or_else(whoami)
    }
}

/// Which run.
#[derive(Debug, clap::Args)]
pub struct Run {
    /// The run
    id: JobId,
    #[command(flatten)]
    signed: Signed,
}

/// Which run goes on.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// The run
    id: JobId,
    /// Let its journal have so many entries from now on, up to 1,000,000 [default: 100,000]
    #[arg(long, value_name = "ENTRIES")]
    journal_entries_max: Option<u32>,
    #[command(flatten)]
    signed: Signed,
}

/// From where a run goes on.
#[derive(Debug, clap::Args)]
pub struct Reset {
    /// The run
    id: JobId,
    /// The step, by its key: the first column of `workflows show`
    #[arg(long = "to", value_name = "STEP")]
    step: String,
    #[command(flatten)]
    signed: Signed,
}

/// From where a new run goes on.
#[derive(Debug, clap::Args)]
pub struct Fork {
    /// The run
    id: JobId,
    /// The step, by its key: the first column of `workflows show`
    #[arg(long = "to", value_name = "STEP")]
    step: String,
    /// Call the run off in the same transaction: what it did from the step on is undone
    #[arg(long)]
    instead: bool,
    #[command(flatten)]
    signed: Signed,
}

/// Which step is given an outcome.
#[derive(Debug, clap::Args)]
pub struct Skip {
    /// The run
    id: JobId,
    /// The step that keeps failing or whose end nobody knows, a sleep, or a signal that was taken, by its key
    step: String,
    /// What it is to have returned, as JSON
    #[arg(long, value_name = "JSON", default_value = "null")]
    output: String,
    /// It is to have failed for good, with this message
    #[arg(long, value_name = "TEXT", conflicts_with = "output")]
    fail: Option<String>,
    #[command(flatten)]
    signed: Signed,
}

/// Which step returned something else.
#[derive(Debug, clap::Args)]
pub struct Edit {
    /// The run
    id: JobId,
    /// The step that has ended, or the signal that was taken, by its key
    step: String,
    /// What it is to have returned or carried, as JSON
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    output: String,
    #[command(flatten)]
    signed: Signed,
}

/// Sends it.
pub async fn signal(app: &App, args: Signal) -> Outcome {
    let Signal { id, name, payload, once } = args;
    let mut signal = tidemill::Signal::new(name, &json_of(&payload)?);
    if let Some(once) = once {
        signal = signal.id(once);
    }
    let mill = app.open_existing().await?;
    mill.signal(id, signal).await?;
    mill.close().await;
    say(app, id, "signalled", "it is kept until the run asks for it");
    Ok(Exit::Ok)
}

/// JSON as it was typed.
pub fn json_of(text: &str) -> Outcome<Box<RawValue>> {
    let payload = Payload::parse(text, &Limits::default()).map_err(tidemill::Error::from)?;
    let raw = RawValue::from_string(payload.into_string());
    let raw = raw.map_err(|e| tidemill::core::Error::PayloadNotJson { reason: e.to_string() });
    Ok(raw.map_err(tidemill::Error::from)?)
}

/// Pauses it.
pub async fn pause(app: &App, Run { id, signed }: Run) -> Outcome {
    let mill = app.open_existing().await?;
    mill.pause_run(id, &signed.by(), &signed.why).await?;
    mill.close().await;
    say(app, id, "paused", "it goes no further than where it waits next");
    Ok(Exit::Ok)
}

/// Lets it go on.
pub async fn resume(app: &App, args: Resume) -> Outcome {
    let Resume { id, journal_entries_max, signed } = args;
    let mill = app.open_existing().await?;
    match journal_entries_max {
        Some(entries_max) => {
            mill.resume_run_with_journal(id, entries_max, &signed.by(), &signed.why).await?;
        }
        None => mill.resume_run(id, &signed.by(), &signed.why).await?,
    }
    mill.close().await;
    say(app, id, "resumed", "it goes on");
    Ok(Exit::Ok)
}

/// Lets it go on from a step.
pub async fn reset(app: &App, Reset { id, step, signed }: Reset) -> Outcome {
    let mill = app.open_existing().await?;
    mill.reset_run(id, &step, &signed.by(), &signed.why).await?;
    let goes_on = goes_on(&mill, id).await?;
    mill.close().await;
    say(app, id, "reset", &format!("{goes_on} from {step:?}"));
    Ok(Exit::Ok)
}

/// Lets a new run go on from a step.
pub async fn fork(app: &App, Fork { id, step, instead, signed }: Fork) -> Outcome {
    let mill = app.open_existing().await?;
    let fork = if instead { ForkAs::Instead } else { ForkAs::Beside };
    let into = mill.fork_run(id, &step, fork, &signed.by(), &signed.why).await?;
    mill.close().await;
    if app.json {
        output::json(&json!({ "id": id, "answer": "forked", "into": into }));
    } else {
        output::line(format!("{id} forked: {into} goes on from {step:?}"));
    }
    Ok(Exit::Ok)
}

/// Gives a step an outcome.
pub async fn skip(app: &App, Skip { id, step, output, fail, signed }: Skip) -> Outcome {
    let output = json_of(&output)?;
    let mill = app.open_existing().await?;
    let by = signed.by();
    let done = if let Some(message) = fail {
        mill.fail_step(id, &step, &message, &by, &signed.why).await?;
        "has failed for good".to_owned()
    } else {
        mill.skip_step(id, &step, &output, &by, &signed.why).await?;
        match output.get() {
            "null" => "is over".to_owned(),
            output => format!("returned {output}"),
        }
    };
    let goes_on = goes_on(&mill, id).await?;
    mill.close().await;
    say(app, id, "skipped", &format!("{step:?} {done}, and {goes_on}"));
    Ok(Exit::Ok)
}

/// Corrects what a step returned.
pub async fn edit(app: &App, Edit { id, step, output, signed }: Edit) -> Outcome {
    let output = json_of(&output)?;
    let mill = app.open_existing().await?;
    mill.edit_step(id, &step, &output, &signed.by(), &signed.why).await?;
    let goes_on = goes_on(&mill, id).await?;
    mill.close().await;
    let sentence =
        format!("{step:?} returned {output}; what came after it is forgotten, and {goes_on}");
    say(app, id, "edited", &sentence);
    Ok(Exit::Ok)
}

/// Calls it off.
pub async fn cancel(app: &App, Run { id, signed }: Run) -> Outcome {
    let mill = app.open_existing().await?;
    let answer = mill.cancel_run(id, &signed.by(), &signed.why).await?;
    mill.close().await;
    match answer {
        CancelAnswer::Requested => {
            say(app, id, "requested", "it runs; it is told, and what it did is undone");
        }
        _ => say(app, id, "cancelled", "what it did is undone"),
    }
    Ok(Exit::Ok)
}

/// When a run goes on whose journal was changed: a pause lasts.
async fn goes_on(mill: &Mill, id: JobId) -> Outcome<&'static str> {
    let is_paused = mill.run(id).await?.is_some_and(|run| run.paused);
    Ok(if is_paused { "it is paused: when it is resumed it goes on" } else { "it goes on" })
}

fn say(app: &App, id: JobId, answer: &str, sentence: &str) {
    if app.json {
        output::json(&json!({ "id": id, "answer": answer }));
    } else {
        output::line(format!("{id} {answer}: {sentence}"));
    }
}
