//! How deep a queue may get, what happens at its bound, and what its counters say.
//!
//! A queue counts what came into it and what went out of it; its depth is the difference. Bounds and
//! watermarks are judged by that number, never by counting rows.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::limit::NAME_BYTES_MAX;
use crate::name;
use crate::queue::{QueueRules, is_pattern, matches};

/// The largest bound a queue may have.
pub const DEPTH_MAX: u64 = 1_000_000_000_000;
/// The longest that an enqueue may wait for room.
pub const WAIT_MS_MAX: u64 = 600_000;
/// Rates are told over about this long.
pub const RATE_WINDOW: Duration = Duration::from_mins(1);
const RATE_WINDOW_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// When nothing is known yet of how fast a queue drains.
const RETRY_AFTER_UNKNOWN: Duration = Duration::from_secs(10);

/// What becomes of a job for which its queue has no room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overflow {
    /// It is refused, and told when to try again.
    #[default]
    Reject,
    /// Whoever enqueues waits for room, at most this long, and is refused then.
    Wait {
        /// How long at most.
        wait_ms: u64,
    },
    /// The jobs of the lowest band that have been due longest are cancelled to make room.
    DropOldest,
    /// It goes to another queue; refused when that is full too.
    Divert {
        /// The other queue.
        queue: String,
    },
}

impl Overflow {
    /// The word by which a store and the command line know it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Wait { .. } => "wait",
            Self::DropOldest => "drop_oldest",
            Self::Divert { .. } => "divert",
        }
    }

    /// How long to wait for room.
    pub fn wait_ms(&self) -> Option<u64> {
        if let Self::Wait { wait_ms } = self { Some(*wait_ms) } else { None }
    }

    /// The other queue.
    pub fn divert(&self) -> Option<&str> {
        if let Self::Divert { queue } = self { Some(queue) } else { None }
    }
}

/// Where a queue counts as too deep, and where as shallow enough again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watermarks {
    /// At this depth and beyond, producers should pause.
    pub high: u64,
    /// At this depth and below, they may go on.
    pub low: u64,
}

impl QueueRules {
    /// The watermarks in force: those that were set, else 80 % of the bound and five eighths of the
    /// high one, which is half of the bound.
    pub fn watermarks(&self) -> Option<Watermarks> {
        let of_bound = |depth_max: u64| (depth_max.saturating_mul(4) / 5).max(1);
        let high = self.high_water.or(self.depth_max.map(of_bound))?;
        Some(Watermarks { high, low: self.low_water.unwrap_or(high.saturating_mul(5) / 8) })
    }

    /// Refuses rules of depth that cannot be followed.
    pub(crate) fn check_depth(&self) -> Result<()> {
        match (self.depth_max, &self.overflow) {
            (Some(0), _) => refused("a bound of 0 would refuse every job; give at least 1"),
            (Some(max), _) if max > DEPTH_MAX => {
                refused(format!("a bound of {max} is more than {DEPTH_MAX}; leave it out for none"))
            }
            (None, overflow) if *overflow != Overflow::Reject => refused(format!(
                "{} has no meaning without a bound; set depth_max too",
                overflow.word()
            )),
            (_, Overflow::Wait { wait_ms: 0 }) => {
                refused("a wait of 0 ms does not wait; use reject, or give at least 1 ms")
            }
            (_, Overflow::Wait { wait_ms }) if *wait_ms > WAIT_MS_MAX => {
                refused(format!("a wait of {wait_ms} ms is longer than {WAIT_MS_MAX}, ten minutes"))
            }
            (_, Overflow::Divert { queue }) if is_pattern(queue) => {
                refused(format!("{queue:?} is a pattern; divert to one queue by its name"))
            }
            (_, Overflow::Divert { queue }) => {
                name::check("queue to divert to", queue, NAME_BYTES_MAX)?;
                name::check_own("queue to divert to", queue)
            }
            _ => Ok(()),
        }?;
        self.check_watermarks()
    }

    fn check_watermarks(&self) -> Result<()> {
        if self.low_water.is_some() && self.high_water.is_none() && self.depth_max.is_none() {
            return refused("a low watermark needs a high one, or a bound");
        }
        let Some(Watermarks { high, low }) = self.watermarks() else { return Ok(()) };
        match self.depth_max {
            _ if high == 0 => refused("a high watermark of 0 is always reached; give at least 1"),
            _ if high > DEPTH_MAX => {
                refused(format!("a high watermark of {high} is more than {DEPTH_MAX}"))
            }
            Some(max) if high > max => refused(format!(
                "the high watermark {high} is above the bound {max} and is never reached; \
                 give at most {max}"
            )),
            _ if low >= high => refused(format!(
                "the low watermark {low} is not below the high one {high}, so producers would stop \
                 and go at every job; leave a gap, such as {}",
                high / 2
            )),
            _ => Ok(()),
        }
    }

    /// Refuses to divert a queue, or the queues of a pattern, to themselves.
    pub(crate) fn check_divert(&self, queue: &str) -> Result<()> {
        match self.overflow.divert() {
            Some(other) if other == queue => {
                refused(format!("{queue:?} cannot be diverted to itself; name another queue"))
            }
            Some(other) if matches(queue, other) => refused(format!(
                "{queue:?} means {other:?} too, which would be diverted to itself; \
                 name a queue that the pattern does not mean"
            )),
            _ => Ok(()),
        }
    }
}

fn refused(reason: impl Into<String>) -> Result<()> {
    Err(Error::RuleInvalid { rule: "depth", reason: reason.into() })
}

/// What a queue had counted at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Jobs that had come, those that came back included.
    pub came: u64,
    /// Jobs that had gone: claimed, cancelled or moved.
    pub went: u64,
}

