//! What the code of a run asks, and what it is answered.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::payload::Payload;
use crate::workflow::entry::{ChildEnd, Ending, StepUndo};

/// What the code asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Leave to run a step.
    Step {
        /// The hash of what it is given.
        hash: Option<String>,
        /// It runs at most once.
        once: bool,
        /// It is written that it begins, also if it could be run twice and needs no undo.
        announced: bool,
        /// How it is undone.
        undo: Option<StepUndo>,
    },
    /// Whether a scope has ended.
    Scope,
    /// To be told at this moment; the first one asked for stands.
    Sleep {
        /// When.
        until: Timestamp,
    },
    /// The next signal of this name.
    Signal {
        /// Which.
        name: String,
    },
    /// To answer this piece of mail.
    Answer {
        /// Its number.
        number: i64,
    },
    /// To start these children, and be told when all of them have ended.
    Children {
        /// The kind of the first.
        kind: String,
        /// They.
        ids: Vec<JobId>,
        /// They are not called off with the run, nor when it does not wait for them any more.
        outlives: bool,
    },
    /// To start these children, and be told who they are.
    Start {
        /// The kind of the first.
        kind: String,
        /// They.
        ids: Vec<JobId>,
        /// They are not called off with the run.
        outlives: bool,
    },
    /// To be told when this child, which was started before, has ended.
    Join {
        /// Which.
        id: JobId,
    },
    /// A value that stays the same; the first one given stands.
    Note {
        /// It.
        value: Payload,
    },
    /// Which version of a piece of code this run goes by: the latest, unless it passed by when there was none.
    Version {
        /// The oldest that the code knows.
        min: u32,
        /// The latest.
        max: u32,
    },
    /// That nothing before is undone any more.
    Pivot,
}

impl Ask {
    /// Whether it is done without waiting for anything.
    pub(super) fn is_at_once(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::Note { .. } | Self::Answer { .. } | Self::Pivot)
    }

    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Step { .. } => "step",
            Self::Scope => "scope",
            Self::Sleep { .. } => "sleep",
            Self::Signal { .. } => "signal",
            Self::Answer { .. } => "answer",
            Self::Children { .. } | Self::Start { .. } | Self::Join { .. } => "children",
            Self::Note { .. } => "value",
            Self::Version { .. } => "version",
            Self::Pivot => "pivot",
        }
    }
}

/// What the code is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Run it; so often it was tried before.
    Go {
        /// Tries before this one.
        tries: u16,
    },
    /// It has ended with this.
    Ended(Ending),
    /// The sleep is over.
    Woke,
    /// A signal has come.
    Signal {
        /// Its number in the mailbox.
        number: i64,
        /// What it carries.
        payload: Payload,
    },
    /// These children were started.
    Started(Vec<JobId>),
    /// The children ended so.
    Children(Vec<ChildEnd>),
    /// The value.
    Value(Payload),
    /// Whether it is new: then do it.
    IsNew(bool),
}

/// What can be done when the code goes no further by itself.
#[derive(Debug, Clone, PartialEq)]
pub enum Rest {
    /// There is an answer for this key: let the code go on.
    Deliver(String),
    /// These steps may begin: let the code go on.
    Go(Vec<String>),
    /// Write what is to be written; no step begins before that is done.
    Flush,
    /// Steps run, or a write is under way. Look again when one of them ends, at `until`, or when mail comes.
    Busy {
        /// When something is due meanwhile.
        until: Option<Timestamp>,
        /// Whether somebody waits for mail.
        mail: bool,
    },
    /// Nothing runs, and everything waits for the clock or for mail. What is not written yet goes with it.
    Wait(Waits),
    /// The code waits for nothing that was asked here.
    Idle,
    /// The code has not come by something that the journal has, and asks for what comes after it. It is other code,
    /// unless it waits for something of its own first.
    Astray(Diff),
    /// The code is not that of the journal.
    Diverged(Diff),
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waits {
    /// The first moment at which something is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// New mail is of use from so many pieces on; 0: mail is of no use.
    pub mail_min: usize,
    /// What is waited for, in words: `signal approve`, `sleep nap`.
    pub what: Vec<String>,
}

/// How code differs from its journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diff {
    /// What the journal has.
    pub journal: String,
    /// What the code does.
    pub code: String,
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the journal has {}, but the code {}", self.journal, self.code)
    }
}
