//! Runs that continue anew: what is left of them when their journal is emptied.

use super::Replay;
use crate::id::JobId;
use crate::workflow::entry::{Began, Entry};
use crate::workflow::talk::Diff;

/// What a run leaves behind that continues anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Numbers of mail that is of no more use.
    pub taken: Vec<i64>,
    /// Children that nobody waits for.
    pub children: Vec<JobId>,
    /// There are steps that would have to be undone if it failed later: their undos would be lost.
    pub owes_undo: bool,
}

impl Replay {
    /// How many steps would be undone if the run failed now, at most.
    pub fn undos(&self) -> usize {
        self.owed
    }

    /// Steps that can be undone, and were about to begin, do not: nothing is owed for them.
    pub fn hold_back(&mut self) {
        self.fresh.retain(|(_, entry)| !matches!(entry, Entry::Began(Began { undo: Some(_), .. })));
    }

    /// What a run leaves behind that continues anew with an empty journal; or why it cannot.
    pub fn renew(&self) -> Result<Left, Diff> {
        self.end()?;
        let owes_undo = self.undos() > 0;
        Ok(Left { taken: self.mailbox.taken(), children: self.wards(), owes_undo })
    }
}
