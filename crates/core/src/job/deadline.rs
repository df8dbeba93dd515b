//! Deadlines: by when a job must start and finish, and what becomes of one that did not.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::outcome::{ErrorClass, Failure};
use crate::job::{Job, Options};
use crate::queue::QueueRules;

/// What is said of a job that its total deadline ended.
pub const NOT_IN_TIME: &str = "it did not finish within its deadline";
const NOT_STARTED: &str = "it did not start within its deadline";

/// By when a job must start and finish: by its own wish, else by that of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// When it was enqueued, or replayed.
    from: Timestamp,
    start_within_ms: Option<u64>,
    finish_within_ms: Option<u64>,
}

impl Deadlines {
    /// Those of a job in a queue of these rules.
    pub fn of(job: &Job, rules: Option<&QueueRules>) -> Self {
        Self::new(job.created_at, &job.options, rules)
    }

    /// The same, of one that is known by what counts alone.
    pub fn new(created_at: Timestamp, own: &Options, rules: Option<&QueueRules>) -> Self {
        Self {
            from: own.replayed_at.map_or(created_at, |at| at.max(created_at)),
            start_within_ms: own.start_within_ms.or(rules.and_then(|r| r.start_within_ms)),
            finish_within_ms: own.finish_within_ms.or(rules.and_then(|r| r.finish_within_ms)),
        }
    }

    /// When it must have finished, if it must.
    pub fn finish_by(self) -> Option<Timestamp> {
        let within = Duration::from_millis(self.finish_within_ms?);
        self.from.checked_add(within).ok()
    }

    /// When it must have started, if it must, being due at `due_at`.
    pub fn start_by(self, due_at: Timestamp) -> Option<Timestamp> {
        let within = Duration::from_millis(self.start_within_ms?);
        self.from.max(due_at).checked_add(within).ok()
    }

    /// When the earlier of those is over that hold for a job that has begun, or has not.
    pub fn over_at(self, has_begun: bool, due_at: Timestamp) -> Option<Timestamp> {
        let start_by = self.start_by(due_at).filter(|_| !has_begun);
        start_by.into_iter().chain(self.finish_by()).min()
    }

    /// Why it must not start now, if so: its deadline to start or to finish has passed.
    pub fn expired(
        self,
        kind: &str,
        has_begun: bool,
        due_at: Timestamp,
        now: Timestamp,
    ) -> Option<Failure> {
        let is_over = |by: Option<Timestamp>| by.is_some_and(|by| by <= now);
        let message = if !has_begun && is_over(self.start_by(due_at)) {
            NOT_STARTED
        } else if is_over(self.finish_by()) {
            NOT_IN_TIME
        } else {
            return None;
        };
        Some(Failure::new(kind, ErrorClass::Expired, message))
    }

    /// A retry that could only start after the total deadline is not worth waiting for: answers that, if it is so.
    pub(super) fn too_short_for(self, delay: Duration, now: Timestamp) -> Option<Duration> {
        let ms = self.finish_within_ms?;
        let age_ms = now.duration_since(self.from).as_millis();
        (age_ms + delay.as_millis() as i128 >= i128::from(ms)).then(|| Duration::from_millis(ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_judged_before_the_start() {
        let start = Options { start_within_ms: Some(1000), ..Options::default() };
        let finish = Options { finish_within_ms: Some(1000), ..Options::default() };
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        for (options, has_begun, due, now, dead) in [
            (&start, false, 0, 999, false),
            (&start, false, 0, 1000, true),
            (&start, false, 5000, 5999, false),
            (&start, false, 5000, 6000, true),
            (&start, true, 0, 9000, false),
            (&finish, true, 0, 999, false),
            (&finish, true, 5000, 1000, true),
        ] {
            let deadlines = Deadlines::new(Timestamp::UNIX_EPOCH, options, None);
            let is_over = deadlines.over_at(has_begun, at(due)).is_some_and(|over| over <= at(now));
            let expired = deadlines.expired("k", has_begun, at(due), at(now)).is_some();
            assert_eq!((expired, is_over), (dead, dead), "{due} {now}");
        }
    }

    #[test]
    fn a_replayed_job_has_all_its_time_again() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let options = Options {
            finish_within_ms: Some(1000),
            replayed_at: Some(at(5000)),
            ..Options::default()
        };
        let deadlines = Deadlines::new(Timestamp::UNIX_EPOCH, &options, None);
        assert_eq!(deadlines.finish_by(), Some(at(6000)));
        let short = deadlines.too_short_for(Duration::from_millis(500), at(5500));
        assert_eq!(short, Some(Duration::from_secs(1)));
        assert_eq!(deadlines.too_short_for(Duration::from_millis(499), at(5500)), None);
    }

    #[test]
    fn a_deadline_beyond_all_time_is_none() {
        let options = Options { finish_within_ms: Some(u64::MAX), ..Options::default() };
        let deadlines = Deadlines::new(Timestamp::UNIX_EPOCH, &options, None);
        assert_eq!(deadlines.over_at(false, Timestamp::MAX), None);
    }
}
