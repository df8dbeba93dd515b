//! The work that is done under fire: one kind of job, told by its payload what to come to.

use serde::{Deserialize, Serialize};
use tidemill::{Job, JobId};

/// What a job is made to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Succeeds at once.
    Plain,
    /// Fails so often, then succeeds.
    Flaky(u16),
    /// Succeeds, and is followed by a child.
    Parent,
    /// Follows a parent.
    Child,
    /// Can only fail.
    Fatal,
    /// Aborts the process that runs it.
    Killer,
}

/// The payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Work {
    pub plan: Plan,
    /// How long its handler takes.
    pub takes_ms: u64,
}

impl Job for Work {
    const KIND: &'static str = "work";
    /// The token of the attempt that succeeded.
    type Output = i64;
}

/// The id of a parent's child: the same whichever attempt enqueues it.
pub fn child_of(parent: JobId) -> JobId {
    JobId(uuid_of(parent.0.as_u128() ^ 1))
}

/// The parent whose child this would be.
pub fn parent_of(child: JobId) -> JobId {
    child_of(child)
}

fn uuid_of(bits: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(bits)
}
