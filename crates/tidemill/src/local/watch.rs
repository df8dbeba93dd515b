//! Who wants to be told when the queue has shrunk below a mark, or has nothing left to do.
//!
//! A mark costs nothing while nobody waits for one. Who stopped waiting is forgotten when the next
//! one asks for the same mark.

use std::collections::BTreeMap;

use tokio::sync::oneshot::{Receiver, Sender, channel};

/// To be told, outside the queue's lock.
pub(super) type Told = Vec<Sender<()>>;

#[derive(Debug, Default)]
pub(super) struct Watch {
    marks: BTreeMap<usize, Told>,
    idle: Told,
}

impl Watch {
    /// Resolves when fewer than `mark` tasks wait.
    pub(super) fn below(&mut self, mark: usize) -> Receiver<()> {
        add(self.marks.entry(mark).or_default())
    }

    /// Resolves when nothing waits and nothing runs.
    pub(super) fn idle(&mut self) -> Receiver<()> {
        add(&mut self.idle)
    }

    /// Takes out those whose wish has come true.
    pub(super) fn reached(&mut self, queued: usize, is_idle: bool, told: &mut Told) {
        while let Some(mark) = self.marks.last_entry()
            && *mark.key() > queued
        {
            told.append(&mut mark.remove());
        }
        if is_idle {
            told.append(&mut self.idle);
        }
    }
}

fn add(told: &mut Told) -> Receiver<()> {
    told.retain(|one| !one.is_closed());
    let (one, receiver) = channel();
    told.push(one);
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marks_above_the_size_are_told() {
        let mut watch = Watch::default();
        let (mut three, mut five) = (watch.below(3), watch.below(5));
        let mut told = Told::new();
        watch.reached(3, false, &mut told);
        told.drain(..).for_each(|one| one.send(()).unwrap());
        assert!(five.try_recv().is_ok());
        assert!(three.try_recv().is_err());
    }

    #[test]
    fn those_who_gave_up_are_forgotten() {
        let mut watch = Watch::default();
        (0..1_000).for_each(|_| drop(watch.below(3)));
        (0..1_000).for_each(|_| drop(watch.idle()));
        assert!(watch.marks[&3].len() <= 1 && watch.idle.len() <= 1);
    }
}
