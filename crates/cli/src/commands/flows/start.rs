//! `tidemill flows start FILE`: a flow from JSON. Its id goes to stdout, so that `id=$(tidemill flows start …)` works.

use serde_json::json;
use tidemill::{Flow, Tidemill};
use tokio::io::AsyncReadExt;

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::output;

/// A file that is larger holds no flow that would be taken.
const FILE_BYTES_MAX: u64 = 1 << 30;

const AFTER_HELP: &str = r#"Example:
  echo '{"name":"signup","steps":[
    {"name":"account","kind":"create_account","payload":{"user":42}},
    {"name":"mail","kind":"send_welcome","after":["account"]},
    {"name":"keys","kind":"make_keys","after":["account"]},
    {"name":"ready","kind":"announce","after":["mail","keys"]}]}' | tidemill flows start -

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
}

/// Starts it, or checks it.
pub async fn run(app: &App, args: Args) -> Outcome {
    let flow = Flow::from_json(&read(&args.file).await?)?;
    if args.check {
        Tidemill::open("sqlite::memory:").await?.check_flow(flow)?;
        if app.json {
            output::json(&json!({ "ok": true }));
        } else {
            eprintln!("the flow is well formed");
        }
        return Ok(Exit::Ok);
    }
    let mill = app.open().await?;
    let id = mill.start(flow).await?;
    mill.close().await;
    if app.json {
        output::json(&json!({ "id": id }));
    } else {
        output::line(id);
        eprintln!("started");
    }
    Ok(Exit::Ok)
}

async fn read(file: &str) -> Outcome<String> {
    let mut text = String::new();
    let bytes = if file == "-" {
        tokio::io::stdin().take(FILE_BYTES_MAX).read_to_string(&mut text).await
    } else {
        let open = tokio::fs::File::open(file).await;
        let open = open.map_err(|error| {
            Failure::new(Exit::Usage, "usage", format!("{file:?} cannot be read: {error}"))
        })?;
        open.take(FILE_BYTES_MAX).read_to_string(&mut text).await
    };
    bytes.map_err(|error| Failure::usage(format!("{file:?} cannot be read: {error}")))?;
    Ok(text)
}
