//! `tidemill workflows mail`: what has come for a run, in order, a page at a time.

use comfy_table::Cell;
use tidemill::core::workflow::{Content, Mail};
use tidemill::{JobId, MailPage, Timestamp};

use crate::app::App;
use crate::duration::relative;
use crate::exit::{Exit, Outcome};
use crate::output;

/// Whose mail, and which of it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The run
    id: JobId,
    /// At most this many pieces, up to 1,000
    #[arg(long, value_name = "PIECES", default_value_t = 50)]
    limit: usize,
    /// With larger numbers: after the last one of the page before
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: i64,
}

/// Lists it.
pub async fn run(app: &App, Args { id, limit, after }: Args) -> Outcome {
    let mill = app.open_existing().await?;
    mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    let (MailPage { mail, next }, now) =
        (mill.mail_page(id, after, limit).await?, mill.now().await?);
    mill.close().await;
    if app.json {
        mail.iter().for_each(output::json);
        return Ok(Exit::Ok);
    }
    if mail.is_empty() {
        eprintln!("nothing has come for it{}", if after > 0 { " after that" } else { "" });
        return Ok(Exit::Ok);
    }
    let mut table = output::table(&["NUMBER", "CAME", "WHAT", "CARRIES"]);
    for piece in &mail {
        table.add_row(row(piece, now));
    }
    output::show(&table);
    if let Some(next) = next {
        let hint = format!("the next page: --after {next}");
        eprintln!("{}", output::Paint::stderr().dim(&hint));
    }
    Ok(Exit::Ok)
}

fn row(Mail { number, at, content }: &Mail, now: Timestamp) -> [Cell; 4] {
    let (what, carries) = match content {
        Content::Signal { name, payload } => {
            (format!("signal {name}"), output::shown(payload.as_str()).into_owned())
        }
        Content::Child(end) => (format!("child {} {}", end.id, end.state.word()), String::new()),
        Content::Taken => ("taken before it continued anew".to_owned(), String::new()),
    };
    [Cell::new(number), Cell::new(relative(*at, now)), Cell::new(what), Cell::new(carries)]
}
