//! The part of a retry policy that a job names itself, and what holds for the rest.

use serde::{Deserialize, Serialize};

use super::{Backoff, Retry, check_attempts};
use crate::error::Result;

/// How a job is to be retried, as far as it says so. What it does not name comes from its kind, else from its queue,
/// else from the default.
///
/// ```
/// use tidemill_core::{OwnRetry, Retry};
/// let own = OwnRetry::attempts(3);
/// assert_eq!((own.attempts_max, own.backoff), (Some(3), None));
/// let whole = OwnRetry::from(Retry::attempts(3)); // with the usual backoff, whatever its kind says
/// assert!(whole.backoff.is_some());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OwnRetry {
    /// Attempts in all, the first included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u16>,
    /// Attempts after which an ambiguous failure (panic, timeout) is final.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ambiguous_max: Option<u16>,
    /// The delay between attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Backoff>,
}

impl From<Retry> for OwnRetry {
    fn from(Retry { attempts_max, ambiguous_max, backoff }: Retry) -> Self {
        Self {
            attempts_max: Some(attempts_max),
            ambiguous_max: Some(ambiguous_max),
            backoff: Some(backoff),
        }
    }
}

impl OwnRetry {
    /// This many attempts in all, and nothing else.
    pub fn attempts(attempts_max: u16) -> Self {
        Self { attempts_max: Some(attempts_max), ..Self::default() }
    }

    /// The same, with this delay between attempts.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff: Some(backoff), ..self }
    }

    /// The same, if it names anything.
    pub fn named(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }

    /// Refuses what cannot be followed.
    pub fn check(&self) -> Result<()> {
        check_attempts(self.attempts_max.into_iter().chain(self.ambiguous_max))?;
        self.backoff.as_ref().map_or(Ok(()), Backoff::check)
    }
}

impl Retry {
    /// The policy in force, part by part: the job's, else its kind's, else its queue's. A part that a kind leaves at
    /// its default is one that it says nothing of.
    pub fn in_force(own: Option<&OwnRetry>, of_kind: &Self, of_queue: Option<&Self>) -> Self {
        let usual = Self::default();
        let of_queue = of_queue.unwrap_or(&usual);
        let attempts = |own: Option<u16>, kind: u16, queue: u16, usual: u16| {
            own.unwrap_or(if kind == usual { queue } else { kind })
        };
        let (own_attempts, own_ambiguous, own_backoff) = own.map_or((None, None, None), |own| {
            (own.attempts_max, own.ambiguous_max, own.backoff.as_ref())
        });
        let is_usual = of_kind.backoff == usual.backoff;
        let of_others = if is_usual { &of_queue.backoff } else { &of_kind.backoff };
        Self {
            attempts_max: attempts(
                own_attempts,
                of_kind.attempts_max,
                of_queue.attempts_max,
                usual.attempts_max,
            ),
            ambiguous_max: attempts(
                own_ambiguous,
                of_kind.ambiguous_max,
                of_queue.ambiguous_max,
                usual.ambiguous_max,
            ),
            backoff: own_backoff.unwrap_or(of_others).clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(delay_ms: u64) -> Backoff {
        Backoff::Fixed { delay_ms }
    }

    #[test]
    fn what_a_job_does_not_name_comes_from_its_kind_then_its_queue() {
        let usual = Retry::default();
        let of_kind = Retry { ambiguous_max: 7, ..Retry::default() }.backoff(fixed(5));
        let of_queue = Retry::attempts(4).backoff(fixed(9));
        let own = OwnRetry { ambiguous_max: Some(2), ..OwnRetry::default() };
        for (own, kind, queue, attempts, ambiguous, backoff) in [
            (None, &usual, None, 20, 3, usual.backoff.clone()),
            (None, &usual, Some(&of_queue), 4, 3, fixed(9)),
            (None, &of_kind, Some(&of_queue), 4, 7, fixed(5)),
            (Some(OwnRetry::attempts(3)), &of_kind, None, 3, 7, fixed(5)),
            (Some(OwnRetry::attempts(3)), &usual, Some(&of_queue), 3, 3, fixed(9)),
            (
                Some(OwnRetry::default().backoff(fixed(1))),
                &of_kind,
                Some(&of_queue),
                4,
                7,
                fixed(1),
            ),
            (Some(own), &of_kind, Some(&of_queue), 4, 2, fixed(5)),
            (
                Some(Retry::default().into()),
                &of_kind,
                Some(&of_queue),
                20,
                3,
                usual.backoff.clone(),
            ),
        ] {
            let force = Retry::in_force(own.as_ref(), kind, queue);
            let expected = Retry { attempts_max: attempts, ambiguous_max: ambiguous, backoff };
            assert_eq!(force, expected, "{own:?} {kind:?} {queue:?}");
        }
    }

    #[test]
    fn only_what_is_named_is_written_and_a_whole_policy_stays_one() {
        let written = serde_json::to_string(&OwnRetry::attempts(3)).unwrap();
        assert_eq!(written, r#"{"attempts_max":3}"#);
        let whole = Retry::attempts(3).backoff(fixed(5));
        let read: OwnRetry = serde_json::from_str(&serde_json::to_string(&whole).unwrap()).unwrap();
        assert_eq!(read, OwnRetry::from(whole));
        assert_eq!(OwnRetry::default().named(), None);
    }

    #[test]
    fn a_part_that_cannot_be_followed_is_refused() {
        let none = Backoff::Custom { delays_ms: Vec::new() };
        for own in [
            OwnRetry::attempts(0),
            OwnRetry { ambiguous_max: Some(0), ..OwnRetry::default() },
            OwnRetry::default().backoff(none),
        ] {
            assert_eq!(own.check().unwrap_err().code(), "rule_invalid", "{own:?}");
        }
        assert_eq!(OwnRetry::default().check(), Ok(()));
    }
}
