//! Help for tests of workflows: time that is skipped, and crashes at every write.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use tidemill::{Clock, Context, Enqueue, Fail, Job, ManualClock, State, Tidemill, testing};
//! # use std::time::Duration;
//! # #[derive(Serialize, Deserialize)] struct Onboard { user: u64 }
//! # impl Job for Onboard { const KIND: &'static str = "onboard"; type Output = String; }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
//! async fn onboard(job: Onboard, cx: Context) -> Result<String, Fail> {
//!     cx.step("welcome").run(|_| async { Ok(()) }).await?;
//!     cx.sleep(Duration::from_hours(24)).await?;
//!     cx.step("tips").run(|_| async { Ok(format!("tips for {}", job.user)) }).await
//! }
//!
//! let clock = ManualClock::default();
//! let mill = Tidemill::builder().clock(Clock::Manual(clock.clone())).open("sqlite::memory:").await?;
//! let worker = || mill.worker().handle(onboard);
//! let start = async || Ok(mill.enqueue(Onboard { user: 7 }).await?.id());
//! for view in testing::crash_at_every_write(&mill, &clock, worker, start).await? {
//!     assert_eq!(view.output.unwrap().as_str(), "\"tips for 7\"");
//! }
//! # Ok(()) }
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidemill_core::{JobId, ManualClock, State};
use tidemill_store::{JobFilter, JobView};

use crate::engine::Tidemill;
use crate::engine::workflow::history::History;
use crate::error::Result;
use crate::testing::{Drained, drain};
use crate::worker::replay::Replayed;
use crate::worker::{self, Worker};

/// Crash points that are tried, at most: a run with more writes than this is not tried further.
const CRASHES_MAX: usize = 10_000;

/// A process that dies at one of its writes.
#[derive(Debug, Clone)]
pub(crate) struct Crash {
    left: Arc<AtomicUsize>,
    /// The write is made before it dies, and not heard of.
    after: bool,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    /// It is made and heard of.
    None,
    /// It is not made.
    Before,
    /// It is made, and nobody hears of it.
    After,
}

impl Crash {
    fn new(at: usize, after: bool) -> Self {
        Self { left: Arc::new(AtomicUsize::new(at)), after }
    }

    /// What becomes of the next write. Once it has struck, nothing is written any more.
    pub(crate) fn strikes(&self) -> Strike {
        let count =
            |left: usize| Some(if left == usize::MAX { left } else { left.wrapping_sub(1) });
        match self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) {
            Ok(usize::MAX) => Strike::Before,
            Ok(0) if self.after => Strike::After,
            Ok(0) => Strike::Before,
            _ => Strike::None,
        }
    }

    /// Whether it has struck.
    pub(crate) fn has_struck(&self) -> bool {
        self.left.load(Ordering::SeqCst) == usize::MAX
    }
}

/// Runs everything that is due and, when nothing is, puts the clock forward to when something will be, until nothing
/// waits for the clock any more. Days pass in no time.
pub async fn skip_time(
    mill: &Tidemill,
    clock: &ManualClock,
    worker: impl Fn() -> Worker,
) -> Result<Drained> {
    let mut all = Drained::default();
    loop {
        let drained = drain(worker()).await?;
        all.attempts += drained.attempts;
        all.done += drained.done;
        all.again += drained.again;
        all.dead += drained.dead;
        all.cancelled += drained.cancelled;
        if !put_forward(mill, clock).await? {
            return Ok(all);
        }
    }
}

/// Leads the handlers of a worker along a recorded [`History`], in no time: no body of a step runs, and the store is
/// not asked. Kept histories of real runs show on every change of a workflow whether runs under way would follow it.
///
/// ```
/// # use tidemill::{Context, Fail, History, Job, Tidemill, testing};
/// # #[derive(serde::Serialize, serde::Deserialize)] struct Onboard { user: u64 }
/// # impl Job for Onboard { const KIND: &'static str = "onboard"; type Output = String; }
/// # async fn onboard(job: Onboard, cx: Context) -> Result<String, Fail> {
/// #     cx.step("welcome").run(|_| async { Ok(()) }).await?;
/// #     cx.step("tips").run(|_| async { Ok(format!("tips for {}", job.user)) }).await
/// # }
/// # async fn check(mill: Tidemill) -> Result<(), Box<dyn std::error::Error>> {
/// let history: History = serde_json::from_str(&std::fs::read_to_string("tests/onboard.json")?)?;
/// let replayed = testing::replay(mill.worker().handle(onboard), &history).await?;
/// assert!(replayed.follows(), "{replayed}");
/// # Ok(()) }
/// ```
pub async fn replay(worker: Worker, history: &History) -> Result<Replayed> {
    worker::replay::replay(&worker.into_shop()?, history).await
}

/// Runs a workflow again and again, and lets its process die at each single write: once before the write, once after.
/// Each time it goes on in another process, and time is skipped. `start` enqueues it, and sends what it waits for.
/// Answers what became of each run: all should be the same.
pub async fn crash_at_every_write(
    mill: &Tidemill,
    clock: &ManualClock,
    worker: impl Fn() -> Worker,
    start: impl AsyncFn() -> Result<JobId>,
) -> Result<Vec<JobView>> {
    let mut views = Vec::new();
    for after in [false, true] {
        for at in 0..CRASHES_MAX {
            let id = start().await?;
            let crash = Crash::new(at, after);
            drain(worker().crash(crash.clone())).await?;
            while !crash.has_struck() && put_forward(mill, clock).await? {
                drain(worker().crash(crash.clone())).await?;
            }
            skip_time(mill, clock, &worker).await?;
            views.extend(mill.job(id).await?);
            if !crash.has_struck() {
                break;
            }
        }
    }
    Ok(views)
}

/// Puts the clock forward to when something is due; `false`: nothing waits for it.
async fn put_forward(mill: &Tidemill, clock: &ManualClock) -> Result<bool> {
    let filter = JobFilter { state: Some(State::Scheduled), limit: 1000, ..JobFilter::default() };
    let waiting = mill.jobs(&filter).await?;
    let Some(due) = waiting.iter().filter_map(|view| view.due_at).min() else { return Ok(false) };
    clock.set(due.max(clock.now()));
    Ok(true)
}
