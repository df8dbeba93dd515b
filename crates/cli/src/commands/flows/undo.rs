//! `tidemill flows undo`: what would be undone if a saga turned back now.

use serde_json::json;
use tidemill::core::flow::Undo;
use tidemill::store::WorkerView;
use tidemill::{Error, FlowId};

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// So much of a payload is shown on its line; `--json` has all of it.
const PAYLOAD_CHARS_MAX: usize = 200;

/// Lists it, in the order in which it would be undone.
pub async fn run(app: &App, id: FlowId) -> Outcome {
    let mill = app.open_existing().await?;
    let view = mill.flow(id).await?.ok_or(Error::FlowUnknown { id })?;
    let steps = view.would_undo();
    let workers = if steps.is_empty() { Vec::new() } else { mill.workers().await? };
    mill.close().await;
    if app.json {
        for step in steps {
            let known = step.undo.as_ref().map(|undo| is_known(undo, &workers));
            let document = json!({
                "step": step.name, "state": step.state, "undo": step.undo, "kind_known": known,
            });
            output::json(&document);
        }
        return Ok(Exit::Ok);
    }
    if steps.is_empty() {
        output::line("nothing would be undone");
    }
    for (step, number) in steps.iter().zip(1..) {
        let Some(undo) = &step.undo else { continue };
        let payload = output::first_line(undo.payload.as_str(), PAYLOAD_CHARS_MAX);
        let doubt = if step.ended_at.is_some() { "" } else { "  (it runs: once it has ended)" };
        let lacking = if is_known(undo, &workers) { "" } else { "  (no worker knows this kind)" };
        let kind = &undo.kind;
        output::line(format!("{number}. {}  by {kind} {payload}{doubt}{lacking}", step.name));
    }
    Ok(Exit::Ok)
}

/// Whether a worker that beats would run it.
fn is_known(undo: &Undo, workers: &[WorkerView]) -> bool {
    let knows = |worker: &WorkerView| worker.kinds.is_empty() || worker.kinds.contains(&undo.kind);
    workers.iter().any(knows)
}
