//! Runs that died of a step and were sent on their way again: that step is tried again, if history allows it.
//!
//! The failure is not told to the code at its place. If the code comes by everything else that the journal has, nothing
//! came of the failure but the death, and the step begins anew; its new end takes the place of the old one. If the
//! journal goes on with something that the code asks for only when it has heard of the failure, it is told after all:
//! what the code made of it stays.

use super::{Op, Replay};
use crate::workflow::entry::{Ending, Entry};
use crate::workflow::talk::{Answer, Rest};

/// A failure for good that the journal has.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The number of the entry.
    number: u32,
    ending: Ending,
    /// The entry that tells of a death by it.
    died: Option<u32>,
    /// It is not told unless the journal goes on by it.
    is_open: bool,
}

impl Replay {
    /// Notes a failure for good.
    pub(super) fn learn_failure(&mut self, number: u32, key: &str, ending: &Ending) {
        if matches!(ending, Ending::Err { .. }) {
            let (ending, died) = (ending.clone(), None);
            let failure = Failure { number, ending, died, is_open: false };
            self.failures.insert(key.to_owned(), failure);
        }
    }

    /// Notes a death by the failure of this step. One that runs at most once stays failed.
    pub(super) fn learn_death(&mut self, number: u32, key: &str) {
        let Some(failure) = self.failures.get_mut(key) else { return };
        failure.died = Some(number);
        if let Some(kept) = self.kept.get_mut(key).filter(|kept| !kept.once) {
            failure.is_open = true;
            (kept.ended, kept.tries, kept.again_at) = (false, 0, None);
            let number = failure.number;
            self.telling.retain(|(told, ..)| *told != number);
        }
    }

    /// The run dies of the failure of this step.
    pub fn died(&mut self, key: &str) {
        if self.failures.get(key).is_some_and(|failure| failure.died.is_none()) {
            self.push(Entry::Died { key: key.to_owned() });
        }
    }

    /// The journal goes on with this entry, which the code has not asked for: it is told of the first failure before
    /// that was left out, if it waits for it.
    pub(super) fn tell_failure(&mut self, before: u32) -> Option<Rest> {
        let waits = |key: &str| {
            let op = self.ops.get(key);
            matches!(op, Some(Op::Asked { .. } | Op::Retrying { .. }))
        };
        let open = self.failures.iter().filter(|(key, failure)| {
            failure.is_open && failure.number < before && waits(key.as_str())
        });
        let (key, _) = open.min_by_key(|(_, failure)| failure.number)?;
        let key = key.clone();
        let failure = self.failures.get_mut(&key)?;
        failure.is_open = false;
        let ending = failure.ending.clone();
        Some(self.deliver(key, Answer::Ended(ending)))
    }

    /// Everything was told, and the code has not come by all that the journal has: only failures that were left out can
    /// be why.
    pub(super) fn missed_failure(&mut self) -> Option<Rest> {
        if self.failures.values().all(|failure| !failure.is_open) {
            return None;
        }
        let last = self.ahead.values().max().copied()?;
        self.tell_failure(last)
    }

    /// A step that died and was tried again has ended: nothing tells of its old end any more.
    pub(super) fn supersede(&mut self, key: &str) {
        let Some(failure) = self.failures.remove(key).filter(|failure| failure.is_open) else {
            return;
        };
        let gone = [Some(failure.number), failure.died];
        let gone: Vec<u32> = gone.into_iter().flatten().collect();
        if let Some(numbers) = self.numbers.get_mut(key) {
            numbers.retain(|number| !gone.contains(number));
        }
        self.length -= gone.len() as u32;
        self.forget.extend(gone);
    }
}
