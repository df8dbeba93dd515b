//! `tidemill workflows export ID`: the history of a run, for `testing::replay`.

use tidemill::JobId;

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// Prints it: on lines of its own for people and version control, on one with `--json`.
pub async fn run(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    let history = mill.history(id).await?;
    mill.close().await;
    if app.json {
        output::json(&history);
        return Ok(Exit::Ok);
    }
    let text = serde_json::to_string_pretty(&history);
    let text = text.map_err(|e| Failure::new(Exit::Failed, "output", e.to_string()))?;
    output::line(output::shown(&text));
    Ok(Exit::Ok)
}
