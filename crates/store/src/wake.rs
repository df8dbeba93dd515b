//! Hints that something may have changed. Losing one delays, never loses.
//!
//! A hint made in this process reaches this process at once. The backend carries it to others:
//! Postgres by NOTIFY on a connection of its own, SQLite by watching the file.

use tidemill_core::JobId;
use tidemill_core::stream::Chunk;
use tokio::sync::{broadcast, watch};

/// Something may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Hint {
    /// Jobs may wait in this queue.
    Ready {
        /// Which queue.
        queue: String,
    },
    /// Anything may have changed; look at everything one cares for.
    Any,
    /// Somebody waits for this job to finish: whoever settles it should say so.
    Watch {
        /// Which job.
        id: JobId,
    },
    /// This job, which somebody watches, has finished.
    Finished {
        /// Which job.
        id: JobId,
    },
    /// Somebody follows the streams of these jobs, and waits for their ends: whoever adds to one, or settles it, should
    /// say so.
    Follow {
        /// Which jobs; at most [`FOLLOW_JOBS_MAX`] for it to reach other processes.
        ids: Vec<JobId>,
    },
    /// The stream of this job, which somebody follows, has more.
    Stream {
        /// Which job.
        id: JobId,
    },
    /// What the stream of this job does not keep.
    Ephemeral {
        /// Which job.
        id: JobId,
        /// Tells two apart that say the same.
        serial: u32,
        /// It.
        chunk: Box<Chunk>,
    },
    /// Somebody waits for room in this queue: whoever takes from it should say so.
    Wanted {
        /// Which queue.
        queue: String,
    },
    /// There may be room in this queue, for which somebody waits.
    Room {
        /// Which queue.
        queue: String,
    },
    /// This queue has crossed one of its watermarks.
    Watermark {
        /// Which queue.
        queue: String,
    },
    /// The rules of queues have changed.
    Rules,
    /// Something came for this run.
    Mail {
        /// Its job.
        id: JobId,
    },
    /// A run has ended that owes something.
    Runs,
    /// Something is to be done for flows that no job's end does.
    Flows,
    /// Schedules were set, changed or deleted: their next slots may be others.
    Schedules,
    /// A running job of this worker was called off: beat now to learn which.
    Cancel {
        /// Which worker.
        worker: tidemill_core::WorkerId,
    },
}

/// Jobs that one hint may say somebody follows: more do not fit where hints are passed on.
pub const FOLLOW_JOBS_MAX: usize = 200;

/// Where hints are heard in this process.
#[derive(Debug, Clone)]
pub struct Wake {
    hints: broadcast::Sender<Hint>,
    wanted: watch::Sender<bool>,
}

impl Default for Wake {
    fn default() -> Self {
        Self { hints: broadcast::Sender::new(1024), wanted: watch::Sender::new(false) }
    }
}

impl Wake {
    /// Hears every hint from now on. A listener that falls behind should act as on `Any`.
    pub fn listen(&self) -> broadcast::Receiver<Hint> {
        let heard = self.hints.subscribe();
        self.wanted.send_replace(true);
        heard
    }

    /// Waits until somebody in this process has ever listened. Before that, other processes need not
    /// be heard: a hint wakes every process that hears it, and one that only enqueues has no use for it.
    pub async fn wanted(&self) {
        // It cannot be closed while it is borrowed.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Tells all listeners of this process.
    pub fn tell(&self, hint: Hint) {
        // No listener is no error: a hint is only for those who are there.
        let _ = self.hints.send(hint);
    }
}
