//! `tidemill keys`: the keys that payloads are encrypted with, how much each still holds, and their change.
//!
//! Keys come from a file or the environment, never from the command line, where everybody on the machine reads them.

use comfy_table::Cell;
use serde_json::json;
use tidemill::{Keyring, Rotated};

use crate::app::App;
use crate::exit::{Exit, Failure, Outcome};
use crate::mill::Mill;
use crate::output;
use crate::progress::Late;

const AFTER_HELP: &str = "\
Keys are read from the file that TIDEMILL_KEYS_FILE names, or from TIDEMILL_KEYS itself: one to a line, an id and
32 bytes in base64. The first one encrypts, all of them decrypt.

  umask 077; tidemill keys new 2026-11 > keys; tidemill keys new unique >> keys
  export TIDEMILL_KEYS_FILE=$PWD/keys
  tidemill keys list

To change a key: put a new one on the second line everywhere, then on the first line everywhere, then
`tidemill keys rotate`; when `tidemill keys list` says that the old one holds nothing, take it away.

With --server, `list` and `rotate` are about the keys of the server; it tells their ids and counts alone.";

/// What is to be done.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a line with a new key
    New {
        /// What it is called: it stands beside all that it encrypts
        #[arg(value_name = "ID")]
        id: String,
    },
    /// How many rows each key still holds
    List,
    /// Encrypt everything with the first key
    Rotate,
}

/// Does it.
pub async fn run(app: &App, args: Args) -> Outcome {
    match args.verb {
        Verb::New { id } => {
            let line = Keyring::new_line(&id)?;
            if app.json {
                output::json(&json!({ "id": id, "line": line }));
            } else {
                output::line(line);
            }
            Ok(Exit::Ok)
        }
        Verb::List => list(app).await,
        Verb::Rotate => rotate(app).await,
    }
}

async fn list(app: &App) -> Outcome {
    let mill = app.open_existing().await?;
    let counts = Late::wait("counting").during(mill.key_counts()).await;
    mill.close().await;
    let counts = counts?;
    if app.json {
        counts.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if counts.is_empty() {
        eprintln!("nothing is encrypted; `tidemill keys --help` says how it is begun");
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["KEY", "ROWS", "HERE"]);
    for count in &counts {
        let here = match (count.first, count.known) {
            (true, _) => "encrypts",
            (false, true) => "decrypts",
            (false, false) => "missing",
        };
        table.add_row([Cell::new(&count.key), output::number(count.rows), Cell::new(here)]);
    }
    output::show(&table);
    Ok(Exit::Ok)
}

async fn rotate_all(mill: &Mill) -> Outcome<Rotated> {
    let counts = Late::wait("counting").during(mill.key_counts()).await?;
    let mut bar = Late::new("rotating", Some(counts.iter().map(|count| count.rows).sum()));
    Ok(mill.rotate_keys(|so_far| bar.set(so_far.seen)).await?)
}

async fn rotate(app: &App) -> Outcome {
    // Known without a walk; a server knows its own.
    if app.server.is_none() && crate::app::keys()?.is_empty() {
        return Err(tidemill::Error::EncryptionOff.into());
    }
    let mill = app.open_existing().await?;
    let rotated = rotate_all(&mill).await;
    mill.close().await;
    let rotated = rotated?;
    if app.json {
        output::json(&rotated);
    } else {
        let (moved, seen) = (rotated.rotated, rotated.seen);
        output::line(format!("{moved} of {seen} encrypted rows are under the first key since"));
    }
    if rotated.changed > 0 {
        eprintln!("{} rows changed meanwhile; run it once more", rotated.changed);
    }
    if rotated.unreadable == 0 {
        return Ok(Exit::Ok);
    }
    let message = format!("{} rows cannot be decrypted and keep their key", rotated.unreadable);
    Err(Failure::new(Exit::Failed, "encryption_key_missing", message).hint(
        "`tidemill keys list` names the keys that are missing; TIDEMILL_LOG=warn names the rows",
    ))
}
