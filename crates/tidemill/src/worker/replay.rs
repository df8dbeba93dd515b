//! Leads the handlers of a worker along recorded histories: what becomes of runs under way with this code?
//!
//! It is the replay and the driver of real attempts. Only where something new would be done, they stop: no body of a
//! step runs, and nothing is written. Hooks are left out. Code between durable calls does run, as at every attempt.

pub mod asked;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tidemill_core::workflow::{Diff, Parked, Waits};
use tidemill_core::{JobId, Payload, Token};
use tidemill_store::run::{PAGE_RUNS_MAX, RunFilter};

use crate::engine::workflow::history::History;
use crate::engine::workflow::page::RunPage;
use crate::error::{Error, Result};
use crate::worker::Worker;
use crate::worker::context::Context;
use crate::worker::durable::drive::{Driven, Stand, drive};
use crate::worker::middleware::Attempted;
use crate::worker::registry::panic_message;
use crate::worker::shop::{Live, Shop};

/// A replay does not wait for the world: code that has not come to its end by now waits for something that is not
/// durable.
const PATIENCE: Duration = Duration::from_secs(10);

/// What code made of a recorded history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replayed {
    /// It follows the journal to its end, and begins these steps then.
    Begins {
        /// Their keys.
        steps: Vec<String>,
    },
    /// It follows the journal to its end, and waits.
    Waits {
        /// For what.
        waits: Waits,
    },
    /// It follows the journal to its end, and returns this.
    Returns {
        /// What it returns.
        output: Payload,
    },
    /// It follows the journal to its end, and continues anew.
    Continues,
    /// It follows the journal to its end, and fails.
    Fails {
        /// What it says.
        message: String,
    },
    /// It is not the code of this journal: the run would be parked.
    Differs {
        /// How it differs.
        diff: Diff,
    },
    /// It does not come to the end of the journal, and does not differ from it so far: it fails, waits for something
    /// that is not durable, or cannot read what is kept.
    Stops {
        /// Why.
        why: String,
    },
}

impl Replayed {
    /// Whether the code follows the journal to its end.
    pub fn follows(&self) -> bool {
        !matches!(self, Self::Differs { .. } | Self::Stops { .. })
    }
}

impl std::fmt::Display for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Begins { steps } => write!(f, "follows, and begins {}", steps.join(", ")),
            Self::Waits { waits } => write!(f, "follows, and waits for {}", waits.what.join(", ")),
            Self::Returns { .. } => write!(f, "follows, and ends well"),
            Self::Continues => write!(f, "follows, and continues anew"),
            Self::Fails { message } => write!(f, "follows, and fails: {message}"),
            Self::Differs { diff } => diff.fmt(f),
            Self::Stops { why } => write!(f, "does not come to the end of the journal: {why}"),
        }
    }
}

/// A run, and what code made of its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReplay {
    /// Which run.
    pub run: JobId,
    /// Its kind.
    pub kind: String,
    /// The version of the code that it began with.
    pub version: String,
    /// What came of it.
    pub replayed: Replayed,
}

/// Which runs are looked at. Defaults to all that have not finished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunsToReplay {
    /// This one, also if it has finished.
    pub run: Option<JobId>,
    /// Those of this kind.
    pub kind: Option<String>,
}

impl Worker {
    /// Leads its handlers along the histories of runs under way, of the kinds it knows: before a deploy it says which
    /// of them the new code would not understand. It only reads, and runs no body of a step. The runs are those of
    /// the store, or of the server, that the worker would work for.
    ///
    /// ```
    /// # use tidemill::{RunsToReplay, Tidemill};
    /// # async fn check(mill: Tidemill, worker: tidemill::Worker) -> tidemill::Result<()> {
    /// for run in worker.replay_runs(&RunsToReplay::default()).await? {
    ///     assert!(run.replayed.follows(), "{}: {}", run.run, run.replayed);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn replay_runs(self, which: &RunsToReplay) -> Result<Vec<RunReplay>> {
        let shop = self.into_shop()?;
        let mut replays = Vec::new();
        if let Some(run) = which.run {
            replays.extend(replay_run(&shop, run).await?);
            return Ok(replays);
        }
        let mut page = RunFilter {
            kind: which.kind.clone(),
            unfinished: true,
            limit: PAGE_RUNS_MAX,
            ..RunFilter::default()
        };
        loop {
            let RunPage { runs, next } = shop.boss.runs_page(&page).await?;
            for head in runs.iter().filter(|head| shop.registry.get(&head.kind).is_some()) {
                replays.extend(replay_run(&shop, head.run.job).await?);
            }
            if next.is_none() {
                return Ok(replays);
            }
            page.before = next;
        }
    }
}

