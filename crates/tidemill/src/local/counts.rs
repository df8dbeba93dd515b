//! What a queue has counted, in the words of the engine's counts.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidemill_core::measure::{Seen, TIMES_US};

/// A queue at one moment: all figures are of the same moment, so that
/// `enqueued = queued + running + done + failed + cancelled + timed_out`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// Tasks that wait now.
    pub queued: usize,
    /// Tasks that run now.
    pub running: usize,
    /// Tasks that were taken, since the queue was built, as all below.
    pub enqueued: u64,
    /// Tasks that started.
    pub started: u64,
    /// Tasks that were not taken: the queue was full or closed.
    pub rejected: u64,
    /// Tasks that ran to their end.
    pub done: u64,
    /// Tasks that panicked, or returned an error to `attempt`.
    pub failed: u64,
    /// Tasks that were called off, waiting or running.
    pub cancelled: u64,
    /// Tasks that ran longer than they may.
    pub timed_out: u64,
    /// How long those that started had waited, together.
    pub wait_total: Duration,
    /// The longest of these waits.
    pub wait_max: Duration,
    /// How long those that ended had run, together.
    pub run_total: Duration,
    /// The longest of these runs.
    pub run_max: Duration,
}

impl Counts {
    /// How long a task waited on average; zero before the first started.
    pub fn wait_mean(&self) -> Duration {
        mean(self.wait_total, self.started)
    }

    /// How long a task ran on average; zero before the first ended.
    pub fn run_mean(&self) -> Duration {
        mean(self.run_total, self.started - self.running as u64)
    }
}

fn mean(total: Duration, n: u64) -> Duration {
    let nanos = total.as_nanos().checked_div(u128::from(n)).unwrap_or(0);
    Duration::from_nanos(nanos as u64)
}

/// Many durations: their sum, the largest, and how many were how long.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spans {
    total_ns: u64,
    max_ns: u64,
    /// One for each bound of times, and one for what is longer than all.
    buckets: [u64; TIMES_US.len() + 1],
}

impl Spans {
    pub(super) fn add(&mut self, span_ns: u64) {
        self.total_ns = self.total_ns.saturating_add(span_ns);
        self.max_ns = self.max_ns.max(span_ns);
        self.buckets[TIMES_US.partition_point(|bound| *bound < span_ns / 1000)] += 1;
    }

    pub(super) fn seen(&self) -> Seen {
        Seen { bounds: TIMES_US, counts: self.buckets.to_vec(), sum: self.total_ns / 1000 }
    }

    pub(super) fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    pub(super) fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }
}

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Done,
    Failed,
    Cancelled,
    TimedOut,
}

/// The counts while they grow, under the queue's lock.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) enqueued: u64,
    pub(super) started: u64,
    pub(super) rejected: u64,
    ended: [u64; 4],
    pub(super) waits: Spans,
    pub(super) runs: Spans,
}

impl Tally {
    pub(super) fn end(&mut self, ended: Ended) {
        self.ended[ended as usize] += 1;
    }

    pub(super) fn read(&self, queued: usize, running: usize) -> Counts {
        Counts {
            queued,
            running,
            enqueued: self.enqueued,
            started: self.started,
            rejected: self.rejected,
            done: self.ended[Ended::Done as usize],
            failed: self.ended[Ended::Failed as usize],
            cancelled: self.ended[Ended::Cancelled as usize],
            timed_out: self.ended[Ended::TimedOut as usize],
            wait_total: self.waits.total(),
            wait_max: self.waits.max(),
            run_total: self.runs.total(),
            run_max: self.runs.max(),
        }
    }
}
