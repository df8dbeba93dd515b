//! What a schedule makes jobs for, and the jobs it makes: whoever fires a slot writes the same ones.
//!
//! It refuses to know when: `due` and people decide that.

use jiff::Timestamp;

use super::{Definition, Overlap};
use crate::id::JobId;
use crate::job::unique::{OnDuplicate, Scope, UniqueKey};
use crate::job::{Due, NewJob, Options};

/// What a schedule makes jobs for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A slot of the schedule that was made then: the same slot always makes the same ids.
    Slot {
        /// Tells the schedule from an earlier one of its name.
        made_at: Timestamp,
        /// The moment the rule names.
        slot: Timestamp,
    },
    /// A slot that was asked for once more: other work, with other ids than the slot has.
    Again {
        /// When it was asked for.
        asked_at: Timestamp,
        /// The moment the rule names.
        slot: Timestamp,
    },
    /// A run that was asked for beside the slots.
    RunNow,
}

impl Occasion {
    fn slot(self) -> Option<Timestamp> {
        match self {
            Self::Slot { slot, .. } | Self::Again { slot, .. } => Some(slot),
            Self::RunNow => None,
        }
    }

    /// The id of its job: a UUIDv7 of the slot's time, whose other bits are a hash.
    fn job_id(self, name: &str, key: Option<&str>) -> JobId {
        // A schedule may be made and asked in one moment, so the words must differ, too.
        let (word, since, slot) = match self {
            Self::Slot { made_at, slot } => ("job", made_at, slot),
            Self::Again { asked_at, slot } => ("again", asked_at, slot),
            Self::RunNow => return JobId::new(),
        };
        let (since, at) = (since.as_microsecond(), slot.as_microsecond());
        let text = format!("{word}\n{name}\n{since}\n{at}\n{}", key.unwrap_or_default());
        JobId::of_text(slot, &text)
    }
}

impl Definition {
    /// The jobs it makes on this occasion: one, or one per key.
    pub fn jobs_of(&self, occasion: Occasion) -> Vec<NewJob> {
        let keys: Vec<Option<&str>> = match &self.spread {
            Some(spread) if !spread.keys.is_empty() => {
                spread.keys.iter().map(|key| Some(key.as_str())).collect()
            }
            _ => vec![None],
        };
        keys.into_iter().map(|key| self.job_of(occasion, key)).collect()
    }

    fn job_of(&self, occasion: Occasion, key: Option<&str>) -> NewJob {
        let slot = occasion.slot();
        let due = slot.map_or(Due::Now, |slot| Due::At(self.due_at(slot, key)));
        let mut job = self.job.job(occasion.job_id(&self.name, key), due);
        if let Some(key) = key {
            job.key = Some(key.to_owned());
        }
        // One that skips may have a unique key of its own, which says more than that of its schedule.
        if self.overlap != Overlap::Allow && job.unique.is_none() {
            job.unique = Some(self.exclusive_key());
        }
        job.options.tags.push(format!("schedule:{}", self.name));
        job.options.tags.extend(slot.map(|slot| format!("{SLOT_TAG}{slot}")));
        job
    }
}

impl Definition {
    /// The key by which jobs of this schedule exclude each other, also when one of them is replayed.
    pub(super) fn exclusive_key(&self) -> UniqueKey {
        let on_duplicate = match self.overlap {
            Overlap::Skip => OnDuplicate::Reject,
            _ => OnDuplicate::RunOnceMore,
        };
        let key = UniqueKey::given(KEY_KIND, &self.name);
        UniqueKey {
            key,
            scope: Scope::Unfinished,
            on_duplicate,
            force: false,
            together: false,
            within: Vec::new(),
        }
    }
}

/// What stands in place of a kind in the unique keys of schedules; `tidemill.replay` knows it, too.
const KEY_KIND: &str = "tidemill:schedule";

/// The schedule whose jobs exclude each other by this unique key, if it is such a key.
pub fn schedule_of_key(unique_key: &str) -> Option<&str> {
    unique_key.strip_prefix(KEY_KIND)?.strip_prefix('=')
}

const SLOT_TAG: &str = "slot:";

/// The slot that a job was made for, if a schedule made it.
pub fn slot_of(options: &Options) -> Option<Timestamp> {
    options.tags.iter().rev().find_map(|tag| tag.strip_prefix(SLOT_TAG)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Rule, Spread};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_slot_always_makes_the_same_jobs() {
        let (made_at, slot) = (at("2026-01-01T00:00:00Z"), at("2026-01-02T03:00:00Z"));
        let spread = Spread { window_ms: 60_000, keys: vec!["a".into(), "b".into()] };
        let many =
            Definition { spread: Some(spread), ..Definition::new("s", Rule::EveryMs(60_000)) };
        let of_slot = Occasion::Slot { made_at, slot };
        let (one, two) = (many.jobs_of(of_slot), many.jobs_of(of_slot));
        assert_eq!(one, two);
        assert_eq!(one.len(), 2);
        assert_ne!(one[0].id, one[1].id);
        assert_eq!(one[0].key.as_deref(), Some("a"));
        assert_eq!(slot_of(&one[0].options), Some(slot));
        let later = many.jobs_of(Occasion::Slot { made_at: slot, slot });
        assert_ne!(later[0].id, one[0].id, "another schedule of the same name");
        assert_eq!(slot_of(&many.jobs_of(Occasion::RunNow)[0].options), None);
    }

    #[test]
    fn what_runs_again_is_other_work_even_in_the_moment_the_schedule_was_made() {
        let (made_at, slot) = (at("2026-01-01T00:00:00Z"), at("2025-12-31T03:00:00Z"));
        let every = Definition::new("s", Rule::EveryMs(60_000));
        let first = every.jobs_of(Occasion::Slot { made_at, slot });
        let again = every.jobs_of(Occasion::Again { asked_at: made_at, slot });
        assert_ne!(first[0].id, again[0].id);
        assert_eq!(slot_of(&again[0].options), Some(slot));
    }

    #[test]
    fn jobs_that_exclude_each_other_bear_the_key_of_their_schedule() {
        for (overlap, excludes) in Overlap::ALL.into_iter().zip([false, true, true, true]) {
            let every = Definition { overlap, ..Definition::new("s=t", Rule::EveryMs(60_000)) };
            let unique = every.jobs_of(Occasion::RunNow).remove(0).unique;
            assert_eq!(unique.is_some(), excludes, "{overlap:?}");
            let schedule = unique.as_ref().and_then(|unique| schedule_of_key(&unique.key));
            assert_eq!(schedule, excludes.then_some("s=t"));
        }
        assert_eq!(schedule_of_key("tidemill.schedules=s"), None);
    }

    #[test]
    fn ids_are_ordered_by_their_slots() {
        let id = |second| {
            let slot = Timestamp::from_second(second).unwrap();
            Occasion::Slot { made_at: Timestamp::UNIX_EPOCH, slot }.job_id("s", None)
        };
        assert!(id(1_700_000_000) < id(1_700_000_001));
        assert_eq!(id(5), id(5));
        assert_eq!(id(5).0.get_version_num(), 7);
    }
}
