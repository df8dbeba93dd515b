//! Order among jobs of one key: who takes its turn in a line, and what a dead one does to those behind it.
//!
//! A line is made of a queue, a tenant and a key. Its jobs run one at a time, in the order in which they were
//! enqueued. Refuses a job that asks for order and names no key: nobody could say whose turn it is.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::job::{Job, NewJob, Options};

/// What a dead job does to those behind it in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OnDead {
    /// The line stops until the dead letter is replayed and ends well, or is given up. The default.
    #[default]
    Block,
    /// The next one gets its turn.
    Skip,
}

impl OnDead {
    /// Both policies.
    pub const ALL: [Self; 2] = [Self::Block, Self::Skip];

    /// Its word.
    pub fn word(self) -> &'static str {
        ["block", "skip"][self as usize]
    }
}

impl std::str::FromStr for OnDead {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|p| p.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "policy for those behind a dead job",
            value: word.to_owned(),
            known: "block, skip",
        })
    }
}

/// Where jobs of one key take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line<'a> {
    /// The queue.
    pub queue: &'a str,
    /// The tenant. Jobs without one are in lines of their own.
    pub tenant: Option<&'a str>,
    /// The key.
    pub key: &'a str,
}

impl<'a> Line<'a> {
    fn of(
        queue: &'a str,
        tenant: Option<&'a str>,
        key: Option<&'a str>,
        options: &Options,
    ) -> Option<Self> {
        options.ordered?;
        Some(Self { queue, tenant, key: key? })
    }
}

impl NewJob {
    /// The line it takes its turn in, if it asks for one.
    pub fn line(&self) -> Option<Line<'_>> {
        Line::of(&self.queue, self.tenant.as_deref(), self.key.as_deref(), &self.options)
    }

    pub(super) fn check_order(&self) -> Result<()> {
        match (self.options.ordered, &self.key) {
            (Some(_), None) => Err(Error::KeyMissing),
            _ => Ok(()),
        }
    }
}

impl Job {
    /// The line it takes its turn in, if it asked for one.
    pub fn line(&self) -> Option<Line<'_>> {
        Line::of(&self.queue, self.tenant.as_deref(), self.key.as_deref(), &self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    #[test]
    fn policies_survive_their_words() {
        for policy in OnDead::ALL {
            assert_eq!(policy.word().parse(), Ok(policy));
        }
        assert!("shrug".parse::<OnDead>().is_err());
    }

    #[test]
    fn a_line_is_made_of_queue_tenant_and_key() {
        let mut job = NewJob { key: Some("order:42".into()), ..NewJob::new("k", Payload::null()) };
        assert_eq!(job.line(), None, "a key alone asks for no order");
        job.options.ordered = Some(OnDead::Skip);
        assert_eq!(job.line(), Some(Line { queue: "default", tenant: None, key: "order:42" }));
        job.tenant = Some("acme".into());
        assert_eq!(job.line().unwrap().tenant, Some("acme"));
        assert_eq!(job.check_order(), Ok(()));
        job.key = None;
        assert_eq!(job.check_order(), Err(Error::KeyMissing));
    }
}
