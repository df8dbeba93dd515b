//! Stable hashes: the jitter of a slot, the place of a key in a window.
//!
//! The same input gives the same answer in every process and every version: a tenant's nightly work
//! comes at the same minute every night. It refuses randomness.

use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, Result};
use crate::schedule::due::BYTES_MAX;
use crate::schedule::{Definition, YEAR_MS, YEARS_MAX, contradiction};
use crate::span::Span;

/// What a message calls the window.
pub const WINDOW: &str = "window to spread over";
/// The longest jitter or window.
const LENGTH_MS_MAX: u64 = YEARS_MAX as u64 * YEAR_MS;

/// How long after its slot a job is due, less than `jitter_ms`; differs from slot to slot.
pub fn jitter(name: &str, slot: Timestamp, jitter_ms: u64) -> Duration {
    within(&format!("jitter\n{name}\n{}", slot.as_microsecond()), jitter_ms)
}

/// Where a key stands in a window, always the same. In one that [`check`] refuses it is put off for ever, which no job
/// may be.
pub fn place(key: &str, window_ms: u64) -> Duration {
    within(&format!("spread\n{key}"), window_ms)
}

/// Refuses a jitter or a window that is too long to mean anything.
pub fn check(what: &'static str, length_ms: u64) -> Result<()> {
    if length_ms <= LENGTH_MS_MAX {
        return Ok(());
    }
    let value = Span(Duration::from_millis(length_ms)).to_string();
    Err(Error::DurationInvalid { what, value, years_max: YEARS_MAX })
}

/// A duration below `window_ms`, in whole microseconds, drawn by a hash.
fn within(text: &str, window_ms: u64) -> Duration {
    // The product of a longer one and a hash may be more than 128 bits hold.
    if window_ms > LENGTH_MS_MAX {
        return Duration::MAX;
    }
    let hash = blake3::hash(text.as_bytes());
    let mut bits = [0; 8];
    bits.copy_from_slice(&hash.as_bytes()[..8]);
    let micros = u128::from(window_ms) * 1000;
    let us = (u128::from(u64::from_be_bytes(bits)) * micros) >> 64;
    Duration::from_micros(us as u64)
}

impl Definition {
    /// The jobs of a slot are written together, each with the payload.
    pub(super) fn check_bytes(&self) -> Result<()> {
        let (bytes, bytes_max) = (self.slot_bytes(), BYTES_MAX);
        let jobs = self.jobs_per_slot();
        if jobs == 1 || bytes <= bytes_max {
            return Ok(());
        }
        let what = format!(
            "its payload, once for each of its {jobs} keys, makes {bytes} bytes per slot, and the limit is {bytes_max}"
        );
        Err(contradiction(what, "let the payload say where the data are, or use fewer keys"))
    }

    /// Its jobs are written at their slots, and their time to finish counts from there.
    pub(super) fn check_deadline(&self) -> Result<()> {
        let window_ms = self.spread.as_ref().map_or(0, |spread| spread.window_ms);
        let wait_ms = self.jitter_ms.saturating_add(window_ms);
        match self.job.options.finish_within_ms {
            Some(within_ms) if wait_ms > within_ms => {
                let span = |ms| Span(Duration::from_millis(ms));
                let what = format!(
                    "its jitter and spread put jobs off for up to {}, and they are to finish within {} of their slot",
                    span(wait_ms),
                    span(within_ms)
                );
                let instead = "spread them over less, or give them more time to finish";
                Err(contradiction(what, instead))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Due, NewJob};
    use crate::limit::Limits;
    use crate::payload::Payload;
    use crate::wish::Wish;

    #[test]
    fn places_are_stable_and_fill_the_window_evenly() {
        assert_eq!(place("tenant:1", 3_600_000), place("tenant:1", 3_600_000));
        assert_eq!(place("tenant:1", 3_600_000).as_micros(), 1_149_179_147, "for ever");
        assert_eq!(place("x", 0), Duration::ZERO);
        let mut counts = [0_u32; 10];
        for key in 0..10_000 {
            counts[(place(&format!("tenant:{key}"), 10_000).as_millis() / 1000) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_window_beyond_the_bound_has_no_place() {
        let window = |window_ms| {
            let spread = Some(Span(Duration::from_millis(window_ms)));
            let wish = Wish { kind: "k".into(), spread, ..Wish::default() };
            wish.check().err().map(|error| error.code())
        };
        assert_eq!(window(LENGTH_MS_MAX), None);
        for key in ["a", "b", "c", "d"] {
            assert!(place(key, LENGTH_MS_MAX) < Duration::from_millis(LENGTH_MS_MAX), "{key}");
        }
        for beyond in [LENGTH_MS_MAX + 1, 106_751_991_167 * 86_400_000, u64::MAX] {
            assert_eq!(window(beyond), Some("duration_invalid"), "{beyond}");
            for key in ["a", "b", "c", "d"] {
                let due = Due::Now.later(place(key, beyond));
                let job = NewJob { due, ..NewJob::new("k", Payload::null()) };
                let refused = job.check(&Limits::default(), Timestamp::UNIX_EPOCH).unwrap_err();
                assert_eq!(refused.code(), "due_too_far", "{key} {beyond}");
            }
        }
    }

    #[test]
    fn jitter_differs_from_slot_to_slot() {
        let slot = |second| Timestamp::from_second(second).unwrap();
        let jitters: Vec<_> = (0..50).map(|n| jitter("s", slot(n), 60_000)).collect();
        assert!(jitters.iter().all(|jitter| jitter.as_secs() < 60));
        assert!(jitters.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
