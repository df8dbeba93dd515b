//! `tidemill flows start FILE`: a flow from JSON, or one of any size from JSON lines. Its id goes to stdout, so that
//! `id=$(tidemill flows start …)` works.

use serde_json::json;
use tidemill::{Flow, Tidemill};
use tokio::io::BufReader;

use super::lines;
use crate::app::App;
use crate::exit::{Exit, Outcome};
use crate::file;
use crate::lines::Lines;
use crate::mill::Mill;
use crate::output::{self, count};

const AFTER_HELP: &str = r#"Example:
  echo '{"name":"signup","steps":[
    {"name":"account","kind":"create_account","payload":{"user":42}},
    {"name":"mail","kind":"send_welcome","after":["account"]},
    {"name":"keys","kind":"make_keys","after":["account"]},
    {"name":"ready","kind":"announce","after":["mail","keys"]}]}' | tidemill flows start -

With --lines the first line is the flow, and every other a job, as for `enqueue --lines`, that names its step:
  {"name":"campaign","steps":[{"name":"mail","jobs":[]},{"name":"report","kind":"report","after":["mail"]}]}
  {"step":"mail","kind":"send_mail","payload":{"to":"ada@example.com"}}
They are added a thousand at a time, and nothing runs before the last. The same lines sent again under the
same "id" go on where they were stopped.

docs/flows.md has all there is to say about a step. Sent again under the same "id", a flow is started once."#;

/// Which flow.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// The file, or `-` for stdin
    file: String,
    /// Only say whether it would be taken; nothing is written, and no store is needed
    #[arg(long)]
    check: bool,
    /// The first line is the flow, and each of the others a job that names its step: any number of them
    #[arg(long)]
    lines: bool,
}

/// Starts it, or checks it.
pub async fn run(app: &App, args: Args) -> Outcome {
    if args.lines {
        return run_lines(app, args).await;
    }
    let flow = Flow::from_json(&file::read(&args.file).await?)?;
    if args.check {
        Tidemill::open("sqlite::memory:").await?.check_flow(flow)?;
        return Ok(well_formed(app));
    }
    let is_building = flow.is_building();
    let mill = app.open().await?;
    let (id, is_new) = mill.start_once(flow).await?;
    mill.close().await;
    if app.json {
        output::json(&json!({ "id": id, "answer": if is_new { "started" } else { "existing" } }));
    } else {
        output::line(id);
        eprintln!(
            "{}",
            match (is_new, is_building) {
                (false, _) => "existing: it was there already",
                (true, true) => "it does not begin yet",
                (true, false) => "started",
            }
        );
    }
    Ok(Exit::Ok)
}

fn well_formed(app: &App) -> Exit {
    if app.json {
        output::json(&json!({ "ok": true }));
    } else {
        eprintln!("the flow is well formed");
    }
    Exit::Ok
}

async fn run_lines(app: &App, args: Args) -> Outcome {
    let mut lines = Lines::new(BufReader::new(file::open(&args.file).await?));
    let flow = lines::flow(&mut lines).await?;
    if args.check {
        // In memory, all of it is done.
        let mill = Mill::Store(Tidemill::open("sqlite::memory:").await?);
        let (building, _) = lines::build(&mill, flow, &mut lines).await?;
        building.begin().await?;
        return Ok(well_formed(app));
    }
    let is_building = flow.is_building();
    let mill = app.open().await?;
    let (building, jobs) = lines::build(&mill, flow, &mut lines).await?;
    let id = building.id();
    if !is_building {
        building.begin().await?;
    }
    mill.close().await;
    if app.json {
        output::json(&json!({ "id": id, "jobs": jobs }));
    } else {
        output::line(id);
        let word = if is_building { "it does not begin yet" } else { "started" };
        // They may have been there before: the same lines again add what is missing.
        eprintln!("{word}: {} in it", count(jobs, "job of the lines is", "jobs of the lines are"));
    }
    Ok(Exit::Ok)
}
