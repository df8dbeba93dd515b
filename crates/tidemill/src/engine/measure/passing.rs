//! What came to queues and went, as counters that never go down, of so many queues at most.
//!
//! The rest are added up under `other`: not as they are, since one that is forgotten would take its share with it, but
//! by what each has had since the last look. So `other` counts from the first look of this process.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use tidemill_store::measure::Passed;

use super::series::OTHER;

/// What came and what went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) came: u64,
    pub(super) went: u64,
}

impl Way {
    fn of(passed: &Passed) -> Self {
        // What was dropped came and went.
        let Passed { now, dropped, .. } = passed;
        Self { came: now.came + dropped, went: now.went + dropped }
    }

    /// What was added since; one that has less was forgotten, and has begun anew.
    fn since(self, last: Self) -> Self {
        let added = |now: u64, last: u64| now.checked_sub(last).unwrap_or(now);
        Self { came: added(self.came, last.came), went: added(self.went, last.went) }
    }
}

/// What is shown.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// Of when the last look was.
    at: Option<Timestamp>,
    own: BTreeMap<String, Way>,
    /// What each of the others had.
    last: BTreeMap<String, Way>,
    others: Option<Way>,
}

impl Passing {
    /// Takes up what was found, unless something later was.
    pub(super) fn look(&mut self, at: Timestamp, passed: &[Passed], most: usize) {
        if self.at.is_some_and(|last| last > at) {
            return;
        }
        let is_first = self.at.replace(at).is_none();
        let found: BTreeMap<&str, Way> =
            passed.iter().map(|passed| (&*passed.queue, Way::of(passed))).collect();
        // A series that ends, and begins anew at nothing, is what everybody reckons with.
        self.own.retain(|queue, way| found.get(&**queue).inspect(|now| *way = **now).is_some());
        self.last.retain(|queue, _| found.contains_key(&**queue));
        let mut rest: Vec<(&str, Way)> =
            found.into_iter().filter(|(queue, _)| !self.own.contains_key(*queue)).collect();
        rest.sort_by_key(|(_, way)| Reverse(way.came));
        for (queue, way) in rest {
            if self.own.len() < most {
                self.last.remove(queue);
                self.own.insert(queue.to_owned(), way);
                continue;
            }
            let new = if is_first { way } else { Way::default() };
            let last = self.last.insert(queue.to_owned(), way).unwrap_or(new);
            let (others, added) = (self.others.get_or_insert_default(), way.since(last));
            *others = Way { came: others.came + added.came, went: others.went + added.went };
        }
    }

    /// The queues, and the others together.
    pub(super) fn shown(&self) -> impl Iterator<Item = (&str, Way)> {
        let others = self.others.map(|way| (OTHER, way));
        self.own.iter().map(|(queue, way)| (&**queue, *way)).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::depth::Sample;

    use super::*;

    fn passed(queue: &str, came: u64) -> Passed {
        let now = Sample { at: Timestamp::UNIX_EPOCH, came, went: 0 };
        Passed { queue: queue.into(), now, before: None, dropped: 0 }
    }

    fn look(passing: &mut Passing, second: i64, found: &[(&str, u64)]) -> Vec<(String, u64)> {
        let found: Vec<Passed> = found.iter().map(|(queue, came)| passed(queue, *came)).collect();
        passing.look(Timestamp::from_second(second).unwrap(), &found, 2);
        passing.shown().map(|(queue, way)| (queue.to_owned(), way.came)).collect()
    }

    #[test]
    fn what_the_others_had_never_goes_down() {
        let own = |queue: &str, came| (queue.to_owned(), came);
        let mut passing = Passing::default();
        let first = look(&mut passing, 1, &[("a", 50), ("b", 40), ("c", 30), ("d", 1)]);
        assert_eq!(first, [own("a", 50), own("b", 40), own("other", 0)], "from the first look on");
        let deeper = look(&mut passing, 2, &[("a", 50), ("b", 40), ("c", 90), ("d", 2), ("e", 5)]);
        assert_eq!(deeper, [own("a", 50), own("b", 40), own("other", 66)]);
        let older = look(&mut passing, 1, &[("a", 50), ("b", 40), ("c", 30)]);
        assert_eq!(older, deeper, "an older look says nothing new");
        let forgotten = look(&mut passing, 3, &[("a", 51), ("b", 40), ("d", 2), ("e", 5)]);
        assert_eq!(forgotten, [own("a", 51), own("b", 40), own("other", 66)]);
        let anew = look(&mut passing, 4, &[("a", 51), ("b", 40), ("c", 3), ("d", 2), ("e", 5)]);
        assert_eq!(anew, [own("a", 51), own("b", 40), own("other", 69)]);
        let free = look(&mut passing, 5, &[("b", 40), ("c", 3), ("d", 2), ("e", 7)]);
        assert_eq!(free, [own("b", 40), own("e", 7), own("other", 69)], "a place is for the next");
    }
}
