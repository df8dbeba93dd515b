//! Hints that something may have changed. Losing one delays, never loses.
//!
//! A hint made in this process reaches this process at once. The backend carries it to others:
//! Postgres by NOTIFY on a connection of its own, SQLite by watching the file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::JobId;
use tidemill_core::stream::Chunk;
use tokio::sync::{Notify, broadcast, watch};

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
    expected: Arc<Expected>,
}

/// Whom a hint wakes that somebody waits for.
type Expected = Mutex<HashMap<Hint, Vec<Arc<Notify>>>>;

impl Default for Wake {
    fn default() -> Self {
        let (hints, wanted) = (broadcast::Sender::new(1024), watch::Sender::new(false));
        Self { hints, wanted, expected: Arc::default() }
    }
}

impl Wake {
    /// Hears every hint from now on. A listener that falls behind should act as on `Any`.
    pub fn listen(&self) -> broadcast::Receiver<Hint> {
        let heard = self.hints.subscribe();
        self.wanted.send_replace(true);
        heard
    }

    /// Waits for one of these hints from now on. However many wait, a hint wakes those alone who wait for it: who
    /// [listens](Self::listen) is woken by all of them, and a thousand that wait for the ends of as many jobs would be
    /// woken a million times.
    pub fn expect(&self, hints: impl IntoIterator<Item = Hint>) -> Expecting {
        let (told, hints) = (Arc::new(Notify::new()), Vec::from_iter(hints));
        let mut expected = locked(&self.expected);
        for hint in &hints {
            expected.entry(hint.clone()).or_default().push(Arc::clone(&told));
        }
        drop(expected);
        self.wanted.send_replace(true);
        Expecting { hints, told, expected: Arc::clone(&self.expected) }
    }

    /// Waits until somebody in this process has ever listened. Before that, other processes need not
    /// be heard: a hint wakes every process that hears it, and one that only enqueues has no use for it.
    pub async fn wanted(&self) {
        // It cannot be closed while it is borrowed.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Tells all listeners of this process.
    pub fn tell(&self, hint: Hint) {
        // Woken once the lock is free: whoever is woken may go at once, and wants it for that.
        self.waiting_for(&hint).iter().for_each(|waiting| waiting.notify_one());
        // No listener is no error: a hint is only for those who are there.
        let _ = self.hints.send(hint);
    }

    fn waiting_for(&self, hint: &Hint) -> Vec<Arc<Notify>> {
        let expected = locked(&self.expected);
        match hint {
            Hint::Any => expected.values().flatten().cloned().collect(),
            hint => expected.get(hint).cloned().unwrap_or_default(),
        }
    }
}

/// The place of one who waits for certain hints.
#[derive(Debug)]
pub struct Expecting {
    hints: Vec<Hint>,
    told: Arc<Notify>,
    expected: Arc<Expected>,
}

impl Expecting {
    /// Completes when one of them, or that anything may have changed, was told since this place was taken or this
    /// completed last.
    pub async fn come(&self) {
        self.told.notified().await;
    }
}

impl Drop for Expecting {
    fn drop(&mut self) {
        let mut expected = locked(&self.expected);
        for hint in &self.hints {
            if let Some(waiting) = expected.get_mut(hint) {
                waiting.retain(|told| !Arc::ptr_eq(told, &self.told));
                if waiting.is_empty() {
                    expected.remove(hint);
                }
            }
        }
    }
}

fn locked(expected: &Expected) -> MutexGuard<'_, HashMap<Hint, Vec<Arc<Notify>>>> {
    expected.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn finished() -> Hint {
        Hint::Finished { id: JobId::new() }
    }

    fn is_told(expecting: &Expecting) -> bool {
        pin!(expecting.come()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn who_waits_for_a_hint_is_told_of_no_other() {
        let (wake, ours, other) = (Wake::default(), finished(), finished());
        let mail = Hint::Mail { id: JobId::new() };
        let expecting = wake.expect([ours.clone(), mail.clone()]);
        wake.tell(other);
        assert!(!is_told(&expecting));
        for hint in [ours, mail, Hint::Any] {
            // Told before it is asked for: kept.
            wake.tell(hint);
            assert!(is_told(&expecting));
            assert!(!is_told(&expecting), "told once");
        }
    }

    #[test]
    fn all_who_wait_for_the_same_are_told_and_leave_nothing_behind() {
        let (wake, hint) = (Wake::default(), finished());
        let (one, other) = (wake.expect([hint.clone()]), wake.expect([hint.clone()]));
        drop(wake.expect([hint.clone()]));
        wake.tell(hint);
        assert!(is_told(&one) && is_told(&other));
        drop((one, other));
        assert!(locked(&wake.expected).is_empty());
    }
}
