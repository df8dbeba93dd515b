//! Jobs that somebody waits for, here or in another process: whoever settles one says so, and no further than it is
//! asked for.
//!
//! Bounded and short-lived: whoever waits asks again, and looks for himself as well.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::JobId;

const WATCH_FOR: Duration = Duration::from_mins(1);
const JOBS_MAX: usize = 100_000;

/// Where somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Where {
    /// Only in this process.
    Here,
    /// In another one, and maybe here too.
    Elsewhere,
}

/// The jobs that are watched.
#[derive(Default)]
pub(crate) struct Watched(Mutex<HashMap<JobId, (Instant, Where)>>);

impl Watched {
    /// Notes that somebody waits for this job.
    pub fn add(&self, id: JobId, place: Where) {
        let mut watched = self.lock();
        if watched.len() >= JOBS_MAX {
            watched.retain(|_, (until, _)| *until > Instant::now());
        }
        if watched.len() < JOBS_MAX {
            let one = watched.entry(id).or_insert((Instant::now(), place));
            *one = (Instant::now() + WATCH_FOR, one.1.max(place));
        }
    }

    /// Those of these jobs that somebody waits for, and where; they are watched no more.
    pub fn take(&self, ids: impl Iterator<Item = JobId>) -> Vec<(JobId, Where)> {
        let mut watched = self.lock();
        if watched.is_empty() {
            return Vec::new();
        }
        let taken = ids.filter_map(|id| {
            let (until, place) = watched.remove(&id)?;
            (until > Instant::now()).then_some((id, place))
        });
        taken.collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, (Instant, Where)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_job_is_told_once() {
        let (watched, id) = (Watched::default(), JobId::new());
        watched.add(id, Where::Here);
        assert_eq!(watched.take([JobId::new(), id].into_iter()), [(id, Where::Here)]);
        assert!(watched.take([id].into_iter()).is_empty());
    }

    #[test]
    fn who_waits_elsewhere_is_told_whoever_waits_here_too() {
        let (watched, id) = (Watched::default(), JobId::new());
        for place in [Where::Here, Where::Elsewhere, Where::Here] {
            watched.add(id, place);
        }
        assert_eq!(watched.take([id].into_iter()), [(id, Where::Elsewhere)]);
    }
}
