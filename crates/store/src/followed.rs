//! Jobs whose streams somebody follows, here or in another process: whoever adds to one says so.
//!
//! A stream that nobody follows costs no hint. Who begins to follow one may miss what is written before the word of
//! it has reached the writer; so the writer remembers for a while what it wrote, and says so then.
//! Bounded and short-lived: whoever follows says it again, and looks for himself as well.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::JobId;

/// Those who follow say so again every twenty seconds.
const REMEMBERED_FOR: Duration = Duration::from_mins(1);
const JOBS_MAX: usize = 100_000;

/// The jobs whose streams are followed, and those that were written to lately.
#[derive(Debug, Default)]
pub(crate) struct Followed(Mutex<Jobs>);

#[derive(Debug, Default)]
struct Jobs {
    followed: HashMap<JobId, Instant>,
    written: HashMap<JobId, Instant>,
}

impl Followed {
    /// Notes that somebody follows these. Answers those that were written to lately.
    pub fn follow(&self, ids: &[JobId]) -> Vec<JobId> {
        let (mut jobs, now) = (self.lock(), Instant::now());
        for id in ids {
            note(&mut jobs.followed, *id, now);
        }
        let lately = |id: &&JobId| jobs.written.get(*id).is_some_and(|until| *until > now);
        ids.iter().filter(lately).copied().collect()
    }

    /// Notes that these were written to. Answers those that are followed.
    pub fn written(&self, ids: impl Iterator<Item = JobId>) -> Vec<JobId> {
        let (mut jobs, now) = (self.lock(), Instant::now());
        let mut followed = Vec::new();
        for id in ids {
            note(&mut jobs.written, id, now);
            if is_followed(&jobs, id, now) {
                followed.push(id);
            }
        }
        followed
    }

    /// Whether somebody follows the stream of this job.
    pub fn has(&self, id: JobId) -> bool {
        is_followed(&self.lock(), id, Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_followed(jobs: &Jobs, id: JobId, now: Instant) -> bool {
    jobs.followed.get(&id).is_some_and(|until| *until > now)
}

fn note(jobs: &mut HashMap<JobId, Instant>, id: JobId, now: Instant) {
    if jobs.len() >= JOBS_MAX && !jobs.contains_key(&id) {
        jobs.retain(|_, until| *until > now);
    }
    if jobs.len() < JOBS_MAX {
        jobs.insert(id, now + REMEMBERED_FOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_first_the_follower_is_told() {
        let (followed, id, other) = (Followed::default(), JobId::new(), JobId::new());
        assert!(followed.written([id].into_iter()).is_empty(), "nobody follows it");
        assert_eq!(followed.follow(&[other, id]), [id], "it was written to before");
        assert_eq!(followed.written([id, JobId::new()].into_iter()), [id]);
        assert!(followed.has(other) && !followed.has(JobId::new()));
    }

    #[test]
    fn they_are_bounded() {
        let followed = Followed::default();
        let ids: Vec<JobId> = (0..=JOBS_MAX).map(|_| JobId::new()).collect();
        followed.follow(&ids);
        assert_eq!(followed.lock().followed.len(), JOBS_MAX);
    }
}
