//! What must be: slots are multiples of an interval, and each of them is fired once or passed over for a reason.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidemill_core::JobId;
use tidemill_core::schedule::{Missed, Overlap};
use tidemill_store::schedule::What;

use super::ops::Wish;

/// A slot this many seconds late is not missed.
pub(super) const GRACE_S: i64 = 60;

/// A schedule, in whole seconds.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    pub(super) wish: Wish,
    pub(super) version: i64,
    pub(super) paused: bool,
    pub(super) next: i64,
    pub(super) last_slot: Option<i64>,
    pub(super) last_job: Option<JobId>,
    /// Slots whose job was made because their time came, or to fill a gap.
    pub(super) fired: BTreeSet<i64>,
}

/// Who holds the key of an exclusive schedule, and who is kept for afterwards.
#[derive(Debug, Clone, Copy, Default)]
struct Key {
    holder: Option<JobId>,
    next: Option<JobId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Waiting,
    Running,
    Ended,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) schedules: [Option<Rest>; 2],
    keys: [Key; 2],
    pub(super) jobs: BTreeMap<JobId, Place>,
}

/// The first slot after a moment.
pub(super) fn after(every_s: i64, moment: i64) -> i64 {
    (moment.div_euclid(every_s) + 1) * every_s
}

/// What a tick at a moment fires, and which slots it passes over, one by one.
pub(super) fn due(wish: Wish, next: i64, now: i64) -> (Vec<i64>, Vec<i64>) {
    let mut all = vec![next];
    while after(wish.every_s, all[all.len() - 1]) <= now {
        all.push(after(wish.every_s, all[all.len() - 1]));
    }
    let (late, on_time): (Vec<i64>, Vec<i64>) = all.iter().partition(|slot| now - **slot > GRACE_S);
    let kept = match wish.missed {
        Missed::Skip => 0,
        Missed::Last => usize::from(on_time.is_empty()),
        Missed::All(max) => max as usize,
    };
    let caught_up = late.len() - kept.min(late.len());
    let fire = late[caught_up..].iter().chain(&on_time).copied().collect();
    (fire, late[..caught_up].to_vec())
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("the games are played in this century")
}

impl Oracle {
    pub(super) fn is_unfinished(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_some_and(|place| *place != Place::Ended)
    }

    /// A job ends; the one that was kept for afterwards waits now.
    pub(super) fn end(&mut self, id: JobId) {
        self.jobs.insert(id, Place::Ended);
        for key in &mut self.keys {
            if key.holder == Some(id) {
                *key = Key { holder: key.next, next: None };
            } else if key.next == Some(id) {
                key.next = None;
            }
        }
    }

    /// What becomes of the job of a slot. `overlap`: `None` where the policy does not matter.
    pub(super) fn make(&mut self, name: usize, id: JobId, overlap: Option<Overlap>) -> What {
        let last = self.schedules[name].as_ref().and_then(|rest| rest.last_job);
        if let Some(last) = last.filter(|last| self.is_unfinished(*last)) {
            match overlap {
                Some(Overlap::Skip) => return What::Skipped,
                // One that runs is told, and ends by itself.
                Some(Overlap::CancelPrevious) if self.jobs[&last] == Place::Waiting => {
                    self.end(last);
                }
                _ => {}
            }
        }
        if let Some(overlap) = overlap.filter(|overlap| *overlap != Overlap::Allow) {
            let key = &mut self.keys[name];
            match (key.holder, key.next) {
                (None, _) => key.holder = Some(id),
                // A job of an earlier schedule of this name.
                (Some(_), _) if overlap == Overlap::Skip => return What::Skipped,
                (Some(holder), None) if self.jobs[&holder] == Place::Running => key.next = Some(id),
                _ => return What::Joined,
            }
        }
        self.jobs.insert(id, Place::Waiting);
        What::Fired
    }

    /// Never do two jobs of an exclusive schedule run.
    pub(super) fn runs_alone(&self, id: JobId) -> bool {
        self.keys.iter().all(|key| key.next != Some(id))
    }
}
