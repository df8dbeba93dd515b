//! `tidemill flows add`, `begin` and `discard`: a flow that does not begin yet.

use serde_json::json;
use tidemill::FlowId;
use tokio::io::BufReader;

use super::{act, lines};
use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::file;
use crate::lines::Lines;
use crate::output::{self, count};

/// What to add, and to which flow.
#[derive(Debug, clap::Args)]
pub struct Add {
    /// The flow
    id: FlowId,
    /// The file of JSON lines, or `-` for stdin: each is a job that names its step
    file: String,
    /// What these lines are called: sent again under the same name, they are added once
    #[arg(long, value_name = "NAME")]
    part: String,
}

/// Which flow to throw away.
#[derive(Debug, clap::Args)]
pub struct Discard {
    /// The flow
    id: FlowId,
    /// Why
    #[arg(long, default_value = "thrown away before it began")]
    reason: String,
}

/// Adds jobs to it.
pub async fn add(app: &App, args: Add) -> Outcome {
    let mut lines = Lines::new(BufReader::new(file::open(&args.file).await?));
    let mill = app.open_existing().await?;
    let building = mill.building(args.id);
    let added = lines::add(&mill, &building, &format!("{}-", args.part), &mut lines).await;
    mill.close().await;
    let jobs = added.map_err(lines::Stopped::of_part)?;
    // They may have been there before: a part that is sent again is added once.
    act::say(app, args.id, "added", jobs, &count(jobs, "job is in it", "jobs are in it"));
    Ok(Exit::Ok)
}

/// Lets it begin.
pub async fn begin(app: &App, id: FlowId) -> Outcome {
    let mill = app.open_existing().await?;
    let id = mill.building(id).begin().await?;
    mill.close().await;
    if app.json {
        output::json(&json!({ "id": id, "answer": "begun" }));
    } else {
        output::line(format!("{id} has begun"));
    }
    Ok(Exit::Ok)
}

/// Throws it away.
pub async fn discard(app: &App, args: Discard) -> Outcome {
    let mill = app.open_existing().await?;
    let jobs = mill.building(args.id).discard(&args.reason).await?;
    mill.close().await;
    act::say(app, args.id, "discarded", jobs, &count(jobs, "job never starts", "jobs never start"));
    Ok(Exit::Ok)
}
