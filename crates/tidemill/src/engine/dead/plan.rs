//! Plans: an act on many dead letters is looked at before it is done, and taken back where that can be.
//!
//! A plan lives in the store, so any node may apply or undo it. Both go batch by batch, each of which commits with its
//! marks: whoever was stopped calls again, and it goes on.

use tidemill_core::PlanId;
use tidemill_core::dead::DeadFilter;
use tidemill_core::dead::plan::{self, Act, Stage};
use tidemill_core::job::outcome::clean;
use tidemill_store::plan::{NewPlan, PlanStep, PlanView, Planned};

use crate::engine::dead::Dead;
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};

impl Dead<'_> {
    /// Makes a plan of all letters that match now, and answers what it would do. Nothing is done yet; what dies later
    /// is no part of it. It may be applied within an hour.
    pub async fn plan(
        &self,
        filter: DeadFilter,
        act: Act,
        by: &str,
        why: &str,
    ) -> Result<PlanView> {
        act.check()?;
        self.check_search(&filter)?;
        let new = NewPlan {
            id: PlanId::new(),
            by: clean(by.to_owned()),
            act,
            why: clean(why.to_owned()),
            filter,
            apply_within: plan::APPLY_WITHIN,
            kept: plan::EXPIRED_KEPT,
            letters_max: plan::LETTERS_MAX,
        };
        match self.0.0.store.add_plan(new).await? {
            Planned::Made(view) => Ok(*view),
            Planned::TooLarge => Err(Error::PlanTooLarge { max: plan::LETTERS_MAX }),
        }
    }

    /// A plan, if it is kept.
    pub async fn find_plan(&self, id: PlanId) -> Result<PlanView> {
        self.0.0.store.plan(id).await?.ok_or(Error::PlanUnknown { id })
    }

    /// Plans, newest first, at most `limit`; those made before one, if it is given.
    pub async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>> {
        Ok(self.0.0.store.plans(before, limit).await?)
    }

    /// Applies a plan to the end. One that was applied answers as it did, and nothing is done twice.
    pub async fn apply(&self, id: PlanId, by: &str) -> Result<PlanView> {
        loop {
            let batch = self.0.0.store.apply_plan(id, by, plan::BATCH_LETTERS);
            let view = went(id, verb("apply_plan", plan::BATCH_LETTERS, batch).await?)?;
            if view.stage != Stage::Applying {
                return Ok(view);
            }
        }
    }

    /// Takes back what a plan did, to the end, as far as its letters are as it left them.
    pub async fn undo(&self, id: PlanId, by: &str) -> Result<PlanView> {
        let view = self.find_plan(id).await?;
        if !view.undoable {
            let why = "letters that were deleted cannot be brought back".to_owned();
            return Err(Error::PlanNotNow { id, why });
        }
        loop {
            let batch = self.0.0.store.undo_plan(id, by, plan::BATCH_LETTERS);
            let view = went(id, verb("undo_plan", plan::BATCH_LETTERS, batch).await?)?;
            if view.stage != Stage::Undoing {
                return Ok(view);
            }
        }
    }
}

fn went(id: PlanId, step: PlanStep) -> Result<PlanView> {
    match step {
        PlanStep::Went(view) => Ok(*view),
        PlanStep::Unknown => Err(Error::PlanUnknown { id }),
        PlanStep::Expired(at) => Err(Error::PlanExpired { id, at }),
        PlanStep::NotNow(stage) => {
            let why = match stage {
                Stage::Made => "nothing of it was applied",
                _ => "it was undone, wholly or in part; make another",
            };
            Err(Error::PlanNotNow { id, why: why.to_owned() })
        }
    }
}
