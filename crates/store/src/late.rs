//! Deadlines of jobs that wait: what a look at one comes to, whichever store it is in.
//!
//! A worker judges what it takes. This is for what nobody takes: a queue without workers, a pause, a limit. Nothing is
//! written that could be wrong, because a row only says when to look.

use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::job::deadline::Deadlines;
use tidemill_core::{Failure, RuleBook};

/// Jobs that are looked at in one transaction.
pub(crate) const LOOKS_MAX: usize = 500;

/// Jobs that are due and looked at in each go for those that were enqueued long before: no index tells which these are.
/// Behind so many others one is found when it was due for as long as it has.
pub(crate) const LATER_JOBS_MAX: i64 = 250;

/// How long until a job is looked at again that neither waits nor has ended.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Where a job stands.
pub(crate) enum Stand {
    Finished,
    Waits {
        due_at: Timestamp,
        has_begun: bool,
    },
    /// It runs, or is blocked.
    Elsewhere,
}

/// What a look comes to.
pub(crate) enum Look {
    Dies(Failure),
    /// It is looked at again then.
    Again(Timestamp),
    /// No deadline holds for it any more.
    Over,
}

impl Look {
    /// At a job of this kind.
    pub fn at(deadlines: Deadlines, kind: &str, stand: &Stand, now: Timestamp) -> Self {
        let next = match *stand {
            Stand::Finished => None,
            Stand::Waits { due_at, has_begun } => {
                if let Some(failure) = deadlines.expired(kind, has_begun, due_at, now) {
                    return Self::Dies(failure);
                }
                deadlines.over_at(has_begun, due_at)
            }
            Stand::Elsewhere => {
                let over = deadlines.over_at(false, now);
                over.and_then(|over| Some(over.max(now.checked_add(AGAIN_AFTER).ok()?)))
            }
        };
        next.map_or(Self::Over, Self::Again)
    }
}

/// A queue whose rules have deadlines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bounded {
    pub queue: String,
    /// What was due by then and has not started is late.
    pub start: Option<Timestamp>,
    /// What was enqueued by then, or replayed, is late.
    pub finish: Option<Timestamp>,
    /// The present, if something may be late that became due since `finish`: it was put off, or had a delay.
    pub due: Option<Timestamp>,
}

/// Whether any queue may have deadlines.
pub(crate) fn has_deadlines(book: &RuleBook) -> bool {
    book.iter().any(|(_, rules)| rules.start_within_ms.or(rules.finish_within_ms).is_some())
}

/// Those of these queues whose rules have deadlines.
pub(crate) fn bounded(book: &RuleBook, queues: Vec<String>, now: Timestamp) -> Vec<Bounded> {
    let before = |ms: Option<u64>| now.checked_sub(Duration::from_millis(ms?)).ok();
    let bounded = queues.into_iter().filter_map(|queue| {
        let rules = book.of(&queue)?;
        let (start, finish) = (before(rules.start_within_ms), before(rules.finish_within_ms));
        let due = finish.map(|_| now);
        start.or(finish).is_some().then_some(Bounded { queue, start, finish, due })
    });
    bounded.collect()
}
