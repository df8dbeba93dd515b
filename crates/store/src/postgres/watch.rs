//! Jobs that somebody waits for, here or in another process: whoever settles one says so.
//!
//! Bounded and short-lived: whoever waits asks again, and looks for himself as well.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::JobId;

const WATCH_FOR: Duration = Duration::from_mins(1);
const JOBS_MAX: usize = 100_000;

/// The jobs that are watched.
#[derive(Default)]
pub(crate) struct Watched(Mutex<HashMap<JobId, Instant>>);

impl Watched {
    /// Notes that somebody waits for this job.
    pub fn add(&self, id: JobId) {
        let mut watched = self.lock();
        if watched.len() >= JOBS_MAX {
            watched.retain(|_, until| *until > Instant::now());
        }
        if watched.len() < JOBS_MAX {
            watched.insert(id, Instant::now() + WATCH_FOR);
        }
    }

    /// Those of these jobs that somebody waits for; they are watched no more.
    pub fn take(&self, ids: impl Iterator<Item = JobId>) -> Vec<JobId> {
        let mut watched = self.lock();
        if watched.is_empty() {
            return Vec::new();
        }
        ids.filter(|id| watched.remove(id).is_some_and(|until| until > Instant::now())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_job_is_told_once() {
        let (watched, id) = (Watched::default(), JobId::new());
        watched.add(id);
        assert_eq!(watched.take([JobId::new(), id].into_iter()), [id]);
        assert!(watched.take([id].into_iter()).is_empty());
    }
}
