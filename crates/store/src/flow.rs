//! What the engine asks of a store about flows, and what it is answered.

pub mod progress;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) mod round;
pub mod text;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::flow::{Board, FlowState, Join, On, Part, Plan, StepState, Undo};
use tidemill_core::{Error as Invalid, FlowId, JobId, NewJob, Payload};

use crate::error::Result;
use crate::run::Debt;
pub use progress::FlowProgress;

/// Outputs up to this size are given with a job that waited for them; larger ones are asked for.
pub const INLINE_BYTES_MAX: usize = 32 * 1024;
/// Flows of one page, at most.
pub const PAGE_FLOWS_MAX: usize = 1000;

/// How a flow is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It begins at once.
    Now,
    /// It begins at once, if its queues have room for what is first in it; else nothing is written (`queue_full`).
    IfRoom,
    /// It begins when [`Flows::begin_flow`] says so; until then its steps may be given more jobs.
    Later,
    /// It begins at once, and a run owes this no more; nothing is written if it does not, because somebody else has
    /// written the flow for it.
    Pays(Debt),
}

/// What is to be done with a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlowAct {
    /// Call it off: what waits is skipped, what is on its way is called off, and it ends when that has ended.
    Cancel {
        /// Why.
        reason: String,
    },
    /// Call it off, if it has not begun.
    Discard {
        /// Why.
        reason: String,
    },
    /// Send its dead jobs on their way again; what was skipped because of them waits again.
    Retry {
        /// Those of this step only, and with them those that were called off. If it has none, and nothing but a
        /// call-off kept the flow from going on at this step or behind it, it goes on there.
        step: Option<String>,
        /// Who wants it.
        by: String,
        /// Why. Asked for if it is a saga that is stuck.
        why: Option<String>,
    },
    /// Let a step and everything behind it run again, as fresh jobs; what has run stays as history.
    Rerun {
        /// Which step.
        step: String,
    },
    /// Let a dead job of a step count as done: somebody has seen to it, or it is to be left out. Noted on its dead
    /// letter.
    Resolve {
        /// Which step.
        step: String,
        /// What it is to have returned.
        output: Option<Payload>,
        /// Who says so.
        by: String,
        /// Why.
        why: String,
    },
}

/// What became of an act on a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum FlowAnswer {
    /// It was done; so many jobs are on their way again, or had not ended when the flow was called off.
    Acted {
        /// How many.
        jobs: u64,
    },
    /// The part was added before; it had so many jobs.
    Repeated {
        /// How many.
        jobs: u64,
    },
    /// Another part has this key.
    PartReused,
    /// It could never work.
    Invalid {
        /// The culprit.
        step: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is a saga that is stuck, and nobody said why it is to go on.
    WhyMissing,
    /// The flow has not such a step.
    StepUnknown,
    /// The flow stands where this cannot be done.
    NotNow {
        /// Why not.
        why: String,
    },
    /// There is no such flow.
    Unknown,
}

impl FlowAnswer {
    /// What is answered when the key of a part was used before, for one that is told by this print and had so many
    /// jobs.
    pub(crate) fn of_known_part(part: &Part, print: &str, jobs: i64) -> Self {
        if part.print == print {
            Self::Repeated { jobs: u64::try_from(jobs).unwrap_or(0) }
        } else {
            Self::PartReused
        }
    }

    /// What is answered to one who lets a flow begin that has begun, was called off before, or could never work;
    /// nothing if it may. The board must know the whole flow.
    pub(crate) fn of_begin(board: &Board) -> Option<Self> {
        match board.may_not_be_built() {
            None => board.check_whole().err().map(Self::from),
            Some(_) if board.has_begun() => Some(Self::Acted { jobs: 0 }),
            Some(why) => Some(Self::NotNow { why }),
        }
    }

    /// What is answered to one who throws away a flow that has begun, or was called off before; nothing if it is being
    /// built. The board must know the whole flow.
    pub(crate) fn of_discard(board: &Board) -> Option<Self> {
        let why = board.may_not_be_built()?;
        Some(if board.has_begun() { Self::NotNow { why } } else { Self::Acted { jobs: 0 } })
    }

