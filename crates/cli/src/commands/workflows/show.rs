//! `tidemill workflows show ID`: a run as a timeline.

use std::time::Duration;

use comfy_table::Cell;
use serde::Serialize;
use tidemill::core::workflow::{Ending, Entry};
use tidemill::{FlowId, JobId, JobView, Recorded, RunActView, RunView, State, Timestamp};

use super::advice;
use super::list::{waits, word};
use crate::app::App;
use crate::duration::{relative, short};
use crate::exit::{Exit, Outcome};
use crate::output::{self, Paint, line};

/// Everything in one document.
#[derive(Serialize)]
struct Shown<'a> {
    run: &'a RunView,
    job: &'a JobView,
    journal: &'a [Recorded],
    acts: &'a [RunActView],
}

/// Shows the run.
pub async fn run(app: &App, id: JobId) -> Outcome {
    let mill = app.open_existing().await?;
    let view = mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    let run = mill.run(id).await?.ok_or(tidemill::Error::RunUnknown { id })?;
    let (journal, now) = (mill.journal(id).await?, mill.now().await?);
    let (acts, undoing) = (mill.run_acts(id).await?, mill.flow(FlowId(id.0)).await?);
    mill.close().await;
    if app.json {
        output::json(&Shown { run: &run, job: &view, journal: &journal, acts: &acts });
        return Ok(Exit::Ok);
    }
    let facts = [
        ("id", id.to_string()),
        ("kind", view.job.kind.clone()),
        ("state", word(&run, view.state).to_owned()),
        ("began", format!("{:.3}  ({})", run.began_at, relative(run.began_at, now))),
        ("version", run.version.clone()),
        ("waits for", waits(&run, view.state)),
        (
            "until",
            run.waits.as_ref().and_then(|w| w.until).map(|at| at.to_string()).unwrap_or_default(),
        ),
        ("shows", run.state.as_ref().map(|state| state.as_str().to_owned()).unwrap_or_default()),
        ("error", view.error.clone().unwrap_or_default()),
        (
            "undone by",
            undoing
                .map(|flow| format!("the flow {id}, which is {}", flow.head.state.word()))
                .unwrap_or_default(),
        ),
    ];
    for (name, value) in facts.into_iter().filter(|(_, value)| !value.is_empty()) {
        line(format!("{} {value}", Paint::stdout().dim(&format!("{name:<10}"))));
    }
    if !journal.is_empty() || !acts.is_empty() {
        timeline(&journal, &acts, now);
    }
    if word(&run, view.state) == "parked" {
        advice::parked(app, id, run.parked.map(|parked| parked.code));
    }
    Ok(Exit::Ok)
}

/// What it did and what was done with it, by time.
fn timeline(journal: &[Recorded], acts: &[RunActView], now: Timestamp) {
    line("");
    let mut rows: Vec<(Timestamp, [Cell; 6])> = Vec::new();
    for Recorded { at, entry, .. } in journal {
        let (what, took, tries, with) = told(entry);
        rows.push((
            *at,
            [
                Cell::new(entry.key()),
                Cell::new(what),
                took.map_or_else(|| Cell::new(""), |took| Cell::new(short(took))),
                tries.map_or_else(|| Cell::new(""), Cell::new),
                Cell::new(relative(*at, now)),
                Cell::new(cut(&with)),
            ],
        ));
    }
    for act in acts {
        let step = act.step.clone().unwrap_or_default();
        let (what, when) = (format!("{} by {}", act.act.word(), act.by), relative(act.at, now));
        let cells = [step, what, String::new(), String::new(), when, with_of(act)];
        rows.push((act.at, cells.map(Cell::new)));
    }
    // What was written at the same moment stays in its order, and what was done to it comes after.
    rows.sort_by_key(|(at, _)| *at);
    let mut table = output::table(&["STEP", "WHAT", "TOOK", "TRIES", "WRITTEN", "WITH"]);
    for (_, cells) in rows {
        table.add_row(cells);
    }
    output::show(&table);
}

/// Why somebody acted, and what it changed.
fn with_of(act: &RunActView) -> String {
    let text = |ending: &Ending| match ending {
        Ending::Ok(output) => cut(&output::shown(output.as_str())),
        Ending::Aside { bytes, .. } => format!("{bytes} bytes"),
        Ending::Err { message, .. } => format!("failure: {}", cut(message)),
    };
    let changed = match (&act.was, &act.became) {
        (Some(was), Some(became)) => format!("{} → {}", text(was), text(became)),
        (None, Some(became)) => format!("→ {}", text(became)),
        _ => String::new(),
    };
    let other = act.other.map(|id| id.to_string()).unwrap_or_default();
    let parts = [act.why.as_str(), other.as_str(), changed.as_str()];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("; ")
}

/// What an entry says, how long it took, how often it was tried, and with what.
fn told(entry: &Entry) -> (String, Option<Duration>, Option<u16>, String) {
    let word = entry.word().to_owned();
    match entry {
        Entry::Began(began) => {
            let undo = began.undo.as_ref().map(|undo| format!("undone by {}", undo.kind));
            (word, None, None, undo.unwrap_or_default())
        }
        Entry::Failed { tries, message, again_at, .. } => {
            (word, None, Some(*tries), format!("{message}; again at {again_at:.0}"))
        }
        Entry::Ended { tries, took_ms, ending, .. } => {
            let took = Some(Duration::from_millis(*took_ms));
            match ending {
                Ending::Ok(output) => {
                    (word, took, Some(*tries), output::shown(output.as_str()).into_owned())
                }
                Ending::Aside { bytes, .. } => (word, took, Some(*tries), format!("{bytes} bytes")),
                Ending::Err { message, .. } => {
                    ("failed for good".to_owned(), took, Some(*tries), message.clone())
                }
            }
        }
        Entry::Recorded { tries, output, .. } => {
            (word, None, Some(*tries), output::shown(output.as_str()).into_owned())
        }
        Entry::Slept { until, .. } => (word, None, None, format!("until {until:.0}")),
        Entry::Signalled { payload, .. } => {
            (word, None, None, output::shown(payload.as_str()).into_owned())
        }
        Entry::Started { kind, ids, .. } => {
            (word, None, None, format!("{} of kind {kind}", ids.len()))
        }
        Entry::Joined { ends, .. } => {
            let done = ends.iter().filter(|end| end.state == State::Done).count();
            (word, None, None, format!("{done} of {} done", ends.len()))
        }
        Entry::Noted { value, .. } => (word, None, None, value.as_str().to_owned()),
        Entry::Passed { number, .. } | Entry::Answered { number, .. } => {
            (word, None, None, format!("message {number}"))
        }
        Entry::Died { .. } => (word, None, None, "the run died of it".to_owned()),
        Entry::Woke { .. } | Entry::Sealed { .. } | Entry::Pivot { .. } => {
            (word, None, None, String::new())
        }
    }
}

/// Values are for a glance here; `--json` has them whole.
fn cut(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut letters = text.chars();
    let shown: String = letters.by_ref().take(SHOWN).collect();
    if letters.next().is_some() { format!("{shown}…") } else { shown }
}
