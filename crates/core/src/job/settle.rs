//! The rule of settling: from how an attempt ended to what is written for it.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::deadline::{Deadlines, NOT_IN_TIME};
use crate::job::outcome::{ErrorClass, Failure, Settlement, clean};
use crate::job::{Job, NewJob};
use crate::payload::Payload;
use crate::retry::Retry;
use crate::span::Span;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The handler returned a value and, perhaps, jobs that follow.
    Done {
        /// What it returned.
        output: Payload,
        /// What is enqueued with it.
        follow_ups: Vec<NewJob>,
    },
    /// The handler failed.
    Failed {
        /// What kind of failure.
        class: ErrorClass,
        /// What it said.
        message: String,
        /// A delay the handler (or the other side) asked for, before the policy's.
        retry_after: Option<Duration>,
    },
    /// The handler wants to be called again later; nothing failed.
    Snoozed(Duration),
    /// The handler, or somebody from outside, called it off.
    Cancelled(String),
    /// The worker stops and gives it back unspent.
    GivenBack,
}

/// An attempt, as far as the rule needs to know.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    /// The job.
    pub job: &'a Job,
    /// The number of this attempt; the first is 1.
    pub number: u16,
    /// The policy in force, see [`Retry::in_force`].
    pub retry: &'a Retry,
    /// By when it must have ended.
    pub deadlines: Deadlines,
}

/// What is written for an attempt that ended so, at `now`; `draw` is random in `0.0..1.0`.
pub fn settle(attempt: Attempt<'_>, ended: Ended, now: Timestamp, draw: f64) -> Settlement {
    let Attempt { job, number, retry, deadlines } = attempt;
    let unspent = number.saturating_sub(1);
    match ended {
        Ended::Done { output, follow_ups } => Settlement::Done { output, follow_ups },
        Ended::Snoozed(delay) => Settlement::Again { delay, spent: unspent, failure: None },
        Ended::Cancelled(reason) => Settlement::Cancelled { reason: clean(reason) },
        Ended::GivenBack => {
            Settlement::Again { delay: Duration::ZERO, spent: unspent, failure: None }
        }
        Ended::Failed { class, message, retry_after } => {
            let failure = Failure::new(&job.kind, class, message);
            if is_last(class, number, retry) {
                return Settlement::Dead { failure };
            }
            let delay = retry_after.unwrap_or_else(|| retry.backoff.delay(job.id, number, draw));
            if let Some(within) = deadlines.too_short_for(delay, now) {
                return Settlement::Dead { failure: too_late(failure, within) };
            }
            let spent = if class == ErrorClass::RateLimited { unspent } else { number };
            Settlement::Again { delay, spent, failure: Some(failure) }
        }
    }
}

fn is_last(class: ErrorClass, number: u16, retry: &Retry) -> bool {
    match class {
        ErrorClass::RateLimited | ErrorClass::Lost => false,
        ErrorClass::Transient => number >= retry.attempts_max,
        ErrorClass::Ambiguous => number >= retry.ambiguous_max.min(retry.attempts_max),
        _ => class.is_final(),
    }
}

/// The last failure of a job that had no time for another attempt. It is grouped with those that died of the same.
fn too_late(failure: Failure, within: Duration) -> Failure {
    if failure.message.starts_with(NOT_IN_TIME) {
        return failure;
    }
    let message = format!(
        "{}; there was no time for another attempt before its deadline to finish, {} after its enqueue",
        failure.message,
        Span(within)
    );
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::job::{Options, Priority};
    use crate::retry::Backoff;

    fn job(options: Options) -> Job {
        Job {
            id: JobId::new(),
            kind: "k".into(),
            queue: "q".into(),
            priority: Priority::Normal,
            tenant: None,
            key: None,
            unique_key: None,
            payload: Payload::null(),
            options,
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn after_failure(class: ErrorClass, number: u16, options: Options) -> Settlement {
        let retry = Retry::attempts(5).backoff(Backoff::Fixed { delay_ms: 1000 });
        let ended = Ended::Failed { class, message: "m".into(), retry_after: None };
        let job = job(options);
        let deadlines = Deadlines::of(&job, None);
        let attempt = Attempt { job: &job, number, retry: &retry, deadlines };
        settle(attempt, ended, Timestamp::UNIX_EPOCH, 0.5)
    }

    fn spent(settlement: &Settlement) -> Option<u16> {
        match settlement {
            Settlement::Again { spent, .. } => Some(*spent),
            _ => None,
        }
    }

    #[test]
    fn the_class_of_a_failure_decides() {
        use ErrorClass::*;
        for (class, number, expected) in [
            (Transient, 1, Some(1)),
            (Transient, 4, Some(4)),
            (Transient, 5, None),
            (Permanent, 1, None),
            (InDoubt, 1, None),
            (Ambiguous, 2, Some(2)),
            (Ambiguous, 3, None),
            (RateLimited, 1, Some(0)),
            (RateLimited, 99, Some(98)),
        ] {
            let settlement = after_failure(class, number, Options::default());
            assert_eq!(spent(&settlement), expected, "{class:?} {number}");
            assert_eq!(expected.is_none(), matches!(settlement, Settlement::Dead { .. }));
        }
    }

    #[test]
    fn a_retry_beyond_the_total_deadline_is_death() {
        let within = |ms| Options { finish_within_ms: Some(ms), ..Options::default() };
        assert_eq!(spent(&after_failure(ErrorClass::Transient, 1, within(1001))), Some(1));
        let Settlement::Dead { failure } = after_failure(ErrorClass::Transient, 1, within(1000))
        else {
            panic!("it cannot be tried again in time");
        };
        let said = "m; there was no time for another attempt before its deadline to finish, 1s after its enqueue";
        assert_eq!((failure.message.as_str(), failure.class), (said, ErrorClass::Transient));
        let plain = Failure::new("k", ErrorClass::Transient, "m");
        assert_eq!(failure.fingerprint, plain.fingerprint, "it died of that, deadline or not");
        // The last one of all has no other that could be late.
        let last = after_failure(ErrorClass::Transient, 5, within(1000));
        assert_eq!(last, Settlement::Dead { failure: plain });
    }

    #[test]
    fn what_did_not_fail_spends_nothing() {
        let (job, retry) = (job(Options::default()), Retry::default());
        let deadlines = Deadlines::of(&job, None);
        let attempt = Attempt { job: &job, number: 3, retry: &retry, deadlines };
        for ended in [Ended::GivenBack, Ended::Snoozed(Duration::from_secs(9))] {
            let settlement = settle(attempt, ended, Timestamp::UNIX_EPOCH, 0.5);
            assert_eq!(spent(&settlement), Some(2));
        }
    }
}
