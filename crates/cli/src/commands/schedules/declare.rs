//! `tidemill schedules declare OWNER FILE`: the schedules of an owner, exactly those of a file. What a deploy runs.

use tidemill::{Declaration, Declared};

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::file;
use crate::output::{self, count};

const AFTER_HELP: &str = r#"Example:
  echo '{"schedules":{
    "nightly":{"cron":"30 2 * * *","zone":"Europe/Berlin","job":{"kind":"report"}},
    "heartbeat":{"every":"5m","overlap":"skip","job":{"kind":"ping"}}}}' | tidemill schedules declare billing -

Those of the owner that the file does not name are deleted; those of other owners stay. Declared again
unchanged, nothing changes, and no slot is lost: run it with every deploy."#;

/// What to declare.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Whose schedules these are: all of them
    owner: String,
    /// The file, or `-` for stdin
    file: String,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Declares them.
pub async fn run(app: &App, args: &Args) -> Outcome {
    let (owner, text) = (&args.owner, file::read(&args.file).await?);
    let wanted: Declaration = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{:?} is not understood: {error}", args.file)))?;
    let is_dry = args.dry_run || wanted.dry_run;
    let wanted = wanted.of(owner)?;
    let mill = app.open().await?;
    let declared = if is_dry {
        mill.schedules().declare_preview(owner, wanted).await?
    } else {
        mill.schedules().declare(owner, wanted).await?
    };
    mill.close().await;
    if app.json {
        output::json(&declared);
        return Ok(Exit::Ok);
    }
    show(&declared, is_dry);
    Ok(Exit::Ok)
}

fn show(declared: &Declared, is_dry: bool) {
    let Declared { made, changed, unchanged, deleted } = declared;
    let rows = [
        (made, "make", "made"),
        (changed, "change", "changed"),
        (unchanged, "leave", "unchanged"),
        (deleted, "delete", "deleted"),
    ];
    let mut table = output::table(&["SCHEDULE", if is_dry { "WOULD" } else { "WHAT" }]);
    for (names, would, what) in rows {
        for name in names {
            table.add_row([name.as_str(), if is_dry { would } else { what }]);
        }
    }
    output::show(&table);
    let changes = (made.len() + changed.len() + deleted.len()) as u64;
    let changes = count(changes, "change", "changes");
    eprintln!("{changes}{}", if is_dry { "; nothing was written" } else { "" });
}
