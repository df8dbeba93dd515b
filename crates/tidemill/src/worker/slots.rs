//! How many jobs may run at once, and who wants to know when one more may.
//!
//! A worker has shared slots, and slots of their own for queues that must not wait for others. Each
//! group of slots asks for its own jobs; a queue that may overflow takes its own slots first, whichever group asked.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidemill_core::credit::Credit;
use tidemill_core::queue::matches;
use tokio::sync::Notify;

use crate::worker::settler::BESIDE_MIN;

/// Some slots, and the queues whose jobs may take them.
#[derive(Debug)]
pub(crate) struct Group {
    /// Names and patterns.
    pub(crate) queues: Vec<String>,
    pub(crate) slots: Arc<Slots>,
    /// How much may be asked for beyond the free ones.
    pub(crate) credit: Mutex<Credit>,
    /// Where jobs of a queue with slots of its own may go when those are taken: to the shared ones.
    overflow: Option<Arc<Slots>>,
    /// The queues, and their own slots, whose jobs overflow into these.
    overflowing: Vec<(String, Arc<Slots>)>,
}

impl Group {
    /// Slots that are one queue's own.
    pub(crate) fn dedicated(
        queue: String,
        slots: Arc<Slots>,
        overflow: Option<Arc<Slots>>,
    ) -> Self {
        let (queues, credit, overflowing) = (vec![queue], Mutex::default(), Vec::new());
        Self { queues, slots, credit, overflow, overflowing }
    }

    /// Slots that are nobody's own, beside these groups.
    pub(crate) fn shared(queues: Vec<String>, slots: Arc<Slots>, dedicated: &[Arc<Self>]) -> Self {
        let overflowing = dedicated.iter().filter(|own| own.overflow.is_some());
        let overflowing = overflowing
            .flat_map(|own| own.queues.iter().map(|queue| (queue.clone(), Arc::clone(&own.slots))))
            .collect();
        Self { queues, slots, credit: Mutex::default(), overflow: None, overflowing }
    }

    /// A slot for a job of this queue, if there is one: of its own while one is free, whoever asked for the job.
    pub(crate) fn take(&self, queue: &str) -> Option<Slot> {
        let own = self.overflowing.iter().find(|(own, _)| matches(own, queue));
        let (own, overflow) = match own {
            Some((_, own)) => (own, Some(&self.slots)),
            None => (&self.slots, self.overflow.as_ref()),
        };
        if own.try_take() {
            return Some(Slot { of: Arc::clone(own), overflow: overflow.cloned() });
        }
        let shared = overflow.filter(|shared| shared.try_take())?;
        own.overflowed.fetch_add(1, Ordering::AcqRel);
        // One of its own may have become free in between, and would go on being so while this is in a shared one.
        if own.try_take() {
            if own.call_home() {
                shared.give_back();
            } else {
                own.give_back();
            }
        }
        Some(Slot { of: Arc::clone(own), overflow: Some(Arc::clone(shared)) })
    }
}

/// The slots of a group.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    used: AtomicUsize,
    /// How many jobs of its queue are in shared slots.
    overflowed: AtomicUsize,
    pub(crate) freed: Notify,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (used, overflowed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max, used, overflowed, freed: Notify::new() })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Whether so many attempts wait to be settled that nothing more should be asked for.
    pub(crate) fn is_choked(&self, unsettled: &Unsettled) -> bool {
        unsettled.number() > 4 * self.max + 1000
    }

    /// How many more may start now.
    pub(crate) fn free(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    /// One, also when none is free: for what is not a job.
    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        self.used.fetch_add(1, Ordering::AcqRel);
        Slot { of: Arc::clone(self), overflow: None }
    }

    fn try_take(&self) -> bool {
        let next = |used| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }

    fn give_back(&self) {
        self.used.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }

    /// Lets one of its jobs that are in shared slots count as one in its own; `false` if there is none.
    fn call_home(&self) -> bool {
        let next = |overflowed: usize| overflowed.checked_sub(1);
        self.overflowed.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).is_ok()
    }
}

