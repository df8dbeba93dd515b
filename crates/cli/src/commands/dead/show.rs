//! `tidemill dead show ID`: why it died, how often it was tried, what people noted.

use serde::Serialize;
use tidemill::{DeadFilter, JobId, JobView, Timestamp};
use tidemill_store::DeadLetter;
use tidemill_store::view::AttemptView;

use crate::app::App;
use crate::commands::jobs::show::{find, section, sections};
use crate::duration::relative;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::{self, Paint, line};

/// Which dead letter.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The dead letter
    id: JobId,
}

#[derive(Serialize)]
struct Shown<'a> {
    dead: &'a DeadLetter,
    job: &'a JobView,
    attempts: &'a [AttemptView],
}

/// Shows it.
pub async fn run(app: &App, args: Args) -> Outcome {
    let mill = app.open_existing().await?;
    let filter = DeadFilter { ids: vec![args.id], ..DeadFilter::default() };
    let letters = mill.dead().list(&filter, None, 1).await?;
    let Some(letter) = letters.first() else {
        let message = format!("there is no dead letter {}", args.id);
        return Err(Failure::new(Exit::NotFound, "dead_letter_unknown", message)
            .hint("`tidemill dead list` shows them; `tidemill jobs show` knows every job"));
    };
    let (view, attempts) = find(&mill, args.id).await?;
    let now = mill.now().await?;
    mill.close().await;
    if app.json {
        output::json(&Shown { dead: letter, job: &view, attempts: &attempts });
        return Ok(Exit::Ok);
    }
    facts(letter, now);
    sections(&view, &attempts);
    notes(letter, now);
    Ok(Exit::Ok)
}

fn facts(letter: &DeadLetter, now: Timestamp) {
    let mut triage = letter.triage.word().to_owned();
    if letter.recovered {
        triage.push_str(", recovered");
    }
    if letter.archived {
        triage.push_str(", archived");
    }
    let facts = [
        ("id", letter.id.to_string()),
        ("kind", letter.kind.clone()),
        ("queue", letter.queue.clone()),
        ("died", format!("{:.3}  ({})", letter.died_at, relative(letter.died_at, now))),
        ("class", letter.class.word().to_owned()),
        ("fingerprint", letter.fingerprint.clone()),
        ("attempts", letter.attempt.to_string()),
        ("triage", triage),
        ("replayed", letter.redrives.to_string()),
    ];
    for (name, value) in facts {
        line(format!("{} {value}", Paint::stdout().dim(&format!("{name:<13}"))));
    }
}

fn notes(letter: &DeadLetter, now: Timestamp) {
    if letter.notes.is_empty() {
        return;
    }
    section("notes", "");
    for note in &letter.notes {
        line(format!("{:<12} {}: {}", relative(note.at, now), note.by, note.text));
    }
}
