//! Why a task has no answer: a sentence for people, a stable code for programs.
//!
//! What a task itself returns, errors included, is its answer and none of this.

use std::time::Duration;

use thiserror::Error;

/// Why a queue did not take a task, or a task ended without an answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// As many tasks wait as may.
    #[error("the queue is full: {depth_max} tasks wait; use push to wait for room, or try later")]
    Full {
        /// How many may wait.
        depth_max: usize,
    },
    /// The queue takes no more tasks.
    #[error("the queue is closed and takes no more tasks")]
    Closed,
    /// The task was called off before it was done.
    #[error("the task was cancelled")]
    Cancelled,
    /// The task ran longer than it may.
    #[error("the task ran longer than its limit of {limit:?}")]
    TimedOut {
        /// How long it may run.
        limit: Duration,
    },
    /// The task panicked.
    #[error("the task panicked: {message}")]
    Panicked {
        /// What it said.
        message: Box<str>,
    },
    /// A rule that cannot be kept; the queue is as it was.
    #[error("{what}")]
    RuleInvalid {
        /// What is wrong, and what would be right.
        what: &'static str,
    },
    /// The queue was built where no tokio runtime is.
    #[error("there is no tokio runtime here; build the queue inside of one")]
    RuntimeMissing,
}

impl Error {
    /// The stable code of this error; `docs/errors/` has a page for each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Full { .. } => "queue_full",
            Self::Closed => "queue_closed",
            Self::Cancelled => "task_cancelled",
            Self::TimedOut { .. } => "task_timed_out",
            Self::Panicked { .. } => "task_panicked",
            Self::RuleInvalid { .. } => "rule_invalid",
            Self::RuntimeMissing => "runtime_missing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each queued task keeps room for its answer, so the error must not be what makes it large.
    #[test]
    fn error_is_not_larger_than_a_few_words() {
        assert!(size_of::<Error>() <= 24, "{}", size_of::<Error>());
    }
}