/// One job's place; free again when dropped.
///
/// A queue's own slots are the last to become free: while others of its jobs are in shared ones, it is one of those
/// that is, whichever job has ended. So the shared ones go to others as soon as they can.
#[derive(Debug)]
pub(crate) struct Slot {
    of: Arc<Slots>,
    overflow: Option<Arc<Slots>>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        match &self.overflow {
            Some(shared) if self.of.call_home() => shared.give_back(),
            _ => self.of.give_back(),
        }
    }
}

/// Attempts that ended and are not settled yet; bounded, or a slow store would let them pile up.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    number: AtomicUsize,
    pub(crate) fewer: Notify,
    /// Handed over, and not taken to be settled. Below zero for a moment, where one is taken before it was counted.
    untaken: AtomicIsize,
    /// Told when many are.
    pub(crate) plenty: Notify,
}

impl Unsettled {
    pub(crate) fn number(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    pub(crate) fn ended(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    /// One was handed over. To tell of each would cost more than it brings.
    pub(crate) fn came(&self) {
        if self.untaken.fetch_add(1, Ordering::AcqRel) + 1 >= BESIDE_MIN as isize {
            self.plenty.notify_one();
        }
    }

    /// So many were taken to be settled.
    pub(crate) fn taken(&self, attempts: usize) {
        self.untaken.fetch_sub(attempts as isize, Ordering::AcqRel);
    }

    pub(crate) fn settled(&self, attempts: usize) {
        self.number.fetch_sub(attempts, Ordering::AcqRel);
        self.fewer.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two shared slots, and two of `pay`, which may overflow.
    fn groups() -> (Group, Group) {
        let shared = Slots::new(2);
        let pay = Group::dedicated("pay".into(), Slots::new(2), Some(Arc::clone(&shared)));
        let pay = Arc::new(pay);
        let queues = vec!["pay".to_owned(), "bulk".to_owned()];
        let all = Group::shared(queues, shared, std::slice::from_ref(&pay));
        (all, Arc::into_inner(pay).expect("it is nobody else's"))
    }

    fn free(shared: &Group, pay: &Group) -> (usize, usize) {
        (shared.slots.free(), pay.slots.free())
    }

    #[test]
    fn own_slots_are_taken_first_whoever_asked() {
        let (shared, pay) = groups();
        let _first = shared.take("pay").expect("one of its own");
        assert_eq!(free(&shared, &pay), (2, 1));
        let _second = pay.take("pay").expect("one of its own");
        assert_eq!(free(&shared, &pay), (2, 0));
        let _third = pay.take("pay").expect("a shared one");
        let _fourth = shared.take("pay").expect("a shared one");
        assert_eq!(free(&shared, &pay), (0, 0));
        assert!(pay.take("pay").is_none() && shared.take("pay").is_none());
        assert!(shared.take("bulk").is_none());
    }

    #[test]
    fn own_slots_are_the_last_to_become_free() {
        let (shared, pay) = groups();
        let mut taken: Vec<_> = (0..4).map(|_| shared.take("pay").expect("one of four")).collect();
        for expected in [(1, 0), (2, 0), (2, 1), (2, 2)] {
            // The first ones are in slots of their own.
            drop(taken.remove(0));
            assert_eq!(free(&shared, &pay), expected);
        }
    }

    #[test]
    fn others_take_shared_slots_alone() {
        let (shared, pay) = groups();
        let taken: Vec<_> = (0..2).map(|_| shared.take("bulk").expect("a shared one")).collect();
        assert!(shared.take("bulk").is_none());
        assert_eq!(free(&shared, &pay), (0, 2));
        let paid: Vec<_> = (0..2).map(|_| pay.take("pay").expect("one of its own")).collect();
        assert!(pay.take("pay").is_none());
        drop((taken, paid));
        assert_eq!(free(&shared, &pay), (2, 2));
    }
}
