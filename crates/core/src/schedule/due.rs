//! What is to be fired now: the slots that are due, and what becomes of those that were missed.
//!
//! A slot is missed when it is later than the schedule's grace. It refuses to count for ever: after a
//! long silence of a busy schedule it looks at the latest slots only, and says `at least`.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::schedule::slot::Slots;
use crate::schedule::{CAUGHT_UP_MAX, Definition, Missed};

/// Slots that are counted one by one; of more, only the latest are looked at.
const COUNTED_MAX: usize = 10_000;
/// Jobs of one firing, at most.
const JOBS_MAX: usize = 10_000;
/// What the jobs of one firing carry together, at most.
pub(super) const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What is to be done about a schedule whose next slot has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueSlots {
    /// The slots that fire, in order.
    pub fire: Vec<Timestamp>,
    /// The slots that are passed over.
    pub missed: Option<MissedSlots>,
    /// The first slot after now.
    pub next: Option<Timestamp>,
}

/// Slots that nobody was there to fire and that are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedSlots {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many; at least this many when there were too many to count.
    pub slots: u64,
}

/// Decides about all slots from `next_at` until now.
pub fn due(definition: &Definition, slots: &Slots, next_at: Timestamp, now: Timestamp) -> DueSlots {
    let fire_max = definition.slots_max();
    let all = all_due(slots, next_at, now, fire_max);
    let next = slots.next(now);
    let late = all.partition_point(|slot| is_late(definition, *slot, now));
    let on_time = all.len() - late;
    let caught_up = match definition.missed {
        Missed::Skip => 0,
        Missed::Last => usize::from(on_time == 0).min(late),
        Missed::All(max) => late.min(max as usize),
    };
    let fired = (caught_up + on_time).min(fire_max);
    let (passed_over, fire) = all.split_at(all.len() - fired);
    let missed = passed_over.last().map(|last| MissedSlots {
        first: next_at,
        last: *last,
        slots: passed_over.len() as u64,
    });
    DueSlots { fire: fire.to_vec(), missed, next }
}

impl Definition {
    /// How many of its slots are fired at once, at most.
    pub fn slots_max(&self) -> usize {
        let by_jobs = (JOBS_MAX / self.jobs_per_slot()).clamp(1, CAUGHT_UP_MAX as usize);
        by_jobs.min(self.slots_max_of_bytes())
    }

    /// The same by what their jobs carry alone.
    pub fn slots_max_of_bytes(&self) -> usize {
        (BYTES_MAX / self.slot_bytes().max(1)).max(1)
    }

    /// How many jobs it makes for each slot.
    pub(super) fn jobs_per_slot(&self) -> usize {
        self.spread.as_ref().map_or(1, |spread| spread.keys.len().max(1))
    }

    /// What the jobs of one slot carry together.
    pub(super) fn slot_bytes(&self) -> usize {
        self.job.payload.as_str().len().saturating_mul(self.jobs_per_slot())
    }
}

fn is_late(definition: &Definition, slot: Timestamp, now: Timestamp) -> bool {
    let grace = SignedDuration::from_millis(definition.grace_ms as i64);
    now.duration_since(slot) > grace
}

