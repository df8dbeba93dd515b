//! Children: who was started, who is waited for, and who is to be called off when nobody can wait any more.

use super::{Kept, Op, Replay};
use crate::id::JobId;
use crate::workflow::entry::{ChildEnd, Entry};
use crate::workflow::talk::Answer;

impl Replay {
    /// Notes children that were started.
    pub(super) fn learn_started(&mut self, ids: &[JobId], outlives: bool) {
        self.children.extend(ids.iter().map(|id| (*id, outlives)));
    }

    /// Notes children whose end the code has heard.
    pub(super) fn learn_joined(&mut self, ends: &[ChildEnd]) {
        for end in ends {
            // They need not be called off any more.
            self.children.insert(end.id, true);
        }
    }

    /// Starts children that are waited for under the same key.
    pub(super) fn raise(
        &mut self,
        key: &str,
        kept: Kept,
        (kind, ids): (String, Vec<JobId>),
        outlives: bool,
    ) -> Op {
        let ids = kept.ids.unwrap_or_else(|| {
            self.begin(key, kind, ids.clone(), outlives, false);
            ids
        });
        Op::Joining { ids, leaves: outlives }
    }

    /// Starts children that are waited for later.
    pub(super) fn start(
        &mut self,
        key: &str,
        kept: Kept,
        (kind, ids): (String, Vec<JobId>),
        outlives: bool,
    ) -> Answer {
        Answer::Started(kept.ids.unwrap_or_else(|| {
            self.begin(key, kind, ids.clone(), outlives, true);
            ids
        }))
    }

    /// Starts children anew that are waited for under the same key.
    pub(super) fn start_anew(
        &mut self,
        key: &str,
        (kind, ids): (String, Vec<JobId>),
        outlives: bool,
    ) -> Answer {
        self.begin(key, kind, ids.clone(), outlives, false);
        Answer::Started(ids)
    }

    fn begin(&mut self, key: &str, kind: String, ids: Vec<JobId>, outlives: bool, later: bool) {
        self.learn_started(&ids, outlives);
        self.push(Entry::Started { key: key.to_owned(), kind, ids, outlives, later });
    }

    /// Whether this is a child that the run has started, as far as its journal knows.
    pub fn has_child(&self, id: JobId) -> bool {
        self.children.contains_key(&id)
    }

    /// The children that are to be called off if nobody can wait for them any more.
    pub(super) fn wards(&self) -> Vec<JobId> {
        self.children.iter().filter(|(_, outlives)| !**outlives).map(|(id, _)| *id).collect()
    }
}
