//! Steps that run at most once: each try of them is written before it begins, so that one of which nobody knows the end
//! is never followed by another.

use super::{Kept, Replay};
use crate::workflow::entry::{Began, Entry};

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
}
