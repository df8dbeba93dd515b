//! `tidemill jobs why`: every gate that keeps a job from running.

use tidemill::JobId;

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Names the gates that hold a job.
pub async fn run(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    let why = mill.why(id).await?;
    mill.close().await;
    if app.json {
        output::json(&why);
        return Ok(Exit::Ok);
    }
    output::line(format!("{id} is {}", why.state.word()));
    for gate in &why.gates {
        output::line(format!("  - {gate}"));
    }
    if let Some(at) = why.expected_at {
        output::line(format!("it should start at {at}"));
    }
    Ok(Exit::Ok)
}
