//! Joins of many children: what they returned is written page by page, so that no entry, and no write, has all of it.
//!
//! A run that is lost in between goes on with the next page: mail is kept, so every end is still there.

use std::collections::VecDeque;

use super::{Op, Replay, Rest};
use crate::id::JobId;
use crate::payload::Payload;
use crate::workflow::JOINED_BYTES_MAX;
use crate::workflow::entry::{ChildEnd, Entry, Outputs, put_outputs_back};
use crate::workflow::talk::Answer;

/// What the journal has of a join.
#[derive(Debug, Default)]
pub(super) struct Pages {
    ends: Vec<ChildEnd>,
    /// What stands beside its entries and was not read yet: where, of how many, from which on.
    pub(super) aside: VecDeque<(Outputs, usize, usize)>,
}

impl Replay {
    /// Notes a page; answers all ends with the last one.
    pub(super) fn learn_page(
        &mut self,
        key: &str,
        ends: Vec<ChildEnd>,
        more: bool,
        aside: Option<Outputs>,
    ) -> Option<Answer> {
        self.learn_joined(&ends);
        let pages = self.pages.entry(key.to_owned()).or_default();
        pages.aside.extend(aside.map(|outputs| (outputs, ends.len(), pages.ends.len())));
        pages.ends.extend(ends);
        (!more).then(|| Answer::Children(std::mem::take(&mut pages.ends)))
    }

    /// Whether all that is left of a join is one page, which may go with what is written next.
    pub(super) fn is_last_page(&self, key: &str, ids: &[JobId]) -> bool {
        let left = self.unpaged(key, ids);
        self.mailbox.page(left, JOINED_BYTES_MAX) == left.len()
    }

    fn unpaged<'a>(&self, key: &str, ids: &'a [JobId]) -> &'a [JobId] {
        let written = self.pages.get(key).map_or(0, |pages| pages.ends.len());
        ids.get(written..).unwrap_or_default()
    }

    /// Children have all ended: the next page of that is written, and with the last one the code is told.
    pub(super) fn join(&mut self, key: String, ids: &[JobId]) -> Rest {
        let left = self.unpaged(&key, ids);
        let page = self.mailbox.page(left, JOINED_BYTES_MAX);
        let more = page < left.len();
        let ends = self.mailbox.ends(&left[..page]);
        self.learn_joined(&ends);
        let entry = Entry::Joined { key: key.clone(), ends: ends.clone(), more, aside: None };
        self.push(entry);
        if more {
            self.pages.entry(key).or_default().ends.extend(ends);
            return Rest::Flush;
        }
        self.pages.remove(&key);
        let all = self.mailbox.ends(ids);
        self.supersede(&key);
        self.learn_child_failure(self.next - 1, &key, &all);
        self.deliver(key, Answer::Children(all))
    }

    /// What children returned was read; `false` if it is not of them.
    pub(super) fn fetched_outputs(&mut self, key: &str, outputs: &Payload) -> bool {
        let aside = self.pages.get_mut(key).and_then(|pages| pages.aside.pop_front());
        let (Some((_, ends, from)), Some(Op::Answered(Answer::Children(all)))) =
            (aside, self.ops.get_mut(key))
        else {
            return false;
        };
        let page = all.get_mut(from..from + ends);
        page.is_some_and(|page| put_outputs_back(page, outputs))
    }
}
