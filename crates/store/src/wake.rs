//! Hints that something may have changed. Losing one delays, never loses.
//!
//! A hint made in this process reaches this process at once. The backend carries it to others:
//! Postgres by NOTIFY on a connection of its own, SQLite by watching the file.

use tidemill_core::JobId;
use tokio::sync::broadcast;

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
    /// A running job of this worker was called off: beat now to learn which.
    Cancel {
        /// Which worker.
        worker: tidemill_core::WorkerId,
    },
}

/// Where hints are heard in this process.
#[derive(Debug, Clone)]
pub struct Wake(broadcast::Sender<Hint>);

impl Default for Wake {
    fn default() -> Self {
        Self(broadcast::Sender::new(1024))
    }
}

impl Wake {
    /// Hears every hint from now on. A listener that falls behind should act as on `Any`.
    pub fn listen(&self) -> broadcast::Receiver<Hint> {
        self.0.subscribe()
    }

    /// Tells all listeners of this process.
    pub fn tell(&self, hint: Hint) {
        // No listener is no error: a hint is only for those who are there.
        let _ = self.0.send(hint);
    }
}
