//! What the code has asked for and how that stands: found by key, and by manner in the order of asking.
//!
//! Nothing here looks at all that is open: a run may have ten thousand things open, and each of them ends.

use std::collections::{BTreeMap, HashMap};

use super::Op;

/// How something stands that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Its end is in the journal and was not told yet.
    Told,
    Asked,
    Runs,
    Held,
    /// For something that comes by itself.
    Waits,
}

impl Manner {
    fn of(op: &Op) -> Option<Self> {
        Some(match op {
            Op::Told => Self::Told,
            Op::Asked { .. } => Self::Asked,
            Op::Running | Op::Answered(_) => Self::Runs,
            Op::Held(_) => Self::Held,
            Op::Sleeping { .. }
            | Op::Retrying { .. }
            | Op::Listening { .. }
            | Op::Joining { .. }
            | Op::Lost
            | Op::Recorded => Self::Waits,
            Op::Over => return None,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Ops {
    all: HashMap<String, Op>,
    /// The place of each that is open in the order of asking, and where it stands.
    places: HashMap<String, (u64, Manner)>,
    next: u64,
    by_manner: [BTreeMap<u64, String>; 5],
}

impl Ops {
    pub(super) fn get(&self, key: &str) -> Option<&Op> {
        self.all.get(key)
    }

    /// One whose manner stays what it is.
    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Op> {
        self.all.get_mut(key)
    }

    /// Something new is open.
    pub(super) fn open(&mut self, key: &str, op: Op) {
        if let Some(manner) = Manner::of(&op) {
            self.leave(key);
            self.places.insert(key.to_owned(), (self.next, manner));
            self.by_manner[manner as usize].insert(self.next, key.to_owned());
            self.next += 1;
        }
        self.all.insert(key.to_owned(), op);
    }

    /// It stands otherwise now; if it is open, it stays so.
    pub(super) fn set(&mut self, key: &str, op: Op) {
        if let Some((place, was)) = self.places.get_mut(key) {
            match Manner::of(&op) {
                Some(is) if is == *was => {}
                Some(is) => {
                    let (place, was) = (*place, std::mem::replace(was, is));
                    let name = self.by_manner[was as usize].remove(&place);
                    self.by_manner[is as usize].extend(name.map(|name| (place, name)));
                }
                None => self.leave(key),
            }
        }
        self.all.insert(key.to_owned(), op);
    }

    /// It stands so, and is not open any more. Answers how it stood.
    pub(super) fn close(&mut self, key: &str, op: Op) -> Option<Op> {
        self.leave(key);
        self.all.insert(key.to_owned(), op)
    }

    fn leave(&mut self, key: &str) {
        if let Some((place, manner)) = self.places.remove(key) {
            self.by_manner[manner as usize].remove(&place);
        }
    }

    /// Those that are open in this manner, in the order of asking.
    pub(super) fn by(&self, manner: Manner) -> impl Iterator<Item = &String> {
        self.by_manner[manner as usize].values()
    }

    /// All that are open, in the order of asking.
    pub(super) fn opened(&self) -> Vec<&String> {
        let mut opened: Vec<_> = self.by_manner.iter().flatten().collect();
        opened.sort_unstable();
        opened.into_iter().map(|(_, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::talk::Answer;

    fn by(ops: &Ops, manner: Manner) -> Vec<&str> {
        ops.by(manner).map(String::as_str).collect()
    }

    #[test]
    fn what_is_open_keeps_its_place_however_it_stands() {
        let mut ops = Ops::default();
        for key in ["c", "a", "b"] {
            ops.open(key, Op::Asked { tries: 0 });
        }
        ops.set("a", Op::Answered(Answer::Go { tries: 0 }));
        ops.set("c", Op::Running);
        assert_eq!(by(&ops, Manner::Runs), ["c", "a"]);
        assert_eq!(by(&ops, Manner::Asked), ["b"]);
        ops.set("c", Op::Asked { tries: 1 });
        assert_eq!(by(&ops, Manner::Asked), ["c", "b"]);
        assert_eq!(ops.opened(), ["c", "a", "b"]);
        assert_eq!(ops.close("c", Op::Over), Some(Op::Asked { tries: 1 }));
        ops.set("a", Op::Over);
        assert_eq!(ops.opened(), ["b"]);
    }

    #[test]
    fn what_is_not_open_stands_nowhere() {
        let mut ops = Ops::default();
        ops.close("scope", Op::Running);
        ops.set("scope", Op::Lost);
        assert!(ops.opened().is_empty());
        assert_eq!(ops.get("scope"), Some(&Op::Lost));
    }
}
