//! When a failed job runs again: how often, and after how long.
//!
//! Full jitter by default: a crowd that failed together must not come back together. Every delay
//! is a pure function of the policy, the attempt and a number drawn by the caller.

pub mod own;
pub mod text;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::JobId;

/// More delays than this in a list are refused.
const DELAYS_MAX: usize = 100;

/// How a kind or a job is retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Retry {
    /// Attempts in all, the first included. Defaults to 20.
    pub attempts_max: u16,
    /// Attempts after which an ambiguous failure (panic, timeout) is final. Defaults to 3.
    pub ambiguous_max: u16,
    /// The delay between attempts. Defaults to exponential, base 1 s, cap 1 h, full jitter.
    pub backoff: Backoff,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts_max: 20, ambiguous_max: 3, backoff: Backoff::default() }
    }
}

impl Retry {
    /// One attempt, no more.
    pub fn never() -> Self {
        Self { attempts_max: 1, ..Self::default() }
    }

    /// This many attempts in all.
    pub fn attempts(attempts_max: u16) -> Self {
        Self { attempts_max, ..Self::default() }
    }

    /// Refuses what cannot be followed.
    pub fn check(&self) -> Result<()> {
        check_attempts([self.attempts_max, self.ambiguous_max])?;
        self.backoff.check()
    }

    /// The same, with another delay between attempts.
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }
}

fn check_attempts(attempts: impl IntoIterator<Item = u16>) -> Result<()> {
    if attempts.into_iter().any(|attempts| attempts == 0) {
        return refused("0 attempts would never run a job; give at least 1".to_owned());
    }
    Ok(())
}

fn refused(reason: String) -> Result<()> {
    Err(Error::RuleInvalid { rule: "the retries", reason })
}

/// How long to wait before the next attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Backoff {
    /// `base × 2^(attempt − 1)`, at most `cap`, spread by the jitter.
    Exponential {
        /// Delay after the first failure.
        base_ms: u64,
        /// No delay is longer.
        cap_ms: u64,
        /// How the delay is spread.
        #[serde(default)]
        jitter: Jitter,
    },
    /// Between `base` and three times the delay before, at most `cap`.
    Decorrelated {
        /// The shortest delay.
        base_ms: u64,
        /// No delay is longer.
        cap_ms: u64,
    },
    /// The same delay every time.
    Fixed {
        /// The delay.
        delay_ms: u64,
    },
    /// The caller's own list; its last delay repeats.
    Custom {
        /// Delay after the first failure, the second, and so on.
        delays_ms: Vec<u64>,
    },
}

/// How a computed delay is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Jitter {
    /// Anywhere between nothing and the delay. The default.
    #[default]
    Full,
    /// Half of the delay, and anywhere up to the other half.
    Equal,
    /// Exactly the delay.
    None,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential { base_ms: 1000, cap_ms: 3_600_000, jitter: Jitter::Full }
    }
}

impl Backoff {
    fn check(&self) -> Result<()> {
        match self {
            Self::Exponential { base_ms, cap_ms, .. } | Self::Decorrelated { base_ms, cap_ms }
                if base_ms > cap_ms =>
            {
                refused(format!(
                    "the first delay of {base_ms} ms is longer than the longest, {cap_ms} ms"
                ))
            }
            Self::Custom { delays_ms } if delays_ms.is_empty() => {
                refused("a list of delays has at least one".to_owned())
            }
            Self::Custom { delays_ms } if delays_ms.len() > DELAYS_MAX => {
                let number = delays_ms.len();
                refused(format!("{number} delays are more than {DELAYS_MAX}; the last one repeats"))
            }
            _ => Ok(()),
        }
    }

    /// The delay after failed attempt number `attempt` (the first is 1) of job `id`.
    ///
    /// `draw` is a random number in `0.0..1.0`. Decorrelated delays depend on the one before,
    /// which is not kept: it is drawn again from the job's id, always the same.
    pub fn delay(&self, id: JobId, attempt: u16, draw: f64) -> Duration {
        let attempt = attempt.max(1);
        let ms = match self {
            Self::Exponential { base_ms, cap_ms, jitter } => {
                let full = base_ms.saturating_mul(1 << (attempt - 1).min(62)).min(*cap_ms);
                match jitter {
                    // Never at once: what has just failed is not asked in the same moment.
                    Jitter::Full => part(full, draw).max(full.min(1)),
                    Jitter::Equal => full / 2 + part(full - full / 2, draw),
                    Jitter::None => full,
                }
            }
            Self::Decorrelated { base_ms, cap_ms } => {
                decorrelated(*base_ms, *cap_ms, id, attempt, draw)
            }
            Self::Fixed { delay_ms } => *delay_ms,
            Self::Custom { delays_ms } => {
                let at = usize::from(attempt - 1).min(delays_ms.len().saturating_sub(1));
                delays_ms.get(at).copied().unwrap_or(0)
            }
        };
        Duration::from_millis(ms)
    }
}

