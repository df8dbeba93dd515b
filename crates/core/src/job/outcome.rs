//! What an attempt came to, and what the store is to write for it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dead::fingerprint;
use crate::job::NewJob;
use crate::limit::ERROR_BYTES_MAX;
use crate::payload::Payload;
use crate::workflow::{Parked, Waits};

/// What kind of failure it was; it decides whether and when the job runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ErrorClass {
    /// It may work next time: retried with backoff.
    Transient,
    /// It will never work: dead at once.
    Permanent,
    /// Nobody knows whether it took effect: retried on a smaller budget. Panics, timeouts.
    Ambiguous,
    /// It may have taken effect, and another attempt would not help: dead at once, and undone where that can be.
    InDoubt,
    /// The other side asked to wait: retried after that, no attempt spent.
    RateLimited,
    /// Its worker was lost: ready again, no attempt spent.
    Lost,
    /// It lost its worker three times: dead.
    Poison,
    /// It did not start or finish in time: dead.
    Expired,
}

impl ErrorClass {
    /// All classes.
    pub const ALL: [Self; 8] = [
        Self::Transient,
        Self::Permanent,
        Self::Ambiguous,
        Self::InDoubt,
        Self::RateLimited,
        Self::Lost,
        Self::Poison,
        Self::Expired,
    ];

    /// Its word, as the store keeps it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Ambiguous => "ambiguous",
            Self::InDoubt => "in_doubt",
            Self::RateLimited => "rate_limited",
            Self::Lost => "lost",
            Self::Poison => "poison",
            Self::Expired => "expired",
        }
    }

    /// Whether no other attempt follows, whatever the retry policy says.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Permanent | Self::InDoubt | Self::Poison | Self::Expired)
    }

    /// The class of a word the store kept; unknown ones are transient.
    pub fn of_word(word: &str) -> Self {
        Self::ALL.into_iter().find(|c| c.word() == word).unwrap_or(Self::Transient)
    }
}

/// A failure as it is kept: its class, its message, and the fingerprint that groups its like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub class: ErrorClass,
    /// What the handler said, cut at 16 KiB.
    pub message: String,
    /// Equal for failures of one kind of job that differ only in numbers and ids.
    pub fingerprint: String,
}

impl Failure {
    /// A failure of a job of this kind.
    pub fn new(kind: &str, class: ErrorClass, message: impl Into<String>) -> Self {
        let message = clean(message.into());
        let fingerprint = fingerprint(kind, class, &message);
        Self { class, message, fingerprint }
    }
}

/// Makes a message fit to keep: databases refuse NUL in text, and nobody reads a megabyte of stack.
pub fn clean(mut message: String) -> String {
    if message.contains('\0') {
        message = message.replace('\0', "\u{FFFD}");
    }
    if message.len() > ERROR_BYTES_MAX {
        let cut = (0..=ERROR_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at));
        message.truncate(cut.unwrap_or(0));
        message.push_str(" … (cut)");
    }
    message
}

/// How a run waits. No slot, thread or memory is held meanwhile.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// For what, and until when.
    pub waits: Waits,
    /// The number of the last piece of mail it has read.
    pub read: i64,
    /// Attempts spent before.
    pub spent: u16,
    /// Why it does not go on by itself, if so.
    pub parked: Option<Parked>,
}

impl Waiting {
    /// The number of the piece of mail that wakes it.
    pub fn wake_at(&self) -> Option<i64> {
        let pieces = i64::try_from(self.waits.mail_min).unwrap_or(i64::MAX);
        (pieces > 0 && self.parked.is_none()).then(|| self.read.saturating_add(pieces))
    }
}

/// What is written for an attempt that ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Settlement {
    /// Finished well.
    Done {
        /// What the handler returned.
        output: Payload,
        /// Jobs that are enqueued in the same transaction.
        follow_ups: Vec<NewJob>,
    },
    /// It runs again after `delay`.
    Again {
        /// How long it waits.
        delay: Duration,
        /// Attempts spent so far, this one included if it counts.
        spent: u16,
        /// Why; `None` when it was put off or given back, not failed.
        failure: Option<Failure>,
    },
    /// A run that waits: for the clock, or for mail.
    Wait(Box<Waiting>),
    /// Called off while it ran, or by its handler.
    Cancelled {
        /// Why.
        reason: String,
    },
    /// Gave up.
    Dead {
        /// Why.
        failure: Failure,
    },
}

impl Settlement {
    /// Jobs that are enqueued in the same transaction.
    pub fn follow_ups(&self) -> &[NewJob] {
        match self {
            Self::Done { follow_ups, .. } => follow_ups,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_made_fit_to_keep() {
        let failure = Failure::new("k", ErrorClass::Transient, "a\0b");
        assert_eq!(failure.message, "a\u{FFFD}b");
        let long = Failure::new("k", ErrorClass::Transient, "é".repeat(20_000));
        assert!(long.message.len() <= ERROR_BYTES_MAX + 16 && long.message.ends_with("(cut)"));
    }

    #[test]
    fn classes_survive_their_words() {
        for class in ErrorClass::ALL {
            assert_eq!(ErrorClass::of_word(class.word()), class);
        }
    }
}
