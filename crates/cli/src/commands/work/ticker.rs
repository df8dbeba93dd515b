//! What a worker tells while it works: a line for each attempt.
//!
//! On a terminal for people, with `--json` as JSON lines on stdout, else in the log. Never a
//! payload, never an output.

use std::io::IsTerminal;
use std::time::Duration;

use serde_json::json;
use tidemill::{Attempted, Context};

use super::dedicated::Dedicated;
use super::stderr::Progress;
use crate::duration::short;
use crate::output::{self, Paint};

/// Where the lines go.
#[derive(Debug)]
pub struct Ticker {
    json: bool,
    terminal: bool,
}

impl Ticker {
    /// Lines for whoever reads.
    pub fn new(json: bool) -> Self {
        Self { json, terminal: std::io::stderr().is_terminal() }
    }

    /// The worker starts.
    pub fn start(&self, kinds: &[String], queues: &[String], slots: usize, own: &[Dedicated]) {
        if self.terminal && !self.json {
            let (kinds, queues) = (kinds.join(", "), queues.join(", "));
            let jobs = output::count(slots as u64, "job", "jobs");
            let own = own.iter().map(ToString::to_string);
            let at_once: Vec<_> = std::iter::once(format!("{jobs} at once")).chain(own).collect();
            let at_once = at_once.join(", ");
            eprintln!("working on {kinds} from {queues}, {at_once}; Ctrl-C stops gracefully");
        }
    }

    /// The worker stops.
    pub fn stop(&self, busy: usize) {
        if self.terminal && !self.json {
            let running = output::count(busy as u64, "running job", "running jobs");
            eprintln!("stopping: no new jobs are taken, {running} may finish");
        } else {
            tracing::info!(busy, "stopping: no new jobs are taken, running ones may finish");
        }
    }

    /// A command says how far it is.
    pub fn progress(&self, cx: &Context, progress: &Progress) {
        let (id, percent) = (cx.id(), progress.percent);
        let text = &*output::without(cx.job().payload.as_str(), &progress.text);
        if self.json {
            output::json(
                &json!({ "id": id, "event": "progress", "percent": percent, "text": text }),
            );
        } else if self.terminal {
            eprintln!("{}", Paint::stderr().dim(&format!("  {id} {percent:>3.0}% {text}")));
        } else {
            tracing::info!(%id, percent, text, "progress");
        }
    }

    /// An attempt has ended.
    pub fn ended(&self, cx: &Context, ran: Duration, attempted: &Attempted) {
        let (id, kind, attempt) = (cx.id(), &cx.job().kind, cx.attempt());
        let (event, said) = match attempted {
            Ok(_) => ("done", String::new()),
            Err(_) if cx.is_given_back() => (
                "given_back",
                "the worker stops; the job runs again, no attempt is spent".to_owned(),
            ),
            Err(fail) => {
                let said = fail.to_string();
                let said = output::without(cx.job().payload.as_str(), &said);
                ("not_done", output::first_line(&said, 100))
            }
        };
        if self.json {
            let ran_ms = ran.as_millis() as u64;
            output::json(&json!({
                "id": id, "event": event, "kind": kind, "attempt": attempt,
                "ran_ms": ran_ms, "said": said,
            }));
        } else if self.terminal {
            let paint = Paint::stderr();
            let mark = if attempted.is_ok() { paint.green("✓") } else { paint.red("✗") };
            eprintln!("{mark} {id} {kind} attempt {attempt} in {} {said}", short(ran));
        } else {
            let ran_ms = ran.as_millis() as u64;
            tracing::info!(%id, kind, attempt, ran_ms, said, "{event}");
        }
    }
}
