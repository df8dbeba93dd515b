//! What people do with runs, and how it is kept.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::JobId;
use tidemill_core::stream::Said;
use tidemill_core::workflow::{ActWord, Amend, Ending};

use super::RunView;

/// What is to be done with a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAct {
    /// It is not woken until it is resumed; what runs goes on until it waits.
    Pause,
    /// It goes on if it is parked for want of a key, and nobody has paused it.
    Unlock,
    /// It goes on, whether it was paused or parked.
    Resume {
        /// How many entries its journal may have from now on; `None`: as many as before.
        journal_entries_max: Option<u32>,
    },
    /// Its journal is changed, and it goes on from there. Only while it waits, or is dead with nothing undone.
    Amend(Amend),
    /// It is called off.
    Cancel,
    /// A new run goes on from a step of it, whatever state it is in.
    Fork {
        /// The step, or whatever else has a key.
        to: String,
        /// The new run.
        into: JobId,
        /// This one is called off, unless it has finished.
        instead: bool,
    },
}

/// An act on a run, signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOrder {
    /// What is to be done.
    pub act: RunAct,
    /// Who wants it.
    pub by: String,
    /// Why; may be empty.
    pub why: String,
}

/// An act on a run as it is to be kept.
#[derive(Debug, Clone)]
pub(crate) struct Act<'a> {
    pub word: ActWord,
    pub step: Option<&'a str>,
    pub by: &'a str,
    pub why: &'a str,
    pub other: Option<JobId>,
    /// What the step had ended with, and has since.
    pub endings: Endings,
}

/// What the step of an act had ended with, and has since.
pub(crate) type Endings = (Option<Ending>, Option<Ending>);

impl<'a> Act<'a> {
    /// The act of an order, with no endings.
    pub fn of(order: &'a RunOrder) -> Self {
        let RunOrder { by, why, .. } = order;
        let (word, step, other) = (order.word(), order.step(), order.other());
        Self { word, step, by, why, other, endings: Endings::default() }
    }
}

impl RunOrder {
    /// The word it is kept under.
    pub(crate) fn word(&self) -> ActWord {
        match &self.act {
            RunAct::Pause => ActWord::Paused,
            RunAct::Unlock | RunAct::Resume { .. } => ActWord::Resumed,
            RunAct::Amend(amend) => amend.act(),
            RunAct::Cancel => ActWord::Cancelled,
            RunAct::Fork { .. } => ActWord::Forked,
        }
    }

    /// What the stream of the run says of it, if it stood so before.
    pub(crate) fn said(&self, before: &RunView) -> Option<Said> {
        let (is_paused, is_parked) = (before.paused, before.parked.is_some());
        match &self.act {
            RunAct::Pause if !is_paused => Some(Said::Paused),
            RunAct::Unlock => Some(Said::Resumed),
            RunAct::Resume { .. } if is_paused || is_parked => Some(Said::Resumed),
            // A pause lasts.
            RunAct::Amend(_) if is_parked && !is_paused => Some(Said::Resumed),
            _ => None,
        }
    }

    /// The step it is about.
    pub(crate) fn step(&self) -> Option<&str> {
        match &self.act {
            RunAct::Amend(amend) => Some(amend.step()),
            RunAct::Fork { to, .. } => Some(to),
            _ => None,
        }
    }

    /// The other run it is about.
    pub(crate) fn other(&self) -> Option<JobId> {
        match &self.act {
            RunAct::Fork { into, .. } => Some(*into),
            _ => None,
        }
    }

    /// Why the job is called off, as it will say.
    pub(crate) fn reason(&self) -> &str {
        if self.why.is_empty() { "called off by an operator" } else { &self.why }
    }
}

/// What became of an act on a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAnswer {
    /// It was done.
    Acted,
    /// It runs, and its handler is told that it was called off.
    Told,
    /// It runs or has finished: this cannot be done now, and nothing was.
    NotNow,
    /// Its journal does not allow it, and nothing was done.
    Refused(String),
    /// There is no such run.
    Unknown,
}

/// An act on a run, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunActView {
    /// When.
    pub at: Timestamp,
    /// What was done.
    pub act: ActWord,
    /// To which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// By whom.
    pub by: String,
    /// Why; may be empty.
    pub why: String,
    /// The run it was forked into, or from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<JobId>,
    /// What the step had ended with before, or what the signal carried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<Ending>,
    /// What it has ended with since, what the signal carries, or how many entries the journal may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub became: Option<Ending>,
}
