//! A flow: jobs joined by edges. What it is made of, before anything of it is written.
//!
//! A flow has steps. A step has a name and one job, or many; it waits for the steps it comes after,
//! and its join says for how many of them. [`plan`] checks a flow and turns it into rows; [`board`]
//! is the rule by which it goes on when jobs end; [`condition`] judges the expressions on its edges;
//! [`part`] is about flows that are not sent whole.

mod again;
pub mod board;
pub mod condition;
pub mod growth;
mod nest;
pub mod part;
pub mod plan;
pub mod rerun;
pub mod saga;
pub mod state;

use serde::{Deserialize, Serialize};

use crate::id::FlowId;
use crate::job::{Due, NewJob};
use crate::limit::SPAN_MS_MAX;
pub use board::{Arrival, Board, Changes};
pub use part::{Part, Way};
pub use plan::{Plan, PlannedJob};
pub use rerun::Rerun;
pub use saga::{Undo, UndoRule};
pub use state::{FlowRow, FlowState, Lost, StepRow, StepState};

/// Steps of one flow, at most.
pub const STEPS_MAX: usize = 10_000;
/// Edges of one flow, at most.
pub const EDGES_MAX: usize = 100_000;
/// Steps of one saga, at most: it is looked at as a whole.
pub const SAGA_STEPS_MAX: usize = 1000;
/// The longest expression on an edge.
pub const WHEN_BYTES_MAX: usize = 4 * 1024;
/// How deep flows may be nested.
pub const NESTING_MAX: usize = 16;

/// A flow as it is started.
#[derive(Debug, Clone, PartialEq)]
pub struct Flow {
    /// Made by the caller's side, so that sending it twice starts it once.
    pub id: FlowId,
    /// A word for people; many flows may share it.
    pub name: String,
    /// What it consists of.
    pub steps: Vec<Step>,
    /// How the whole is treated.
    pub options: FlowOptions,
}

/// How a flow is treated as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowOptions {
    /// It is called off if it has not ended this long after its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_within_ms: Option<u64>,
    /// It is kept this long after it ended, with all its jobs. Defaults to as long as its engine keeps
    /// finished jobs or, if it failed or was undone, dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_ms: Option<u64>,
    /// At most so many of its jobs are under way at once: waiting for a slot, for their next attempt, or
    /// running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    /// It is a saga: when a step fails before the point of no return, what was done is undone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub saga: bool,
    /// It does not begin before it is told to; until then its steps are given more jobs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub building: bool,
}

impl FlowOptions {
    /// The same with numbers that a database can reckon with: longer is for ever, and more is all.
    fn bounded(self) -> Self {
        Self {
            finish_within_ms: self.finish_within_ms.map(|ms| ms.min(SPAN_MS_MAX)),
            retain_ms: self.retain_ms.map(|ms| ms.min(SPAN_MS_MAX)),
            at_once: self.at_once.map(|jobs| jobs.min(i32::MAX.unsigned_abs())),
            ..self
        }
    }
}

/// A named piece of a flow's work.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Unique in its flow.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// What it waits for.
    pub after: Vec<After>,
    /// For how much of that.
    pub join: Join,
    /// How it is undone, in a saga.
    pub undo: UndoRule,
    /// Once it is done, there is no way back: what fails is retried forward.
    pub pivot: bool,
}

impl Step {
    /// A step that comes after nothing.
    pub fn new(name: impl Into<String>, work: Work) -> Self {
        let (name, join) = (name.into(), Join::default());
        Self { name, work, after: Vec::new(), join, undo: UndoRule::Missing, pivot: false }
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Jobs; any number of them is one step, and ends when the last of them has.
    Jobs(Vec<NewJob>),
    /// A flow within the flow: its steps are named `outer/inner`. It ends when its last steps have.
    Flow(Vec<Step>),
}

/// An edge: what a step waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct After {
    /// Which step.
    pub step: String,
    /// How that must have ended.
    #[serde(default, skip_serializing_if = "On::is_success")]
    pub on: On,
    /// An expression over its output that must hold, in CEL: `output.total > 100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

impl After {
    /// After this step has succeeded.
    pub fn success(step: impl Into<String>) -> Self {
        Self { step: step.into(), on: On::Success, when: None }
    }
}

/// How a step must have ended for an edge to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum On {
    /// Well. The default.
    #[default]
    Success,
    /// With a job that is dead or was called off.
    Failure,
    /// Either way; not when it was not taken.
    Either,
}

