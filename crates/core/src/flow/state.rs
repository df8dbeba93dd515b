//! What the store keeps of a flow and its steps while it goes on.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::flow::{Join, Rest, Undo};
use crate::id::FlowId;

/// Where a flow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FlowState {
    /// It is being written; nothing of it starts.
    Building,
    /// It goes on.
    Running,
    /// All its steps have ended, and no failure was left unanswered.
    Done,
    /// All its steps have ended; one failed, and nothing that comes after it ran.
    Failed,
    /// It was called off, and all its steps have ended.
    Cancelled,
    /// It was called off; what runs is being told.
    Cancelling,
    /// A step of the saga failed, or it was called off: what was done is being undone.
    Undoing,
    /// What was done is undone.
    Undone,
    /// An undo is dead, or a step after the point of no return: somebody has to act.
    Stuck,
}

impl FlowState {
    /// All of them, by their numbers.
    pub const ALL: [Self; 9] = [
        Self::Building,
        Self::Running,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Cancelling,
        Self::Undoing,
        Self::Undone,
        Self::Stuck,
    ];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The state of a number the store kept; unknown ones run.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Running)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        let words = [
            "building",
            "running",
            "done",
            "failed",
            "cancelled",
            "cancelling",
            "undoing",
            "undone",
            "stuck",
        ];
        words[self as usize]
    }

    /// Whether it stays as it is until somebody acts.
    pub fn is_resting(self) -> bool {
        self.is_final() || self == Self::Stuck
    }

    /// Whether nothing of it goes on any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled | Self::Undone)
    }
}

impl std::str::FromStr for FlowState {
    type Err = crate::Error;
    fn from_str(word: &str) -> crate::Result<Self> {
        Self::ALL.into_iter().find(|s| s.word() == word).ok_or_else(|| crate::Error::WordUnknown {
            what: "state of a flow",
            value: word.to_owned(),
            known: "building, running, done, failed, cancelled, cancelling, undoing, undone, stuck",
        })
    }
}

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StepState {
    /// It waits for others.
    Waiting,
    /// It is decided to run, and some of its jobs are still to be let go.
    Opening,
    /// Its jobs are on their way.
    Open,
    /// All its jobs are done.
    Done,
    /// All its jobs have ended, and one of them is dead or was called off.
    Failed,
    /// It will not run.
    Skipped,
}

impl StepState {
    /// All of them, by their numbers.
    pub const ALL: [Self; 6] =
        [Self::Waiting, Self::Opening, Self::Open, Self::Done, Self::Failed, Self::Skipped];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The state of a number the store kept; unknown ones wait.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Waiting)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["waiting", "opening", "open", "done", "failed", "skipped"][self as usize]
    }

    /// Whether nothing of it goes on any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Skipped)
    }
}

/// Whether a step that was skipped counts as one that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// It was not taken, or was not skipped at all: nobody misses it.
    #[default]
    No,
    /// Something before it failed that nobody answers.
    Behind,
    /// It waited for longer than it may: a failure of its own.
    Late,
    /// It waited when its flow was called off. Nobody hears of it before the flow goes on elsewhere.
    CalledOff,
}

impl Lost {
    /// All of them, by their numbers.
    pub const ALL: [Self; 4] = [Self::No, Self::Behind, Self::Late, Self::CalledOff];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The one of a number the store kept; unknown ones are not lost.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or_default()
    }
}

/// What is kept of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRow {
    /// Names it.
    pub id: FlowId,
    /// For people.
    pub name: String,
    /// Where it stands.
    pub state: FlowState,
    /// Jobs that are under way, of a flow that may have only so many.
    pub jobs_open: u64,
    /// At most so many may be.
    pub at_once: Option<u32>,
    /// When it was started.
    pub created_at: Timestamp,
    /// Whether it is a saga.
    pub saga: bool,
}

/// What is kept of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "a row as it is kept: each says one thing")]
pub struct StepRow {
    /// Its number in its flow.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: StepState,
    /// How many jobs it has.
    pub jobs: u64,
    /// How many of them have not ended.
    pub left: u64,
    /// How many are done.
    pub ok: u64,
    /// How many are dead or were called off.
    pub failed: u64,
    /// For how much it waits.
    pub join: Join,
    /// Parents that have not ended.
    pub parents_left: u32,
    /// Parents that ended and count.
    pub came: u32,
    /// Jobs of its parents that ended as wished.
    pub met: u64,
    /// Jobs of its parents that failed where success was wished.
    pub missed: u64,
    /// An edge to it came to nothing, though what it leaves has ended: it will not run.
    pub refused: bool,
    /// Of a step that comes after failures: how many of them may still happen; the largest number, once one has.
    /// `None` of others.
    pub alarms: Option<u32>,
    /// It may be decided by more than that all it comes after succeeded, or before that: edges ask for something, or
    /// some jobs are enough.
    pub early: bool,
    /// Whatever it wants the success of has a branch for its failure: when that is taken, this one is not.
    pub guarded: bool,
    /// Whether it counts as failed although it was skipped.
    pub lost: Lost,
    /// Why it was skipped.
    pub reason: Option<String>,
    /// How it is undone.
    pub undo: Option<Box<Undo>>,
    /// The step that it undoes.
    pub undoes: Option<u32>,
    /// Once it is done, there is no way back.
    pub pivot: bool,
    /// A running job added it.
    pub grown: bool,
    /// It was run again: it is history, and the flow goes by its copy.
    pub superseded: bool,
    /// Jobs of it wait for the clock or in a line when it is opened.
    pub slow: bool,
}

impl StepRow {
    /// A step of so many jobs that has heard nothing and waits for nobody.
    pub fn new(number: u32, name: impl Into<String>, jobs: u64) -> Self {
        Self {
            number,
            name: name.into(),
            state: StepState::Waiting,
            jobs,
            left: jobs,
            ok: 0,
            failed: 0,
            join: Join::default(),
            parents_left: 0,
            came: 0,
            met: 0,
            missed: 0,
            refused: false,
            alarms: None,
            early: false,
            guarded: false,
            lost: Lost::No,
            reason: None,
            undo: None,
            undoes: None,
            pivot: false,
            grown: false,
            superseded: false,
            slow: false,
        }
    }

    /// Whether it failed, or counts as if it had.
    pub fn has_failed(&self) -> bool {
        self.state == StepState::Failed || self.lost != Lost::No
    }

    /// How many of its jobs failed; those of one that was lost all did, and it is one failure at least.
    pub fn failures(&self) -> u64 {
        if self.lost == Lost::No { self.failed } else { self.jobs.max(1) }
    }

    /// Whether its parents that have not ended are to be called off once it is decided.
    pub fn cancels_rest(&self) -> bool {
        self.join.rest == Rest::Cancel
    }
}
