//! Runs that died of a step and were sent on their way again: that step is tried again, if history allows it.
//!
//! The failure is not told to the code at its place. If the code comes by everything else that the journal has, nothing
//! came of the failure but the death, and the step begins anew; its new end takes the place of the old one. If the
//! journal goes on with something that the code asks for only when it has heard of the failure, it is told after all:
//! what the code made of it stays.
//!
//! An item of a map that fails makes room for the next one. So before a failure in one is told, its item gives up its
//! place ([`Replay::passed`]): the code comes by what followed, and the item waits beside it.
//!
//! A child that the code waited for, and that did not end well, is a failure too: it is started anew, as another job.

use std::collections::HashSet;

use super::{Op, Replay};
use crate::job::state::State;
use crate::workflow::entry::{ChildEnd, Ending, Entry};
use crate::workflow::scope::scopes;
use crate::workflow::talk::{Answer, Ask, Rest};

/// A failure for good that the journal has.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The number of the entry.
    number: u32,
    /// What the code is told of it.
    answer: Answer,
    /// The entry that tells of a death by it.
    died: Option<u32>,
    /// It is not told unless the journal goes on by it.
    is_open: bool,
    /// How many items of maps, one in another, have given up their places for it.
    passed: usize,
    /// It is of a child, and another one was started.
    anew: bool,
}

impl Failure {
    fn new(number: u32, answer: Answer) -> Self {
        Self { number, answer, died: None, is_open: false, passed: 0, anew: false }
    }
}

/// The items of maps that a key lies in, the innermost first.
fn items(key: &str) -> Vec<&str> {
    let mut items: Vec<_> = scopes(key).filter(|scope| scope.ends_with(']')).collect();
    items.sort_unstable_by_key(|item| std::cmp::Reverse(item.len()));
    items
}

impl Replay {
    /// Notes a failure for good.
    pub(super) fn learn_failure(&mut self, number: u32, key: &str, ending: &Ending) {
        if matches!(ending, Ending::Err { .. }) {
            let failure = Failure::new(number, Answer::Ended(ending.clone()));
            self.failures.insert(key.to_owned(), failure);
        }
    }

    /// Notes a child that did not end well.
    pub(super) fn learn_child_failure(&mut self, number: u32, key: &str, ends: &[ChildEnd]) {
        if let [end] = ends
            && end.state != State::Done
        {
            let failure = Failure::new(number, Answer::Children(ends.to_vec()));
            self.failures.insert(key.to_owned(), failure);
        }
    }

    /// Whether the child that was started under this key is to be started anew, if history allows it.
    pub(super) fn starts_anew(&self, key: &str) -> bool {
        self.failures.get(key).is_some_and(|failure| failure.is_open && !failure.anew)
    }

    /// Notes that it was: its end takes the place of the old one.
    pub(super) fn learn_anew(&mut self, key: &str) {
        if let Some(failure) = self.failures.get_mut(key).filter(|failure| failure.is_open) {
            failure.anew = true;
        }
    }

    /// How many items of a map hold no place of it, since their failures are left out; `None`: none are in any.
    pub fn passed(&self, map: &str) -> Option<usize> {
        let mut open = self.failures.iter().filter(|(_, failure)| failure.is_open).peekable();
        open.peek()?;
        let passed = open.flat_map(|(key, failure)| {
            let items = items(key).into_iter().take(failure.passed);
            items.filter(|item| item.rsplit_once('[').is_some_and(|(of, _)| of == map))
        });
        Some(passed.collect::<HashSet<_>>().len())
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
            let is_child = matches!(op, Some(Op::Held(Ask::Children { .. }) | Op::Joining { .. }));
            is_child || matches!(op, Some(Op::Asked { .. } | Op::Retrying { .. }))
        };
        let open = self.failures.iter().filter(|(key, failure)| {
            // History has gone on without it where another child was started.
            let may = !failure.anew || failure.passed < items(key).len();
            failure.is_open && failure.number < before && waits(key.as_str()) && may
        });
        let (key, _) = open.min_by_key(|(_, failure)| failure.number)?;
        let key = key.clone();
        let failure = self.failures.get_mut(&key)?;
        if let Some((map, _)) =
            items(&key).get(failure.passed).and_then(|item| item.rsplit_once('['))
        {
            failure.passed += 1;
            return Some(Rest::Deliver(map.to_owned()));
        }
        failure.is_open = false;
        let answer = failure.answer.clone();
        Some(self.deliver(key, answer))
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

    /// A step that died and was tried again has ended, or a child that was started anew: nothing tells of the old end
    /// any more.
    pub(super) fn supersede(&mut self, key: &str) {
        let Some(failure) = self.failures.remove(key).filter(|failure| failure.is_open) else {
            return;
        };
        let mut gone: Vec<u32> =
            [Some(failure.number), failure.died].into_iter().flatten().collect();
        if matches!(failure.answer, Answer::Children(_)) {
            // Nor of the start of the old one.
            let numbers = self.numbers.get(key).into_iter().flatten().copied();
            gone = numbers.filter(|number| Some(*number) <= failure.died).collect();
        }
        if let Some(numbers) = self.numbers.get_mut(key) {
            numbers.retain(|number| !gone.contains(number));
        }
        self.length -= gone.len() as u32;
        self.forget.extend(gone);
    }
}