/// How fast a queue fills and drains.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rates {
    /// Jobs that come, per second.
    pub in_per_s: f64,
    /// Jobs that go, per second.
    pub out_per_s: f64,
}

impl Rates {
    /// The rates between a sample and now. A sample is taken only when something has changed, so one
    /// from long ago still held a minute ago. `None` when there is none, or no time has passed.
    pub fn between(sample: Option<Sample>, now: Sample) -> Option<Self> {
        let sample = sample?;
        let passed = Duration::try_from(now.at.duration_since(sample.at)).ok()?;
        // What comes at once is of no rate yet: it counts as if it had come within a second.
        let seconds = passed.clamp(RATE_WINDOW_MIN, RATE_WINDOW).as_secs_f64();
        let per_s = |from: u64, to: u64| to.saturating_sub(from) as f64 / seconds;
        (!passed.is_zero()).then(|| Self {
            in_per_s: per_s(sample.came, now.came),
            out_per_s: per_s(sample.went, now.went),
        })
    }
}

/// When to try again: as long as `excess` jobs need to go at this rate, within 1 s and 60 s.
pub fn retry_after(excess: u64, rates: Option<Rates>) -> Duration {
    let Some(rates) = rates else { return RETRY_AFTER_UNKNOWN };
    let seconds = excess.max(1) as f64 / rates.out_per_s;
    if seconds >= RETRY_AFTER_MAX.as_secs_f64() {
        return RETRY_AFTER_MAX;
    }
    Duration::from_secs_f64(seconds).max(RETRY_AFTER_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(depth_max: u64) -> QueueRules {
        QueueRules { depth_max: Some(depth_max), ..QueueRules::default() }
    }

    #[test]
    fn watermarks_follow_the_bound_unless_set() {
        let marks = |rules: QueueRules| rules.watermarks().map(|marks| (marks.high, marks.low));
        assert_eq!(marks(QueueRules::default()), None);
        assert_eq!(marks(bounded(1000)), Some((800, 500)));
        assert_eq!(marks(bounded(1)), Some((1, 0)));
        assert_eq!(marks(QueueRules { high_water: Some(80), ..bounded(1000) }), Some((80, 50)));
        let unbounded = QueueRules { depth_max: None, low_water: Some(3), ..bounded(1) };
        assert_eq!(marks(QueueRules { high_water: Some(9), ..unbounded }), Some((9, 3)));
    }

    #[test]
    fn bad_rules_of_depth_say_what_would_be_right() {
        let divert = |queue: &str| Overflow::Divert { queue: queue.to_owned() };
        let wait = |wait_ms| Overflow::Wait { wait_ms };
        for (rules, said) in [
            (bounded(0), "at least 1"),
            (bounded(DEPTH_MAX + 1), "leave it out"),
            (QueueRules { overflow: Overflow::DropOldest, ..QueueRules::default() }, "depth_max"),
            (QueueRules { overflow: wait(0), ..bounded(5) }, "use reject"),
            (QueueRules { overflow: wait(WAIT_MS_MAX + 1), ..bounded(5) }, "ten minutes"),
            (QueueRules { overflow: divert("b:*"), ..bounded(5) }, "by its name"),
            (QueueRules { overflow: divert("a"), ..bounded(5) }, "to itself"),
            (QueueRules { high_water: Some(6), ..bounded(5) }, "at most 5"),
            (QueueRules { high_water: Some(0), ..bounded(5) }, "at least 1"),
            (QueueRules { low_water: Some(4), ..bounded(5) }, "leave a gap"),
            (QueueRules { low_water: Some(4), ..QueueRules::default() }, "needs a high one"),
        ] {
            let error = rules.check_for("a").unwrap_err();
            assert_eq!(error.code(), "rule_invalid");
            assert!(error.to_string().contains(said), "{error}");
        }
        let empty = QueueRules { overflow: divert(""), ..bounded(5) };
        assert_eq!(empty.check_for("a").unwrap_err().code(), "name_empty");
        let within = QueueRules { overflow: divert("a:b"), ..bounded(5) };
        assert!(within.check_for("a:*").is_err() && within.check_for("a").is_ok());
    }

    #[test]
    fn rates_are_of_the_last_minute() {
        let at = |s: i64, came, went| Sample { at: Timestamp::from_second(s).unwrap(), came, went };
        let rates = |from, to| Rates::between(Some(from), to).map(|r| (r.in_per_s, r.out_per_s));
        assert_eq!(rates(at(0, 10, 0), at(10, 40, 20)), Some((3.0, 2.0)));
        assert_eq!(rates(at(0, 0, 0), at(600, 60, 120)), Some((1.0, 2.0)));
        let soon = Sample { at: Timestamp::from_millisecond(10).unwrap(), came: 60, went: 0 };
        assert_eq!(rates(at(0, 0, 0), soon), Some((60.0, 0.0)), "a burst is no 6,000 per second");
        assert_eq!(rates(at(5, 0, 0), at(5, 60, 120)), None);
        assert_eq!(Rates::between(None, at(5, 60, 120)), None);
    }

    #[test]
    fn retry_after_is_what_the_excess_needs_within_bounds() {
        let out = |out_per_s| Some(Rates { in_per_s: 0.0, out_per_s });
        for (excess, rates, seconds) in [
            (100, out(10.0), 10),
            (1, out(1000.0), 1),
            (0, out(0.5), 2),
            (1_000_000, out(10.0), 60),
            (1, out(0.0), 60),
            (1, None, 10),
        ] {
            assert_eq!(retry_after(excess, rates).as_secs(), seconds, "{excess} {rates:?}");
        }
    }
}
