//! `tidemill queues why`: why a queue is as deep as it is.

use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Says it in a sentence, with the tenants that have most waiting.
pub async fn run(app: &App, queue: &str) -> Outcome {
    let mill = app.open_existing().await?;
    let why = mill.why_queue(queue).await?;
    mill.close().await;
    if app.json {
        output::json(&why);
        return Ok(Exit::Ok);
    }
    output::line(format!("{queue}: {why}"));
    for tenant in &why.tenants {
        let jobs = output::count(tenant.depth, "job", "jobs");
        output::line(format!("  - {jobs} of {}", tenant.tenant));
    }
    Ok(Exit::Ok)
}
