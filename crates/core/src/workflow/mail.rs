//! What has come for a run: signals, and ends of its children. Kept from before anybody waits for it.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::payload::Payload;
use crate::workflow::entry::ChildEnd;

/// One piece of mail. Numbers of a run grow in the order in which it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Its number.
    pub number: i64,
    /// When it came.
    pub at: Timestamp,
    /// What it is.
    pub content: Content,
}

/// What a piece of mail is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// What it carries.
        payload: Payload,
    },
    /// A child has ended.
    Child(ChildEnd),
    /// It was taken before the run continued anew, and is kept for its id alone.
    Taken,
}

/// The mail of a run, as far as it was read, without what was taken.
#[derive(Debug, Clone, Default)]
pub struct Mailbox {
    /// The number of the last piece that was read.
    last: i64,
    signals: HashMap<String, BTreeMap<i64, (Timestamp, Payload)>>,
    children: HashMap<JobId, (Timestamp, ChildEnd)>,
    taken: HashSet<i64>,
}

impl Mailbox {
    /// Up to where it was read.
    pub fn last(&self) -> i64 {
        self.last
    }

    /// Reads further mail. A child's first end counts.
    pub fn read(&mut self, mail: impl IntoIterator<Item = Mail>) {
        for Mail { number, at, content } in mail {
            self.last = self.last.max(number);
            match content {
                Content::Signal { name, payload } if !self.taken.contains(&number) => {
                    self.signals.entry(name).or_default().insert(number, (at, payload));
                }
                Content::Signal { .. } => {}
                Content::Taken => drop(self.taken.insert(number)),
                Content::Child(end) => {
                    // Whoever continues anew has no children: then it is over.
                    self.taken.insert(number);
                    self.children.entry(end.id).or_insert((at, end));
                }
            }
        }
    }

    /// Notes that the journal has this signal.
    pub fn forget(&mut self, name: &str, number: i64) {
        self.taken.insert(number);
        if let Some(waiting) = self.signals.get_mut(name) {
            waiting.remove(&number);
        }
    }

    /// The numbers of the pieces that are of no more use once the run has no journal.
    pub fn taken(&self) -> Vec<i64> {
        let mut taken: Vec<i64> = self.taken.iter().copied().collect();
        taken.sort_unstable();
        taken
    }

    /// When the first signal of this name came that nobody took.
    pub fn first(&self, name: &str) -> Option<Timestamp> {
        self.signals.get(name)?.values().next().map(|(at, _)| *at)
    }

    /// Takes the first signal of this name.
    pub fn take(&mut self, name: &str) -> Option<(i64, Payload)> {
        let (number, (_, payload)) = self.signals.get_mut(name)?.pop_first()?;
        self.taken.insert(number);
        Some((number, payload))
    }

    /// How many of these children have not ended.
    pub fn left(&self, ids: &[JobId]) -> usize {
        ids.iter().filter(|id| !self.children.contains_key(id)).count()
    }

    /// When the last of these children ended; `None` while one has not.
    pub fn all_ended(&self, ids: &[JobId]) -> Option<Timestamp> {
        let ends = ids.iter().map(|id| self.children.get(id).map(|(at, _)| *at));
        ends.collect::<Option<Vec<_>>>().map(|ends| ends.into_iter().max().unwrap_or_default())
    }

    /// How many of these children, from the first on, returned no more bytes than this together; one at least.
    pub fn page(&self, ids: &[JobId], bytes_max: usize) -> usize {
        let mut bytes = 0;
        let fits = ids.iter().take_while(|id| {
            bytes += self.children.get(id).map_or(0, |(_, end)| end.bytes());
            bytes <= bytes_max
        });
        fits.count().max(1).min(ids.len())
    }

    /// How these children ended, in this order.
    pub fn ends(&self, ids: &[JobId]) -> Vec<ChildEnd> {
        ids.iter().filter_map(|id| self.children.get(id)).map(|(_, end)| end.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(number: i64, name: &str) -> Mail {
        let content = Content::Signal { name: name.into(), payload: Payload::null() };
        Mail { number, at: Timestamp::UNIX_EPOCH, content }
    }

    #[test]
    fn signals_are_taken_in_order_and_once() {
        let mut mailbox = Mailbox::default();
        mailbox.forget("a", 1);
        mailbox.read([signal(1, "a"), signal(2, "b"), signal(3, "a"), signal(4, "a")]);
        assert_eq!(mailbox.last(), 4);
        let mut taken = || mailbox.take("a").map(|(number, _)| number);
        assert_eq!((taken(), taken(), taken()), (Some(3), Some(4), None));
        mailbox.read([signal(3, "a")]);
        assert_eq!(mailbox.take("a"), None);
    }
}