    /// That a step, or what it was to be given, could never work.
    pub(crate) fn invalid(step: &str, reason: &str) -> Self {
        Self::Invalid { step: step.to_owned(), reason: reason.to_owned() }
    }
}

impl From<Invalid> for FlowAnswer {
    fn from(invalid: Invalid) -> Self {
        match invalid {
            Invalid::FlowInvalid { step, reason } => Self::Invalid { step, reason },
            other => Self::NotNow { why: other.to_string() },
        }
    }
}

/// Why nothing of a flow is sent again.
pub(crate) const NONE_DEAD: &str = "none of its jobs is dead and can run again; what was called off is sent again \
                                    if its step is named and has let all its jobs go";

/// Why nothing goes on of a flow that is being forgotten: jobs of it may be gone.
pub(crate) const FORGOTTEN: &str =
    "the time for which it was kept is over, and it is being forgotten; start a new flow instead";

/// Why a job is not taken into a flow.
pub(crate) const ID_TAKEN: &str = "a job of it has the id of another job; make it anew";

/// Which flows to list. Every condition given must hold. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowFilter {
    /// In this state.
    pub state: Option<FlowState>,
    /// Of this name.
    pub name: Option<String>,
    /// Made before this one: the last id of the page before.
    pub before: Option<FlowId>,
    /// At most this many. Defaults to 0, which means 50; at most 1,000.
    pub limit: usize,
}

impl FlowFilter {
    /// The number of rows of a page.
    pub fn page_rows(&self) -> usize {
        if self.limit == 0 { 50 } else { self.limit.min(PAGE_FLOWS_MAX) }
    }
}

/// A flow and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowHead {
    /// Names it.
    pub id: FlowId,
    /// For people.
    pub name: String,
    /// Where it stands.
    pub state: FlowState,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Why it was called off.
    pub reason: Option<String>,
    /// How many steps it has.
    pub steps_all: u64,
    /// How many of them have not ended.
    pub steps_left: u64,
    /// How many jobs it has.
    pub jobs: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many are dead or were called off.
    pub failed: u64,
    /// At most so many of its jobs are under way at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// Since when it is being called off or undone, or is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

/// A flow with its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowView {
    /// The whole.
    #[serde(flatten)]
    pub head: FlowHead,
    /// How far it is.
    #[serde(default)]
    pub progress: FlowProgress,
    /// Its steps, in the order in which they were given.
    pub steps: Vec<StepView>,
}

/// A step of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepView {
    /// Its number in its flow.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// The kind of its first job.
    pub kind: Option<String>,
    /// Its first job.
    pub first: Option<JobId>,
    /// Where it stands.
    pub state: StepState,
    /// How many jobs it has.
    pub jobs: u64,
    /// How many are done.
    pub done: u64,
    /// How many are dead or were called off.
    pub failed: u64,
    /// For how much it waits.
    pub join: Join,
    /// What it comes after.
    pub after: Vec<AfterView>,
    /// When it was let go.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Why it was skipped.
    pub reason: Option<String>,
    /// The job that undoes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// The step that it undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<u32>,
    /// Once it is done, there is no way back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pivot: bool,
    /// It was run again: it is history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superseded: bool,
}

impl FlowView {
    /// The step that a step undoes, if it is an undo.
    pub fn undoes(&self, step: u32) -> Option<u32> {
        self.steps.iter().find(|known| known.number == step)?.undoes
    }

    /// The step that is to undo this one, if that was planned and is not done.
    pub fn undo_of(&self, step: u32) -> Option<&StepView> {
        let is_left = |undo: &&StepView| !undo.superseded && undo.state != StepState::Done;
        self.steps.iter().filter(is_left).find(|undo| undo.undoes == Some(step))
    }

    /// Whether undos were planned: nothing but them goes on.
    pub fn has_turned_back(&self) -> bool {
        self.steps.iter().any(|step| step.undoes.is_some())
    }

