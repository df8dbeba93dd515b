//! Steps that run at most once: each try of them is written before it begins, so that one of which nobody knows the end
//! is never followed by another.

use jiff::Timestamp;

use super::open::Manner;
use super::{Kept, Op, Replay};
use crate::workflow::entry::{Began, Entry};
use crate::workflow::talk::Answer;

impl Replay {
    /// Writes that a step begins that runs at most once; if a further try of it was put off, when that comes.
    pub(super) fn guard(&mut self, began: Began, kept: &Kept) {
        // What undoes it stands with its first try.
        let again = Began { undo: began.undo.clone().filter(|_| !kept.began), ..began.clone() };
        if kept.again_at.is_none() {
            self.guarded.insert(began.key.clone(), Began { undo: None, ..again });
            self.push(Entry::Began(began));
        } else {
            self.guarded.insert(began.key, again);
        }
    }

    /// A step is tried again.
    pub(super) fn begin_again(&mut self, key: &str) {
        let Some(began) = self.guarded.get_mut(key) else { return };
        let next = Began { undo: None, ..began.clone() };
        let began = std::mem::replace(began, next);
        self.push(Entry::Began(began));
    }

    /// The attempt is over: steps that were about to begin do not. What was to say that they have is not written; where
    /// it is already, the try is put off, so that it is not taken for one of which nobody knows the end.
    pub fn let_go(&mut self, now: Timestamp) {
        let open = self.ops.by(Manner::Asked).chain(self.ops.by(Manner::Runs));
        let about = open.filter_map(|key| match self.ops.get(key)? {
            Op::Asked { tries } | Op::Answered(Answer::Go { tries }) => Some((key.clone(), *tries)),
            _ => None,
        });
        for (key, tries) in about.collect::<Vec<_>>() {
            let is_its = |entry: &Entry| matches!(entry, Entry::Began(began) if began.key == key);
            if let Some(at) = self.fresh.iter().position(|(_, entry)| is_its(entry)) {
                self.fresh.remove(at);
            } else if self.guarded.contains_key(&key) {
                let message = "its attempt ended before it began".to_owned();
                self.push(Entry::Failed { key, tries, message, again_at: now });
            }
        }
    }
}