fn part(of: u64, draw: f64) -> u64 {
    ((of as f64) * draw.clamp(0.0, 1.0)) as u64
}

fn decorrelated(base_ms: u64, cap_ms: u64, id: JobId, attempt: u16, draw: f64) -> u64 {
    let mut seed = id.0.as_u64_pair().1;
    let mut before = base_ms;
    for step in 1..=attempt {
        let drawn = if step == attempt {
            draw
        } else {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 11) as f64 / (1_u64 << 53) as f64
        };
        let top = before.saturating_mul(3).min(cap_ms);
        before = base_ms.min(top) + part(top.saturating_sub(base_ms), drawn);
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(backoff: &Backoff, attempt: u16, draw: f64) -> u128 {
        backoff.delay(JobId::new(), attempt, draw).as_millis()
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let with = |backoff| Retry::attempts(3).backoff(backoff);
        let jitter = Jitter::Full;
        let upside_down = Backoff::Exponential { base_ms: 5000, cap_ms: 10, jitter };
        for retry in [
            Retry::attempts(0),
            Retry { ambiguous_max: 0, ..Retry::default() },
            with(upside_down),
            with(Backoff::Decorrelated { base_ms: 2, cap_ms: 1 }),
            with(Backoff::Custom { delays_ms: Vec::new() }),
            with(Backoff::Custom { delays_ms: vec![1; DELAYS_MAX + 1] }),
        ] {
            assert_eq!(retry.check().unwrap_err().code(), "rule_invalid", "{retry:?}");
        }
        let one = with(Backoff::Custom { delays_ms: vec![0] });
        for retry in [Retry::default(), Retry::never(), one] {
            assert_eq!(retry.check(), Ok(()), "{retry:?}");
        }
    }

    #[test]
    fn each_backoff_follows_its_formula() {
        let with = |jitter| Backoff::Exponential { base_ms: 100, cap_ms: 1000, jitter };
        for (backoff, attempt, draw, expected) in [
            (with(Jitter::None), 1, 0.9, 100),
            (with(Jitter::None), 4, 0.9, 800),
            (with(Jitter::None), 60_000, 0.9, 1000),
            (with(Jitter::Full), 2, 0.0, 1),
            (with(Jitter::Full), 2, 0.5, 100),
            (with(Jitter::Equal), 2, 0.0, 100),
            (with(Jitter::Equal), 2, 0.5, 150),
            (Backoff::Fixed { delay_ms: 7 }, 9, 0.3, 7),
            (Backoff::Custom { delays_ms: vec![1, 5, 25] }, 2, 0.3, 5),
            (Backoff::Custom { delays_ms: vec![1, 5, 25] }, 8, 0.3, 25),
            (Backoff::Custom { delays_ms: vec![] }, 1, 0.3, 0),
            (Backoff::Decorrelated { base_ms: 10, cap_ms: 1000 }, 1, 0.0, 10),
            (Backoff::Decorrelated { base_ms: 10, cap_ms: 1000 }, 1, 1.0, 30),
        ] {
            assert_eq!(ms(&backoff, attempt, draw), expected, "{backoff:?} {attempt}");
        }
    }

    proptest! {
        #[test]
        fn no_delay_leaves_its_bounds(base in 0_u64..10_000, cap in 0_u64..100_000, attempt: u16, draw in 0.0..1.0) {
            let decorrelated = Backoff::Decorrelated { base_ms: base, cap_ms: cap };
            prop_assert!(ms(&decorrelated, attempt % 500, draw) <= u128::from(cap));
            for jitter in [Jitter::Full, Jitter::Equal, Jitter::None] {
                let exponential = Backoff::Exponential { base_ms: base, cap_ms: cap, jitter };
                prop_assert!(ms(&exponential, attempt, draw) <= u128::from(cap));
            }
        }
    }
}