/// The slots from `next_at` until now, in order; if they are too many, `next_at` and the latest.
fn all_due(slots: &Slots, next_at: Timestamp, now: Timestamp, latest: usize) -> Vec<Timestamp> {
    if next_at > now {
        return Vec::new();
    }
    // What was promised is a slot, whatever the rule says by now.
    let mut all = vec![next_at];
    all.extend(slots.between(next_at, now, COUNTED_MAX));
    if all.len() <= COUNTED_MAX {
        return all;
    }
    let mut window = SignedDuration::from_mins(1);
    loop {
        let from = now.checked_sub(window).unwrap_or(next_at).max(next_at);
        let found = slots.between(from, now, usize::MAX);
        if found.len() > latest || from == next_at {
            all.truncate(COUNTED_MAX.saturating_sub(found.len()).max(1));
            all.retain(|slot| *slot <= from);
            all.extend(found);
            return all;
        }
        window *= 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;
    use crate::schedule::{Rule, Spread};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hourly(missed: Missed) -> Definition {
        Definition { missed, ..Definition::new("s", Rule::Cron("0 * * * *".into())) }
    }

    fn hours(definition: &Definition, next_at: &str, now: &str) -> (Vec<String>, u64) {
        let slots = Slots::of(definition).unwrap();
        let due = due(definition, &slots, at(next_at), at(now));
        let fire = due.fire.iter().map(|slot| slot.strftime("%H:%M").to_string()).collect();
        assert!(due.next.is_none_or(|next| next > at(now)));
        (fire, due.missed.map_or(0, |missed| missed.slots))
    }

    #[test]
    fn the_policy_decides_what_is_caught_up() {
        for (missed, expected, passed_over) in [
            (Missed::Skip, vec![], 4),
            (Missed::Last, vec!["04:00"], 3),
            (Missed::All(2), vec!["03:00", "04:00"], 2),
            (Missed::All(100), vec!["01:00", "02:00", "03:00", "04:00"], 0),
        ] {
            let found = hours(&hourly(missed), "2026-01-01T01:00:00Z", "2026-01-01T04:30:00Z");
            assert_eq!(found, (expected.iter().map(|s| (*s).to_owned()).collect(), passed_over));
        }
    }

    #[test]
    fn a_slot_within_its_grace_is_on_time() {
        for missed in [Missed::Skip, Missed::Last] {
            let found = hours(&hourly(missed), "2026-01-01T03:00:00Z", "2026-01-01T04:01:00Z");
            assert_eq!(found, (vec!["04:00".to_owned()], 1), "{missed:?}");
        }
        let (fire, _) =
            hours(&hourly(Missed::Skip), "2026-01-01T04:00:00Z", "2026-01-01T04:01:00.000001Z");
        assert!(fire.is_empty(), "a moment later it is missed");
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let found = hours(&hourly(Missed::Last), "2026-01-01T04:00:00Z", "2026-01-01T03:59:59Z");
        assert_eq!(found, (vec![], 0));
    }

    #[test]
    fn a_year_of_seconds_is_caught_up_by_its_latest() {
        let second = Definition {
            missed: Missed::All(3),
            grace_ms: 0,
            ..Definition::new("s", Rule::EveryMs(1000))
        };
        let slots = Slots::of(&second).unwrap();
        let now = at("2027-01-01T00:00:00.5Z");
        let due = due(&second, &slots, at("2026-01-01T00:00:00Z"), now);
        let last = at("2027-01-01T00:00:00Z");
        let expected: Vec<_> = (0..3).rev().map(|n| last - SignedDuration::from_secs(n)).collect();
        assert_eq!(due.fire, expected);
        let missed = due.missed.unwrap();
        assert_eq!(missed.first, at("2026-01-01T00:00:00Z"));
        assert_eq!(missed.last, last - SignedDuration::from_secs(3));
        assert!(missed.slots >= 9_000, "{missed:?}");
    }

    #[test]
    fn one_firing_has_a_bound_on_its_jobs() {
        let keys = (0..1000).map(|n| n.to_string()).collect();
        let many =
            Definition { spread: Some(Spread { window_ms: 1, keys }), ..hourly(Missed::All(1000)) };
        let slots = Slots::of(&many).unwrap();
        let due = due(&many, &slots, at("2026-01-01T00:00:00Z"), at("2026-01-03T00:00:00Z"));
        assert_eq!((due.fire.len(), due.missed.unwrap().slots), (10, 39));
    }

    #[test]
    fn one_firing_has_a_bound_on_what_its_jobs_carry() {
        let mut large = hourly(Missed::All(1000));
        large.job.payload = Payload::trusted(format!("\"{}\"", "x".repeat(BYTES_MAX / 20)));
        let (slots, first) = (Slots::of(&large).unwrap(), at("2026-01-01T00:00:00Z"));
        let due = due(&large, &slots, first, at("2026-01-03T00:00:00Z"));
        assert_eq!((due.fire.len(), due.missed.unwrap().slots), (19, 30));
    }
}
