//! `tidemill flows undo`: what would be undone if a saga turned back now.

use serde_json::json;
use tidemill::core::flow::Undo;
use tidemill::store::WorkerView;
use tidemill::store::flow::StepView;
use tidemill::{Error, FlowId, FlowView};
use tidemill_client::Result;

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output;

/// So much of a payload is shown on its line; `--json` has all of it.
const PAYLOAD_CHARS_MAX: usize = 200;

/// Lists it, in the order in which it would be undone.
pub async fn run(app: &App, id: FlowId) -> Outcome {
    let mill = app.open_existing().await?;
    let view = mill.flow(id).await?.ok_or(Error::FlowUnknown { id })?;
    let steps = view.would_undo();
    let workers = if steps.is_empty() { Vec::new() } else { mill.workers().await? };
    let mut undos = Vec::with_capacity(steps.len());
    for step in steps {
        undos.extend(as_it_runs(&mill, &view, step).await?.map(|undo| (step, undo)));
    }
    mill.close().await;
    if app.json {
        for (step, undo) in undos {
            let known = is_known(&undo, &workers);
            let document = json!({
                "step": step.name, "state": step.state, "undo": undo, "kind_known": known,
            });
            output::json(&document);
        }
        return Ok(Exit::Ok);
    }
    if undos.is_empty() {
        output::line("nothing would be undone");
    }
    for ((step, undo), number) in undos.iter().zip(1..) {
        let payload = output::first_line(undo.payload.as_str(), PAYLOAD_CHARS_MAX);
        let doubt = if step.ended_at.is_some() { "" } else { "  (it runs: once it has ended)" };
        let lacking = if is_known(undo, &workers) { "" } else { "  (no worker knows this kind)" };
        let kind = &undo.kind;
        output::line(format!("{number}. {}  by {kind} {payload}{doubt}{lacking}", step.name));
    }
    Ok(Exit::Ok)
}

/// What undoes a step: the job, once there is one, since people may have given it another payload; else what was
/// declared.
async fn as_it_runs(mill: &Mill, view: &FlowView, step: &StepView) -> Result<Option<Undo>> {
    let job = match view.undo_of(step.number).and_then(|undo| undo.first) {
        Some(id) => mill.job(id).await?,
        None => None,
    };
    Ok(job.map(|view| Undo::of_job(view.job)).or_else(|| step.undo.clone()))
}

/// Whether a worker that beats would run it.
fn is_known(undo: &Undo, workers: &[WorkerView]) -> bool {
    let knows = |worker: &WorkerView| worker.kinds.is_empty() || worker.kinds.contains(&undo.kind);
    workers.iter().any(knows)
}
