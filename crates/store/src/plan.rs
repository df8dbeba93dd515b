//! What the engine asks of a store about plans for dead letters, and what it is answered.
//!
//! A plan and the letters it names are written in one transaction. It is applied and undone in batches, each in one
//! transaction with its marks, so that whoever was stopped goes on where the last batch ended, from any node.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::dead::DeadFilter;
use tidemill_core::dead::plan::{Act, Stage};
use tidemill_core::{ErrorClass, JobId, PlanId};

use crate::error::{Error, Result};

/// The most groups that a plan shows.
pub const GROUPS_MAX: usize = 20;
/// The most examples of a group.
pub const EXAMPLES_MAX: usize = 3;

/// A plan that is to be kept. Sent again under the same id, it is the same.
#[derive(Debug, Clone)]
pub struct NewPlan {
    /// Names it for ever.
    pub id: PlanId,
    /// Who makes it.
    pub by: String,
    /// What it does.
    pub act: Act,
    /// Why.
    pub why: String,
    /// To which letters.
    pub filter: DeadFilter,
    /// How long it may be applied, by the store's clock.
    pub apply_within: Duration,
    /// How long it is kept after that, if nobody applies it.
    pub kept: Duration,
    /// It has no more letters than this.
    pub letters_max: usize,
}

/// What became of a plan that was to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    /// It is kept.
    Made(Box<PlanView>),
    /// More letters match than it may have; nothing was written.
    TooLarge,
}

/// Letters of a plan that died of the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanGroup {
    /// What groups them.
    pub fingerprint: String,
    /// Their kind.
    pub kind: String,
    /// What kind of failure it was.
    pub class: ErrorClass,
    /// What one of them said.
    pub error: String,
    /// How many the plan has.
    pub count: u64,
    /// The latest of them, at most three.
    pub examples: Vec<JobId>,
}

/// A plan, and how far it has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanView {
    /// Names it; what it is applied and undone by.
    pub id: PlanId,
    /// Where it stands.
    pub stage: Stage,
    /// What it does.
    pub act: Act,
    /// Whether that can be taken back. A replay only of those that have not started since.
    pub undoable: bool,
    /// To which letters, as they were when it was made.
    pub filter: DeadFilter,
    /// Who made it.
    pub by: String,
    /// Why.
    pub why: String,
    /// How many letters it has.
    pub letters: u64,
    /// How many of them died of what, most numerous first, at most twenty.
    pub groups: Vec<PlanGroup>,
    /// When it was made.
    pub made_at: Timestamp,
    /// Until when it may be applied.
    pub expires_at: Timestamp,
    /// When all of it was applied.
    pub applied_at: Option<Timestamp>,
    /// When all of it was undone.
    pub undone_at: Option<Timestamp>,
    /// Letters that the act was done to.
    pub done: u64,
    /// Letters that were left as they are: they had changed since, or the act does not fit them.
    pub passed: u64,
    /// Letters of which it was taken back.
    pub undone: u64,
    /// Letters of which it could not be taken back: they had changed since, or had started.
    pub stayed: u64,
}

/// What one batch came to.
#[derive(Debug, Clone, PartialEq)]
pub enum PlanStep {
    /// There is no such plan.
    Unknown,
    /// Its time is over, and nothing of it was applied.
    Expired(Timestamp),
    /// It stands where this cannot be done.
    NotNow(Stage),
    /// How far it has come. There is more to do while it is `applying` or `undoing`.
    Went(Box<PlanView>),
}

/// Memory of plans.
#[async_trait]
pub trait Plans {
    /// Keeps a plan, with all letters that match now and that its act fits.
    async fn add_plan(&self, new: NewPlan) -> Result<Planned>;

    /// A plan.
    async fn plan(&self, id: PlanId) -> Result<Option<PlanView>>;

    /// Plans, newest first, at most `limit`; those made before one, if it is given.
    async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>>;

    /// Does the act to the next `batch` letters, in one transaction. A letter that is not as it was when the plan
    /// was made (it died again, was triaged, replayed or put aside) is passed. Of those that call it at once, each
    /// gets other letters. Applied wholly, it answers the same however often it is called.
    async fn apply_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep>;

    /// Takes the act back of the next `batch` letters, in one transaction, as far as they are as it left them. A
    /// replay is taken back of jobs that have not started since: they are dead as before.
    async fn undo_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep>;

    /// Forgets plans that are kept no longer, a piece at a time. `true`: there is more.
    async fn forget_plans(&self, plans_max: usize) -> Result<bool>;
}

/// One example of a group, as statements answer it: the group's facts and how many it has.
pub(crate) struct Example {
    pub fingerprint: String,
    pub kind: String,
    pub class: String,
    pub error: String,
    pub count: u64,
    pub id: JobId,
}

/// The groups of examples that stand together.
pub(crate) fn groups(examples: impl IntoIterator<Item = Example>) -> Vec<PlanGroup> {
    let mut groups: Vec<PlanGroup> = Vec::new();
    for Example { fingerprint, kind, class, error, count, id } in examples {
        match groups.last_mut().filter(|group| group.fingerprint == fingerprint) {
            Some(group) => group.examples.push(id),
            None => groups.push(PlanGroup {
                fingerprint,
                kind,
                class: ErrorClass::of_word(&class),
                error,
                count,
                examples: vec![id],
            }),
        }
    }
    groups.truncate(GROUPS_MAX);
    groups
}

/// The note that is left on a letter.
pub(crate) fn note(act: Act, why: &str, id: PlanId) -> String {
    let word = match act {
        Act::Triage(triage) => triage.word(),
        Act::Archive => "archived",
        Act::Replay => "replayed",
        Act::Delete => "deleted",
    };
    format!("{word}: {why} (plan {id})")
}

/// Why a plan replays: what was said when it was made, if anything.
pub(crate) fn why_replayed(plan: &PlanView) -> Option<String> {
    (!plan.why.trim().is_empty()).then(|| format!("{} (plan {})", plan.why, plan.id))
}

pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> Error {
    Error::Database { reason: format!("a plan cannot be read or written: {error}") }
}
