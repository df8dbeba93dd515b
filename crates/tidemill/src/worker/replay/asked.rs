//! A program that is asked by its environment to replay instead of to work.
//!
//! Before a deploy the new program is started with `TIDEMILL_REPLAY`: its workers look at the runs under way, say as
//! JSON lines on stdout what becomes of them, and do not begin to work. `tidemill workflows replay` does so and reads
//! the lines. The schema is not brought up to date meanwhile.

use std::io::Write;

use serde::{Deserialize, Serialize};
use tidemill_core::Error as Invalid;

use super::{RunReplay, RunsToReplay};
use crate::error::Result;
use crate::worker::Worker;

/// The variable of the environment: `all`, `kind:NAME`, or the id of a run.
pub const VARIABLE: &str = "TIDEMILL_REPLAY";

/// What a program that was asked to replay says, a line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayLine {
    /// What became of a run.
    TidemillReplay(RunReplay),
    /// A worker has looked at all of its runs.
    TidemillReplayed {
        /// The kinds it knows.
        kinds: Vec<String>,
    },
}

/// Whether this process was asked to replay.
pub(crate) fn is_asked() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty())
}

/// What this process was asked to replay.
pub(crate) fn which() -> Result<Option<RunsToReplay>> {
    if !is_asked() {
        return Ok(None);
    }
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let unknown = || Invalid::WordUnknown {
        what: "wish for a replay (TIDEMILL_REPLAY)",
        value: asked.clone(),
        known: "all, kind:NAME, the id of a run",
    };
    Ok(Some(read(&asked).ok_or_else(unknown)?))
}

fn read(asked: &str) -> Option<RunsToReplay> {
    let all = RunsToReplay::default();
    if asked == "all" {
        return Some(all);
    }
    if let Some(kind) = asked.strip_prefix("kind:") {
        return Some(RunsToReplay { kind: Some(kind.to_owned()), ..all });
    }
    asked.parse().ok().map(|run| RunsToReplay { run: Some(run), ..all })
}

/// Replays, and says what came of it.
pub(crate) async fn answer(worker: Worker, which: &RunsToReplay) -> Result<()> {
    let kinds = worker.registry.kinds();
    let lines = worker.replay_runs(which).await?.into_iter().map(ReplayLine::TidemillReplay);
    let mut stdout = std::io::stdout().lock();
    for line in lines.chain([ReplayLine::TidemillReplayed { kinds }]) {
        // Whoever asked may have gone; then nobody wants to know.
        if let Ok(text) = serde_json::to_string(&line)
            && writeln!(stdout, "{text}").is_err()
        {
            break;
        }
    }
    let _ = stdout.flush();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_for_a_replay_is_read() {
        let id = tidemill_core::JobId::new();
        let kind = RunsToReplay { kind: Some("a:b".to_owned()), ..RunsToReplay::default() };
        let one = RunsToReplay { run: Some(id), ..RunsToReplay::default() };
        for (asked, wish) in [
            ("all".to_owned(), Some(RunsToReplay::default())),
            ("kind:a:b".to_owned(), Some(kind)),
            (id.to_string(), Some(one)),
            ("everything".to_owned(), None),
        ] {
            assert_eq!(read(&asked), wish, "{asked}");
        }
    }
}