    /// What would be undone if the flow turned back now, in this order: steps that are done, latest first, behind those
    /// that run and may be done by then. While it turns back, and while it is stuck there: what is not undone yet.
    /// Empty once it is past its point of no return, or over.
    pub fn would_undo(&self) -> Vec<&StepView> {
        let is_past = self.steps.iter().any(|step| step.pivot && step.state == StepState::Done);
        let state = self.head.state;
        let may_undo = matches!(state, FlowState::Running | FlowState::Undoing | FlowState::Stuck);
        if is_past || !may_undo {
            return Vec::new();
        }
        // Undos are planned when nothing runs any more: from then on they say what is left.
        let is_meant = |step: &&StepView| {
            if self.has_turned_back() {
                return self.undo_of(step.number).is_some();
            }
            matches!(step.state, StepState::Open | StepState::Done)
        };
        let mut steps: Vec<&StepView> =
            self.steps.iter().filter(|step| step.undo.is_some()).filter(is_meant).collect();
        steps.sort_by_key(|step| (step.ended_at.is_some(), step.ended_at, step.number));
        let running = steps.iter().position(|step| step.ended_at.is_some()).unwrap_or(steps.len());
        steps[running..].reverse();
        steps
    }
}

/// An edge, as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AfterView {
    /// The step it comes from.
    pub step: String,
    /// How that must have ended.
    pub on: On,
    /// What must hold of its output.
    pub when: Option<String>,
    /// Whether it does, once that is known.
    pub held: Option<bool>,
}

/// What a job gets of a step that its own step comes after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The name of that step.
    pub step: String,
    /// Its number.
    pub number: u32,
    /// Where it stands.
    pub state: StepState,
    /// How many jobs it has.
    pub jobs: u64,
    /// How many are done.
    pub done: u64,
    /// How many are dead or were called off.
    pub failed: u64,
    /// What its only job returned, if that is not larger than [`INLINE_BYTES_MAX`].
    pub output: Option<Payload>,
}

/// What one job of a step returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Output {
    /// Which job.
    pub id: JobId,
    /// What it returned; `None` when it is dead or was called off.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub output: Option<Payload>,
}

/// The part of a store that keeps flows.
///
/// What a job's end means for its flow commits with the end (`settle`, `cancel`, `rescue`), or is recorded
/// with it and carried out right after; a process that dies in between is made up for by `tend_flows`.
#[async_trait]
pub trait Flows {
    /// Writes a flow, all of it or nothing. `false`: one with this id was written before.
    async fn start_flow(&self, plan: Plan, start: Start) -> Result<bool>;

    /// Gives a step more jobs, all or none; only while its flow is being built. A job that is there already stays,
    /// and a part that was added before adds nothing, whatever has become of the flow since.
    async fn add_to_flow(
        &self,
        id: FlowId,
        step: &str,
        jobs: Vec<NewJob>,
        part: Option<Part>,
    ) -> Result<FlowAnswer>;

    /// Lets a flow begin that was being built, if it could ever work, and its queues have room for what is first in it
    /// (else `queue_full`). Says so again if it has begun.
    async fn begin_flow(&self, id: FlowId) -> Result<FlowAnswer>;

    /// Acts on a flow.
    async fn change_flow(&self, id: FlowId, act: FlowAct) -> Result<FlowAnswer>;

    /// A flow with its steps.
    async fn flow(&self, id: FlowId) -> Result<Option<FlowView>>;

    /// The queues and tenants that its jobs are of, each once. Looks at every job of the flow.
    async fn flow_places(&self, id: FlowId) -> Result<Vec<(String, Option<String>)>>;

    /// A page of flows, newest first.
    async fn flows(&self, filter: &FlowFilter) -> Result<Vec<FlowHead>>;

    /// What the steps before these returned; answers stand in their order.
    async fn inputs(&self, places: &[(FlowId, u32)]) -> Result<Vec<Vec<Input>>>;

    /// A page of what the jobs of a step returned, by id, after this one.
    async fn outputs(
        &self,
        id: FlowId,
        step: u32,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<Output>>;

    /// Waits until what ended in this process so far has carried its flows on. Nobody needs to, but who wants to see
    /// what comes of it.
    async fn rest_flows(&self) {}

    /// Does what flows wait for and no job's end does: lets large steps go page by page, calls off, ends what
    /// is late, forgets what is over. `true`: there is more to do at once. Any number of nodes may call it.
    async fn tend_flows(&self) -> Result<bool>;
}
