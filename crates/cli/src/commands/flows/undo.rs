//! `tidemill flows undo`: what would be undone if a saga turned back now.

use serde_json::json;
use tidemill::{Error, FlowId};

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Lists it, in the order in which it would be undone.
pub async fn run(app: &App, id: FlowId) -> Outcome {
    let mill = app.open_existing().await?;
    let view = mill.flow(id).await?.ok_or(Error::FlowUnknown { id })?;
    mill.close().await;
    let steps = view.would_undo();
    if app.json {
        for step in steps {
            output::json(&json!({ "step": step.name, "state": step.state, "undo": step.undo }));
        }
        return Ok(Exit::Ok);
    }
    if steps.is_empty() {
        output::line("nothing would be undone");
    }
    for (step, number) in steps.iter().zip(1..) {
        let kind = step.undo.as_ref().map_or("", |undo| undo.kind.as_str());
        let doubt = if step.ended_at.is_some() { "" } else { "  (it runs: once it has ended)" };
        output::line(format!("{number}. {}  by {kind}{doubt}", step.name));
    }
    Ok(Exit::Ok)
}
