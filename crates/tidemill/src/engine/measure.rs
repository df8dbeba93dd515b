//! What this process measures of its work, and what it shows of the store.
//!
//! Recording costs a few additions: jobs that stand together in a batch and are of one queue and kind find their
//! series once, and what an attempt adds to is handed to it with its job. There is no recorder to install and nothing
//! global: each [`Tidemill`] measures for itself (docs/decisions/0023 says why). What is of the store is looked at
//! only when somebody wants to see it (`overview.rs`).

pub mod glance;
pub mod names;
pub mod overview;
mod page;
mod passing;
pub(crate) mod series;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::measure::{Count, Histogram, SHORT_TIMES_US, SIZES, TIMES_US};
use tidemill_core::{NewJob, Settlement};
use tidemill_store::schedule::Fired;
use tidemill_store::{ClaimedJob, Receipt, SettleItem, Settled};

use crate::engine::telemetry::Counts;
use crate::engine::webhook::Sent;
use overview::Overviews;
use passing::Passing;
use series::{AllSeries, Series, Sorts};

/// What this process has measured.
#[derive(Debug)]
pub(crate) struct Measures {
    pub(crate) series: AllSeries,
    /// Jobs of lost workers that were made ready again, and those that are dead for it.
    pub(crate) rescued: Count,
    pub(crate) poisoned: Count,
    /// Chunks of streams that were refused, for the lease was lost.
    pub(crate) streams_stale: Count,
    /// Workers that were given up here.
    pub(crate) lost: Count,
    /// Finished jobs that passed their retention.
    pub(crate) purged: Count,
    /// Tries to deliver webhooks, by what came of them.
    pub(crate) webhooks: [Count; Sent::ALL.len()],
    /// How long endpoints took to answer.
    pub(crate) webhook_times: Histogram,
    /// How many attempts were settled together.
    settles: Histogram,
    /// How long after its time a slot was fired.
    pub(crate) slots_late: Histogram,
    /// How late the runtime wakes a task that sleeps.
    pub(crate) wakes_late: Histogram,
    pub(crate) overviews: Arc<Overviews>,
    passing: Mutex<Passing>,
}

impl Default for Measures {
    fn default() -> Self {
        Self {
            series: AllSeries::default(),
            rescued: Count::default(),
            poisoned: Count::default(),
            streams_stale: Count::default(),
            lost: Count::default(),
            purged: Count::default(),
            webhooks: Default::default(),
            webhook_times: Histogram::new(TIMES_US),
            settles: Histogram::new(SIZES),
            slots_late: Histogram::new(TIMES_US),
            wakes_late: Histogram::new(SHORT_TIMES_US),
            overviews: Arc::default(),
            passing: Mutex::default(),
        }
    }
}

impl Measures {
    /// The series of jobs that are to be enqueued.
    pub(crate) fn sorts<'a>(&self, jobs: impl Iterator<Item = &'a NewJob>) -> Sorts {
        self.series.sorts(jobs.map(|job| (job.queue.as_str(), job.kind.as_str())))
    }

    /// Jobs were written, or stand for others.
    pub(crate) fn enqueued(sorts: &Sorts, receipts: &[Receipt]) {
        for (series, receipts) in sorts.parts(receipts) {
            let new = receipts.iter().filter(|receipt| receipt.is_new()).count();
            series.enqueued.add(new as u64);
            series.duplicates.add((receipts.len() - new) as u64);
        }
    }

    /// All of these jobs are new.
    pub(crate) fn enqueued_all(&self, jobs: &[NewJob]) {
        let sorts = self.sorts(jobs.iter());
        sorts.parts(jobs).for_each(|(series, jobs)| series.enqueued.add(jobs.len() as u64));
    }

    /// Jobs were claimed. Answers their series, for those who run them.
    pub(crate) fn claimed(&self, jobs: &[ClaimedJob]) -> Sorts {
        let sorts = jobs.iter().map(|claimed| (&*claimed.job.queue, &*claimed.job.kind));
        let sorts = self.series.sorts(sorts);
        sorts.parts(jobs).for_each(|(series, jobs)| series.claimed.add(jobs.len() as u64));
        sorts
    }

    /// Attempts were settled together.
    pub(crate) fn settled(&self, items: &[SettleItem], answers: &[Settled]) {
        self.settles.see(items.len() as u64);
        let sorts = items.iter().map(|item| (&*item.job.queue, &*item.job.kind));
        let sorts = self.series.sorts(sorts);
        for ((series, items), (_, answers)) in sorts.parts(items).zip(sorts.parts(answers)) {
            for (item, answer) in items.iter().zip(answers) {
                series.settled(*answer, &item.settlement);
                if let (Settled::Accepted, Settlement::Done { follow_ups, .. }) =
                    (answer, &item.settlement)
                {
                    self.enqueued_all(follow_ups);
                }
            }
        }
    }

    /// Slots were fired now; their jobs stand in their order.
    pub(crate) fn fired(&self, sorts: &Sorts, fired: &[Fired], now: Timestamp) {
        let mut jobs = sorts.each();
        for fired in fired {
            jobs.by_ref().take(fired.jobs as usize).for_each(|series| series.enqueued.add(1));
            let late = Duration::try_from(now.duration_since(fired.slot)).unwrap_or_default();
            self.slots_late.see_time(late);
        }
    }

    /// What was counted, all queues and kinds together.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts {
            rescued: self.rescued.read(),
            purged: self.purged.read(),
            stale: self.streams_stale.read(),
            ..Counts::default()
        };
        for (_, _, series) in self.series.all() {
            let Series { enqueued, duplicates, refused, claimed, done, .. } = &*series;
            counts.enqueued += enqueued.read();
            counts.duplicates += duplicates.read();
            counts.refused += refused.read();
            counts.claimed += claimed.read();
            counts.done += done.read();
            counts.again += series.retried.read() + series.put_off.read();
            counts.dead += series.dead.read();
            counts.cancelled += series.cancelled.read();
            counts.stale += series.stale.read();
        }
        counts
    }
}
