//! How far the head of a lane holds only jobs of kinds that a worker does not know.
//!
//! Such jobs pile up where nobody knows their kind any more, and every claim would walk over all of
//! them: 100,000 cost it 10 ms. So the writer remembers up to which due time there was nothing left
//! for these kinds. What is written later is due later, so a mark that stays behind the present
//! hides nothing.
//!
//! It also remembers which tenant of a lane was served last, so that they take turns.
//!
//! Still a mark is only a hint: it is forgotten every ten seconds, when the clock goes back, and
//! when what was taken comes back by a rollback.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_core::share::Served;

use crate::request::Lane;

/// A transaction may have read the clock this long before it got the lock.
const MARGIN_US: i64 = 5_000_000;
const TTL_US: i64 = 10_000_000;
const LANES_MAX: usize = 1000;
/// How often gates are looked at for what a wrong clock left.
const MEND_US: i64 = 60_000_000;

type Kinds = Arc<Vec<String>>;

/// What the writer remembers between two claims.
#[derive(Debug, Default)]
pub(super) struct Marks {
    since: i64,
    latest: i64,
    mended: i64,
    begins: HashMap<(Lane, Kinds), i64>,
    served: HashMap<Lane, Served>,
}

impl Marks {
    /// The due time from which on it is worth looking.
    pub fn begin(&mut self, now: i64, lane: &Lane, kinds: &Kinds) -> i64 {
        if now < self.latest || now - self.since >= TTL_US || self.begins.len() > LANES_MAX {
            self.forget();
            self.since = now;
        }
        self.latest = now;
        self.begins.get(&(lane.clone(), Arc::clone(kinds))).copied().unwrap_or(i64::MIN)
    }

    /// Everything due before `until` was looked at, and what fits was taken.
    pub fn seen(&mut self, lane: &Lane, kinds: &Kinds, until: i64) {
        let mark = until.min(self.latest - MARGIN_US);
        self.begins.insert((lane.clone(), Arc::clone(kinds)), mark);
    }

    /// One that is due then was looked at, fits, and stays.
    pub fn left(&mut self, lane: &Lane, kinds: &Kinds, due: i64) {
        if let Some(mark) = self.begins.get_mut(&(lane.clone(), Arc::clone(kinds))) {
            *mark = due.min(*mark);
        }
    }

    /// Which tenant of a lane was served last, if one was.
    pub fn served(&self, lane: &Lane) -> Option<&Served> {
        self.served.get(lane)
    }

    /// So many jobs of a tenant of this weight were taken.
    pub fn took(&mut self, lane: &Lane, tenant: &str, weight: u32, jobs: usize) {
        if let Some(served) = self.served.get_mut(lane) {
            served.took(tenant, weight, jobs);
            return;
        }
        let mut served = Served::whole(tenant);
        served.took(tenant, weight, jobs);
        self.keep(lane, served);
    }

    /// All tenants up to this one were looked at, and none of them had anything due.
    pub fn pass_by(&mut self, lane: &Lane, tenant: String) {
        self.keep(lane, Served::whole(tenant));
    }

    fn keep(&mut self, lane: &Lane, served: Served) {
        if self.served.len() > LANES_MAX {
            self.served.clear();
        }
        self.served.insert(lane.clone(), served);
    }

    /// Whether it is time to look for what a wrong clock left; also when it was put right.
    pub fn is_time_to_mend(&mut self, now: i64) -> bool {
        let is_time = now.abs_diff(self.mended) >= MEND_US as u64;
        if is_time {
            self.mended = now;
        }
        is_time
    }

    /// It was not finished: the next turn goes on.
    pub fn mend_again(&mut self) {
        self.mended = i64::MIN;
    }

    /// What was taken may be there again.
    pub fn forget(&mut self) {
        self.begins.clear();
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::Priority;

    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_mark_stays_behind_the_present_and_is_forgotten() {
        let lane = Lane { queue: "q".into(), priority: Priority::Normal };
        let (kinds, others) = (Arc::new(vec!["a".to_owned()]), Arc::new(vec!["b".to_owned()]));
        let mut marks = Marks::default();
        let now = 100 * SECOND;
        assert_eq!(marks.begin(now, &lane, &kinds), i64::MIN);
        marks.seen(&lane, &kinds, now);
        assert_eq!(marks.begin(now, &lane, &kinds), now - MARGIN_US);
        assert_eq!(marks.begin(now, &lane, &others), i64::MIN, "others know other kinds");
        marks.left(&lane, &kinds, 8);
        assert_eq!(marks.begin(now, &lane, &kinds), 8, "it stays, and is met again");
        marks.seen(&lane, &kinds, 7);
        assert_eq!(marks.begin(now + 3 * SECOND, &lane, &kinds), 7);
        assert_eq!(marks.begin(now + 2 * SECOND, &lane, &kinds), i64::MIN, "the clock went back");
        marks.seen(&lane, &kinds, 7);
        assert_eq!(marks.begin(now + 2 * SECOND + TTL_US, &lane, &kinds), i64::MIN, "too old");
    }
}
