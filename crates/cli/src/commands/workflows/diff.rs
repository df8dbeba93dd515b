//! `tidemill workflows diff ID`: what the journal of a run says, and what code says, side by side.

use comfy_table::Cell;
use serde_json::json;
use tidemill::core::workflow::{Diff, ParkCode, Parked};
use tidemill::{JobId, Replayed};

use super::{advice, place, program};
use crate::app::App;
use crate::duration::Span;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Which run, and with which program.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run
    id: JobId,
    /// A program to compare it with anew: a command that runs its workers [default: what parked the run]
    #[arg(long = "with", value_name = "CMD")]
    program: Option<String>,
    /// How long that may take
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    timeout: Span,
}

/// Shows how they differ.
pub async fn run(app: &App, args: Args) -> Outcome {
    let Args { id, program, timeout } = args;
    match program {
        Some(program) => anew(app, id, &program, timeout).await,
        None => parked(app, id).await,
    }
}

/// What parked it.
async fn parked(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    let run = mill.run(id).await?.ok_or(tidemill::Error::RunUnknown { id })?;
    mill.close().await;
    let Some(parked) = run.parked else {
        let error = tidemill::Error::RunNotNow { id, why: "it is not parked".to_owned() };
        return Err(Failure::from(error).hint("--with 'CMD' compares it with a program"));
    };
    show_parked(app, id, &parked);
    Ok(Exit::Failed)
}

/// What a program makes of it.
async fn anew(app: &App, id: JobId, command: &str, timeout: Span) -> Outcome {
    // Whether it is a run at all is said by us, not by the program.
    let mill = app.open_existing().await?;
    let kind = mill.history(id).await?.job.kind;
    mill.close().await;
    let said = program::replay(app, command, &id.to_string(), timeout.0).await?;
    place::refuse_silence(app, &said, id, &kind)?;
    let Some(found) = said.replays.into_iter().find(|replay| replay.run == id) else {
        let message = format!("the program has no handler for the kind {kind:?}");
        return Err(Failure::new(Exit::NotFound, "handler_missing", message));
    };
    match &found.replayed {
        Replayed::Differs { diff } => show_parked(app, id, &diff.clone().into()),
        Replayed::Stops { why } => show(app, id, None, why, None),
        follows if app.json => {
            output::json(&json!({ "id": id, "answer": "follows", "told": follows.to_string() }));
        }
        follows => output::line(format!("{id} {follows}")),
    }
    Ok(if found.replayed.follows() { Exit::Ok } else { Exit::Failed })
}

fn show_parked(app: &App, id: JobId, Parked { code, why, diff }: &Parked) {
    show(app, id, Some(*code), why, diff.as_ref());
}

fn show(app: &App, id: JobId, code: Option<ParkCode>, why: &str, diff: Option<&Diff>) {
    if app.json {
        let answer = if diff.is_some() { "differs" } else { "stops" };
        output::json(
            &json!({ "id": id, "answer": answer, "code": code, "diff": diff, "told": why }),
        );
        return;
    }
    if let Some(diff) = diff {
        let mut table = output::table(&["THE JOURNAL HAS", "BUT THE CODE"]);
        table.add_row([Cell::new(&diff.journal), Cell::new(&diff.code)]);
        output::show(&table);
    } else {
        let code = code.map(|code| format!("{}: ", code.code()));
        output::line(format!("{}{why}", code.unwrap_or_default()));
    }
    advice::parked(app, id, code);
}