impl On {
    /// All of them, by their numbers.
    pub const ALL: [Self; 3] = [Self::Success, Self::Failure, Self::Either];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The one of a number the store kept; unknown ones want success.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or_default()
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_success(&self) -> bool {
        *self == Self::Success
    }
}

/// For how much of what it comes after a step waits. Jobs are counted, not steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Join {
    /// For how much.
    pub need: Need,
    /// It waits no longer than this after the start of the flow: what has not ended then counts as
    /// failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(format = "uint64", maximum = 18_446_744_073_709_551_615_u64)
    )]
    pub within_ms: Option<u64>,
    /// What those that have not ended get once this is decided.
    #[serde(skip_serializing_if = "Rest::goes_on")]
    pub rest: Rest,
}

impl Join {
    /// The same with a span that a database can reckon with: longer is for ever.
    fn bounded(self) -> Self {
        Self { within_ms: self.within_ms.map(|ms| ms.min(SPAN_MS_MAX)), ..self }
    }

    /// Whether it waits for so many jobs only.
    pub fn is_quorum(&self) -> bool {
        matches!(self.need, Need::Quorum { .. })
    }

    /// Whether it may be met although something failed.
    pub fn bears(&self) -> bool {
        self.need != Need::default()
    }
}

/// For how much a join waits. Parents that were not taken are not waited for; when no others are left, the step is
/// skipped too. Those that could not run because something failed count as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Need {
    /// All end, and at most so many fail. None may by default.
    All {
        /// So many failures are borne.
        #[serde(default)]
        #[cfg_attr(feature = "openapi", schema(format = Int64, maximum = 4_294_967_295_i64))]
        failures_max: u32,
    },
    /// All end, however.
    Finished,
    /// So many succeed; the others are not waited for.
    Quorum {
        /// How many.
        #[cfg_attr(feature = "openapi", schema(format = Int64, maximum = 4_294_967_295_i64))]
        jobs: u32,
    },
}

impl Default for Need {
    fn default() -> Self {
        Self::All { failures_max: 0 }
    }
}

/// What those get that a decided join does not wait for any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Rest {
    /// They go on. The default.
    #[default]
    GoOn,
    /// They are called off.
    Cancel,
}

impl Rest {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn goes_on(&self) -> bool {
        *self == Self::GoOn
    }
}

/// The number and the name of a step that is added to a flow which the board knows whole.
pub fn next_step(board: &Board, wanted: &str) -> (u32, String) {
    let names: std::collections::BTreeSet<&str> =
        board.steps().map(|step| step.name.as_str()).collect();
    let number = board.steps().last().map_or(0, |step| step.number + 1);
    let numbered = (2..).map(|n: u32| format!("{wanted}#{n}"));
    let free = std::iter::once(wanted.to_owned())
        .chain(numbered)
        .find(|name| !names.contains(name.as_str()));
    (number, free.unwrap_or_else(|| wanted.to_owned()))
}

/// An edge between two steps, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// What is waited for.
    pub from: u32,
    /// What waits.
    pub to: u32,
    /// How it must have ended.
    pub on: On,
    /// What must hold of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Whether it does, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
}

/// Where a job stands in a flow. It travels with the job's options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Place {
    /// Which flow.
    pub id: FlowId,
    /// The number of its step.
    pub step: u32,
    /// The name of its step.
    pub name: String,
    /// Whether its step waits for others, whose outputs it may read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins: bool,
    /// It is still to be given a step of its own, of this name, behind the step of this number.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grows: bool,
    /// When it may start after its step was opened, if not at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub due: Option<Due>,
    /// Which way its flow goes when something fails that it adds.
    #[serde(default, skip_serializing_if = "Way::is_plain")]
    pub way: Way,
}
