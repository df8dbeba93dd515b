//! `tidemill workflows replay --with CMD`: what a new program makes of the runs under way, before it is deployed.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{Cell, Color};
use serde_json::json;
use tidemill::{JobId, Replayed, RunFilter, RunPage, RunReplay};

use super::place;
use super::program::{self, Said};
use crate::app::App;
use crate::duration::Span;
use crate::exit::{Exit, Outcome};
use crate::mill::Mill;
use crate::output::{self, count};

/// Which program, and which runs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this run, also if it has finished
    id: Option<JobId>,
    /// The new program: a command that runs its workers, started by `sh -c` with TIDEMILL_REPLAY and TIDEMILL_STORE,
    /// or TIDEMILL_SERVER and its token
    #[arg(long = "with", value_name = "CMD")]
    program: String,
    /// Only runs of this kind
    #[arg(long, conflicts_with = "id")]
    kind: Option<String>,
    /// How long it may take
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    timeout: Span,
}

/// Replays, and says what would become of which run.
pub async fn run(app: &App, args: Args) -> Outcome {
    let Args { id, program, kind, timeout } = args;
    let which = match (&id, &kind) {
        (Some(id), _) => id.to_string(),
        (None, Some(kind)) => format!("kind:{kind}"),
        (None, None) => "all".to_owned(),
    };
    let mill = app.open_existing().await?;
    let runs = under_way(&mill, id, kind).await?;
    let said = program::replay(app, &program, &which, timeout.0).await?;
    match id.and_then(|id| runs.get_key_value(&id)) {
        Some((id, kind)) => place::refuse_silence(app, &said, *id, kind)?,
        None => place::refuse_other(app, &mill, &said, &runs).await?,
    }
    mill.close().await;
    let strange: BTreeMap<JobId, String> =
        runs.into_iter().filter(|(_, kind)| !said.kinds.contains(kind)).collect();
    if app.json {
        for replay in &said.replays {
            output::json(&document(replay));
        }
        for (run, kind) in &strange {
            output::json(&json!({ "run": run, "kind": kind, "answer": "no_handler" }));
        }
    } else {
        show(&said, &strange);
    }
    let all_follow = said.replays.iter().all(|replay| replay.replayed.follows());
    Ok(if all_follow { Exit::Ok } else { Exit::Failed })
}

/// The runs that should be looked at, with their kinds.
async fn under_way(
    mill: &Mill,
    id: Option<JobId>,
    kind: Option<String>,
) -> Outcome<BTreeMap<JobId, String>> {
    if let Some(id) = id {
        return Ok(BTreeMap::from([(id, mill.history(id).await?.job.kind)]));
    }
    let mut found = BTreeMap::new();
    let mut page = RunFilter { kind, unfinished: true, limit: 1000, ..RunFilter::default() };
    loop {
        let RunPage { runs, next } = mill.runs_page(&page).await?;
        let waiting = runs.into_iter().filter(|head| head.run.waits.is_some());
        found.extend(waiting.map(|head| (head.run.job, head.kind)));
        if next.is_none() {
            return Ok(found);
        }
        page.before = next;
    }
}

/// What became of a run, with its answer in a word.
pub fn document(replay: &RunReplay) -> serde_json::Value {
    let RunReplay { run, kind, version, replayed } = replay;
    let (answer, told) = (word(replayed), replayed.to_string());
    json!({ "run": run, "kind": kind, "version": version, "answer": answer, "told": told, "replayed": replayed })
}

/// What became of a run, in a word.
pub fn word(replayed: &Replayed) -> &'static str {
    match replayed {
        Replayed::Differs { .. } => "differs",
        Replayed::Stops { .. } => "stops",
        _ => "follows",
    }
}

fn show(said: &Said, strange: &BTreeMap<JobId, String>) {
    let troubled: Vec<_> = said.replays.iter().filter(|of| !of.replayed.follows()).collect();
    if !troubled.is_empty() {
        let mut table = output::table(&["ID", "KIND", "VERSION", "ANSWER", "WHAT"]);
        for replay in &troubled {
            table.add_row([
                Cell::new(replay.run),
                Cell::new(&replay.kind),
                Cell::new(&replay.version),
                Cell::new(word(&replay.replayed)).fg(Color::Red),
                Cell::new(&replay.replayed),
            ]);
        }
        output::show(&table);
        output::line("");
    }
    let follow = said.replays.len() - troubled.len();
    let mut parts = vec![count(follow as u64, "run follows", "runs follow")];
    if !troubled.is_empty() {
        let runs = count(troubled.len() as u64, "run does not", "runs do not");
        parts.push(format!("{runs}: deploy this program and they are parked"));
    }
    if !strange.is_empty() {
        let kinds: BTreeSet<&str> = strange.values().map(String::as_str).collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        let runs = count(strange.len() as u64, "run is", "runs are");
        parts.push(format!("{runs} of kinds that it has no handler for ({})", kinds.join(", ")));
    }
    output::line(parts.join("; "));
}
