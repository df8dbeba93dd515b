//! Stable hashes: the jitter of a slot, the place of a key in a window, the id of a slot's job.
//!
//! The same input gives the same answer in every process and every version: a tenant's nightly work
//! comes at the same minute every night. It refuses randomness.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::id::JobId;

/// How long after its slot a job is due, less than `jitter_ms`; differs from slot to slot.
pub fn jitter(name: &str, slot: Timestamp, jitter_ms: u64) -> Duration {
    within(&format!("jitter\n{name}\n{}", slot.as_microsecond()), jitter_ms)
}

/// Where a key stands in a window, always the same.
pub fn place(key: &str, window_ms: u64) -> Duration {
    within(&format!("spread\n{key}"), window_ms)
}

/// The id of a slot's job: a UUIDv7 of the slot's time, whose other bits are a hash. Whoever fires the
/// slot writes the same job.
pub fn job_id(name: &str, made_at: Timestamp, slot: Timestamp, key: Option<&str>) -> JobId {
    let (made, at) = (made_at.as_microsecond(), slot.as_microsecond());
    let text = format!("job\n{name}\n{made}\n{at}\n{}", key.unwrap_or_default());
    let hash = blake3::hash(text.as_bytes());
    let mut bits = [0; 10];
    bits.copy_from_slice(&hash.as_bytes()[..10]);
    let millis = u64::try_from(slot.as_millisecond()).unwrap_or_default();
    let id: Uuid = uuid::Builder::from_unix_timestamp_millis(millis, &bits).into_uuid();
    JobId(id)
}

/// A duration below `window_ms`, in whole microseconds, drawn by a hash.
fn within(text: &str, window_ms: u64) -> Duration {
    let hash = blake3::hash(text.as_bytes());
    let mut bits = [0; 8];
    bits.copy_from_slice(&hash.as_bytes()[..8]);
    let micros = u128::from(window_ms) * 1000;
    let us = (u128::from(u64::from_be_bytes(bits)) * micros) >> 64;
    Duration::from_micros(us as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn jitter_differs_from_slot_to_slot() {
        let slot = |second| Timestamp::from_second(second).unwrap();
        let jitters: Vec<_> = (0..50).map(|n| jitter("s", slot(n), 60_000)).collect();
        assert!(jitters.iter().all(|jitter| jitter.as_secs() < 60));
        assert!(jitters.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn ids_are_ordered_by_their_slots() {
        let made_at = Timestamp::UNIX_EPOCH;
        let id = |second| job_id("s", made_at, Timestamp::from_second(second).unwrap(), None);
        assert!(id(1_700_000_000) < id(1_700_000_001));
        assert_eq!(id(5), id(5));
        assert_eq!(id(5).0.get_version_num(), 7);
    }
}
