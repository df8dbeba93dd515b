//! `tidemill enqueue`: one job from the command line, or many from JSON lines.
//!
//! The id goes to stdout and what became of it to stderr, so that `id=$(tidemill enqueue …)` works.
//! With `--wait` the output goes to stdout instead.

mod lines;
mod wishes;

use tidemill::{Limits, Receipt, State, Tidemill};
use tokio::io::AsyncReadExt;

use crate::app::App;
use crate::commands::jobs::wait::{self, Patience};
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
pub use wishes::Wishes;

const AFTER_HELP: &str = "\
Examples:
  tidemill enqueue send_mail '{\"to\":\"ada@example.com\"}' --queue mail --delay 5m
  tidemill enqueue report --unique-key today --unique-scope 1d --on-duplicate join --wait
  generate | tidemill enqueue --lines

Each line is a JSON object: kind, payload, and any option of a job by its name with underscores:
  {\"kind\":\"send_mail\",\"payload\":{\"to\":\"ada@example.com\"},\"queue\":\"mail\",\"tags\":[\"spring\"]}
Lines are enqueued a thousand at a time, each thousand wholly or not at all; the first bad line
stops it, is named, and nothing of its thousand is enqueued.";

/// What to enqueue.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The kind of the job; `-` alone reads JSON lines
    #[arg(required_unless_present = "lines")]
    kind: Option<String>,
    /// The payload as JSON, or `-` to read it from stdin [default: null]
    payload: Option<String>,
    /// Read many jobs from stdin, a JSON object on each line
    #[arg(long, conflicts_with_all = ["kind", "payload", "wait"])]
    lines: bool,
    #[command(flatten)]
    wishes: Wishes,
    /// Wait until the job has finished, and print its output
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    patience: Patience,
    /// The largest payload that is taken
    #[arg(long, value_name = "BYTES", default_value_t = Limits::default().payload_bytes_max)]
    max_payload_bytes: usize,
}

/// Enqueues it, or them.
pub async fn run(app: &App, args: Args) -> Outcome {
    let limits = Limits { payload_bytes_max: args.max_payload_bytes, ..Limits::default() };
    let from_lines = args.lines || (args.kind.as_deref() == Some("-") && args.payload.is_none());
    if from_lines && args.wishes != Wishes::default() {
        return Err(Failure::usage("options of a job have no meaning with JSON lines")
            .hint("write them into each line: {\"kind\":\"k\",\"queue\":\"mail\"}"));
    }
    if args.patience.is_given() && !args.wait {
        return Err(Failure::usage("--timeout has no meaning without --wait")
            .hint("--run-timeout bounds an attempt of the job, --finish-within all of it"));
    }
    let payload = payload(args.payload, &limits).await?;
    let mill = app.open_with(Tidemill::builder().limits(limits.clone())).await?;
    let outcome = if from_lines {
        lines::run(app, &mill, &limits).await
    } else {
        let job = args.wishes.job(args.kind.unwrap_or_default(), payload)?;
        let receipt = mill.enqueue(job).await?;
        answer(app, &mill, receipt, args.wait.then_some(args.patience)).await
    };
    mill.close().await;
    outcome
}

async fn answer(app: &App, mill: &Mill, receipt: Receipt, wait: Option<Patience>) -> Outcome {
    let id = receipt.id();
    if let Receipt::Rejected { id } = receipt {
        if app.json {
            output::json(&receipt);
        }
        let message = format!("the job is a duplicate of {id}, which holds its unique key");
        return Err(Failure::new(Exit::Conflict, "duplicate_rejected", message)
            .hint("--on-duplicate join takes the existing job; --force enqueues it all the same"));
    }
    let Some(patience) = wait else {
        if app.json {
            output::json(&receipt);
        } else {
            output::line(id);
            eprintln!("{}", said(&receipt));
        }
        return Ok(Exit::Ok);
    };
    eprintln!("{} {id}", word(&receipt));
    let view = wait::until_finished(mill, id, patience).await?;
    wait::show(app, &view);
    Ok(if view.state == State::Done { Exit::Ok } else { Exit::Failed })
}

/// What became of a job, and where it is, if that is not where it should have been.
fn said(receipt: &Receipt) -> String {
    match receipt {
        Receipt::Diverted { queue, .. } => format!("diverted to {queue}: its queue is full"),
        receipt => word(receipt).to_owned(),
    }
}

/// The word of a receipt.
fn word(receipt: &Receipt) -> &'static str {
    match receipt {
        Receipt::Enqueued { .. } => "enqueued",
        Receipt::Diverted { .. } => "diverted",
        Receipt::Rejected { .. } => "rejected",
        Receipt::Joined { .. } => "joined",
        Receipt::Replaced { .. } => "replaced",
        Receipt::Kept { .. } => "kept",
    }
}

/// The payload that was given, or what stdin has: never more than a byte over the limit.
async fn payload(given: Option<String>, limits: &Limits) -> Outcome<String> {
    match given.as_deref() {
        None => Ok("null".to_owned()),
        Some("-") => {
            let mut text = Vec::new();
            let bytes_max = limits.payload_bytes_max as u64 + 1;
            tokio::io::stdin().take(bytes_max).read_to_end(&mut text).await?;
            String::from_utf8(text).map_err(|error| {
                Failure::new(
                    Exit::Usage,
                    "payload_not_json",
                    format!("the payload is not UTF-8: {error}"),
                )
            })
        }
        Some(text) => Ok(text.to_owned()),
    }
}