/// `None` for a run that is not of a kind that is known here, has not begun, or is forgotten.
async fn replay_run(shop: &Arc<Shop>, run: JobId) -> Result<Option<RunReplay>> {
    let history = shop.boss.history(run).await?;
    let known = history.filter(|history| shop.registry.get(&history.job.kind).is_some());
    let Some(history) = known else { return Ok(None) };
    let replayed = replay(shop, &history).await?;
    Ok(Some(RunReplay { run, kind: history.job.kind, version: history.version, replayed }))
}

/// Leads the handler of its kind along a history.
pub(crate) async fn replay(shop: &Arc<Shop>, history: &History) -> Result<Replayed> {
    let kind = &history.job.kind;
    let Some(handler) = shop.registry.get(kind) else {
        return Err(Error::HandlerMissing { kind: kind.clone() });
    };
    let (live, slot) = (Live::new(Token(0)), shop.groups[0].slots.take());
    let states = Arc::clone(&shop.states);
    let cx = Context::recorded(shop.boss.clone(), history, &live, states, slot);
    let work = AssertUnwindSafe((handler.run)(cx.clone())).catch_unwind();
    let driven = tokio::time::timeout(PATIENCE, drive(&cx, shop, work)).await;
    Ok(against_the_end(came(&cx, driven.ok()), history))
}

fn came(cx: &Context, driven: Option<Driven<std::thread::Result<Attempted>>>) -> Replayed {
    let stop = |why: String| Replayed::Stops { why };
    match driven {
        None => stop("it waits for something that is not durable".to_owned()),
        Some(Driven::Ended(Ok(attempted))) => ended(cx, attempted),
        Some(Driven::Ended(Err(panic))) => stop(panic_message(panic.as_ref())),
        Some(Driven::Stands(Stand::Begins(steps))) => Replayed::Begins { steps },
        Some(Driven::Stands(Stand::Waits(waits))) => Replayed::Waits { waits },
        Some(Driven::Stands(Stand::Renews)) => Replayed::Continues,
        Some(Driven::Stands(Stand::Parks(Parked { diff: Some(diff), .. }))) => {
            Replayed::Differs { diff }
        }
        Some(Driven::Stands(Stand::Parks(Parked { why, .. }))) => stop(why),
        Some(Driven::Fails(fail)) => stop(fail.to_string()),
        Some(Driven::Waits(_) | Driven::Told | Driven::Stale) => stop("it was stopped".to_owned()),
    }
}

/// What the end of a handler means, judged as that of a real attempt.
fn ended(cx: &Context, attempted: Attempted) -> Replayed {
    match (attempted, cx.run().left_out()) {
        (Ok(output), None) => Replayed::Returns { output },
        (Err(fail), None) => Replayed::Fails { message: fail.to_string() },
        (Err(fail), Some(_)) if !fail.is_final() => Replayed::Stops { why: fail.to_string() },
        (_, Some(diff)) => Replayed::Differs { diff },
    }
}

/// A run that is done ended with this journal: code that goes on, or returns something else, is another.
fn against_the_end(replayed: Replayed, history: &History) -> Replayed {
    let Some(output) = &history.output else { return replayed };
    let code = match &replayed {
        Replayed::Returns { output: now } if is_same(output, now) => return replayed,
        Replayed::Returns { output: now } => format!("returns {}", now.as_str()),
        Replayed::Begins { steps } => format!("begins {}", steps.join(", ")),
        Replayed::Waits { waits } => format!("waits for {}", waits.what.join(", ")),
        Replayed::Continues => "continues anew".to_owned(),
        Replayed::Fails { message } => format!("fails: {message}"),
        Replayed::Differs { .. } | Replayed::Stops { .. } => return replayed,
    };
    Replayed::Differs {
        diff: Diff { journal: format!("the end next, with {}", output.as_str()), code },
    }
}

/// The same value, however it is written.
fn is_same(a: &Payload, b: &Payload) -> bool {
    let value =
        |payload: &Payload| serde_json::from_str::<serde_json::Value>(payload.as_str()).ok();
    a == b || value(a).is_some_and(|a| Some(a) == value(b))
}
