//! Help for tests of code that uses Tidemill. No server is needed: `sqlite::memory:` and a
//! [`ManualClock`](crate::ManualClock) will do.
//!
//! ```
//! # use serde::{Deserialize, Serialize};
//! # use tidemill::{Clock, Enqueue, Fail, Job, ManualClock, Tidemill, testing};
//! # use std::time::Duration;
//! # #[derive(Serialize, Deserialize)] struct Remind { user: u64 }
//! # impl Job for Remind { const KIND: &'static str = "remind"; type Output = (); }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
//! let clock = ManualClock::default();
//! let mill = Tidemill::builder().clock(Clock::Manual(clock.clone())).open("sqlite::memory:").await?;
//! mill.enqueue(Enqueue::from(Remind { user: 7 }).delay(Duration::from_secs(86_400))).await?;
//!
//! testing::assert_enqueued::<Remind>(&mill, |job| job.user == 7).await;
//! let worker = || mill.worker().handle(|_: Remind, _cx| async { Ok(()) });
//! assert_eq!(testing::drain(worker()).await?.attempts, 0); // not due yet
//! clock.advance(Duration::from_secs(86_400));
//! assert_eq!(testing::drain(worker()).await?.done, 1);
//! # Ok(()) }
//! ```

mod workflow;

use tidemill_core::{Settlement, Token};
use tidemill_store::{ClaimedJob, JobFilter};

use crate::engine::Tidemill;
use crate::engine::heard::Heard;
use crate::engine::rules::look;
use crate::engine::service;
use crate::engine::services::{flows, runs};
use crate::error::{Error, Result};
use crate::worker::Worker;
use crate::worker::execute::{Lease, execute};
use crate::worker::job::{Enqueue, Job};
use crate::worker::settler::settle;
use crate::worker::wish::{Had, Lanes};

pub(crate) use workflow::{Crash, Strike};
pub use workflow::{crash_at_every_write, replay, skip_time};

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Attempts run.
    pub attempts: u64,
    /// Jobs done.
    pub done: u64,
    /// Attempts after which the job runs again.
    pub again: u64,
    /// Jobs dead.
    pub dead: u64,
    /// Jobs cancelled.
    pub cancelled: u64,
}

/// Runs every job that is due, one after another, until none is left; retries that are due at once
/// included. Nothing runs in the background.
pub async fn drain(worker: Worker) -> Result<Drained> {
    let shop = worker.into_shop()?;
    let mill = shop.boss.mill()?;
    shop.register().await?;
    let mut drained = Drained::default();
    let mut is_tended = false;
    loop {
        look(mill).await?;
        let known = mill.0.rules.known();
        let lanes = Lanes::of(&shop.options.all_queues(), &known, &Had::default());
        let claim = match mill.store().claim(shop.wish(&lanes, &known, 100)).await {
            Err(tidemill_store::Error::RulesOutdated) => continue,
            claim => claim?,
        };
        let Some(token) = claim.token else {
            // What has just ended may let a flow go on.
            if std::mem::replace(&mut is_tended, true) {
                break;
            }
            mill.0.store.rest_flows().await;
            runs::tend(mill).await?;
            flows::tend(mill).await?;
            continue;
        };
        is_tended = false;
        // The last of them waits for all the others.
        let since = Heard::now(claim.now);
        for claimed in claim.jobs {
            let slot = shop.groups[0].slots.take();
            let lease = Lease { worker: shop.worker(), token, since };
            let Some(item) = execute(&shop, mill, claimed, lease, slot).await else {
                continue;
            };
            drained.attempts += 1;
            let strike = shop.options.crash.as_ref().map_or(Strike::None, Crash::strikes);
            if strike == Strike::Before {
                continue;
            }
            match item.settlement {
                Settlement::Done { .. } => drained.done += 1,
                Settlement::Again { .. } | Settlement::Wait(_) => drained.again += 1,
                Settlement::Dead { .. } => drained.dead += 1,
                Settlement::Cancelled { .. } => drained.cancelled += 1,
            }
            settle(&shop, mill, &[item]).await;
        }
    }
    mill.store().deregister(shop.worker()).await?;
    Ok(drained)
}

/// Does now what running workers do every so often: gives up workers that beat no more, redrives
/// dead letters by their rules, fires the slots of schedules that are due, and forgets finished jobs
/// whose retention has passed.
pub async fn tend(mill: &Tidemill) -> Result<()> {
    service::turn_all(mill).await
}

/// Runs one attempt of a job inline, with all hooks, timeouts and checks, and touches no queue.
/// Answers what would be settled.
///
/// A workflow runs up to where it ends or waits, with its journal in memory: [`Settlement::Wait`] says for what. To
/// take it further, enqueue it, send what it waits for, and use [`drain`] or [`skip_time`]. What needs a lease in the
/// store (`cx.transaction`, `cx.settle_in`) is refused with `lease_lost`.
pub async fn run_inline(worker: Worker, job: impl Into<Enqueue>) -> Result<Settlement> {
    let shop = worker.inline().into_shop()?;
    let mill = shop.boss.mill()?;
    let new = mill.checked_alone(job.into())?;
    let (now, id) = (mill.0.clock.now(), new.id);
    let job = tidemill_core::Job {
        id: new.id,
        kind: new.kind,
        queue: new.queue,
        priority: new.priority,
        tenant: new.tenant,
        key: new.key,
        unique_key: new.unique.map(|u| u.key),
        payload: new.payload,
        options: new.options,
        created_at: now,
    };
    let claimed = ClaimedJob {
        job: job.into(),
        attempt: 1,
        lost: 0,
        due_at: now,
        gates: Vec::new(),
        has_run: false,
    };
    let slot = shop.groups[0].slots.take();
    let lease = Lease { worker: shop.worker(), token: Token(1), since: Heard::now(now) };
    let item = execute(&shop, mill, claimed, lease, slot).await;
    item.map(|item| item.settlement).ok_or(Error::LeaseLost { id })
}

/// The jobs of this kind that wait, in any queue, newest first.
pub async fn enqueued<J: Job>(mill: &Tidemill) -> Result<Vec<J>> {
    let filter = JobFilter { kind: Some(J::KIND.to_owned()), limit: 1000, ..JobFilter::default() };
    let jobs = mill.jobs(&filter).await?;
    let waiting = jobs.into_iter().filter(|view| !view.state.is_final());
    Ok(waiting.filter_map(|view| view.job.payload.read().ok()).collect())
}

/// Panics unless a job of this kind waits for which `matches` holds.
#[track_caller]
pub fn assert_enqueued<J: Job>(
    mill: &Tidemill,
    matches: impl Fn(&J) -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let jobs = enqueued::<J>(mill).await.unwrap_or_else(|error| panic!("{caller}: {error}"));
        let (kind, n) = (J::KIND, jobs.len());
        assert!(
            jobs.iter().any(matches),
            "{caller}: of {n} waiting jobs of kind {kind}, none fits"
        );
    }
}
