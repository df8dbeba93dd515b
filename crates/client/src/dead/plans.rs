//! Plans: an act on many dead letters is looked at before it is done, and taken back where that can be.

use std::time::Duration;

use http::Method;
use serde::{Deserialize, Serialize};
use tidemill::{DeadFilter, PlanAct, PlanId, PlanView};
use tidemill_core::cursor;

use crate::dead::Dead;
use crate::error::Result;
use crate::http::{PAGE_MAX, path};

/// A plan of the most letters there can be takes so long, on a store that has other things to do.
const APPLY_TIME: Duration = Duration::from_mins(10);

#[derive(Serialize)]
struct Wish<'a> {
    act: PlanAct,
    filter: &'a DeadFilter,
    why: &'a str,
}

#[derive(Serialize)]
struct Asked {
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    plans: Vec<PlanView>,
    next: Option<String>,
}

impl Dead<'_> {
    /// Makes a plan of all letters that match now, and answers what it would do. Nothing is done yet.
    pub async fn plan(
        &self,
        filter: DeadFilter,
        act: PlanAct,
        by: &str,
        why: &str,
    ) -> Result<PlanView> {
        let _ = by;
        self.0.post(&path(["dead", "plans"]), &Wish { act, filter: &filter, why }).await
    }

    /// A plan, if it is kept.
    pub async fn find_plan(&self, id: PlanId) -> Result<PlanView> {
        self.0.get(&path(["dead", "plans", &id.to_string()]), &()).await
    }

    /// Plans, newest first, at most `limit`; those made before one, if it is given.
    pub async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>> {
        let mut plans = Vec::new();
        let mut cursor = before.map(|id| cursor::write("plans", &id.to_string()));
        while plans.len() < limit {
            let asked = Asked { cursor, limit: (limit - plans.len()).min(PAGE_MAX) };
            // A page has fewer where there are those that are none of the caller's business.
            let page: Page = self.0.get(&path(["dead", "plans"]), &asked).await?;
            plans.extend(page.plans);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(plans)
    }

    /// Applies a plan to the end. One that was applied answers as it did, and nothing is done twice.
    pub async fn apply(&self, id: PlanId, by: &str) -> Result<PlanView> {
        self.act_on_plan(id, "apply", by).await
    }

    /// Takes back what a plan did, to the end, as far as its letters are as it left them.
    pub async fn undo(&self, id: PlanId, by: &str) -> Result<PlanView> {
        self.act_on_plan(id, "undo", by).await
    }

    async fn act_on_plan(&self, id: PlanId, act: &str, by: &str) -> Result<PlanView> {
        let _ = by;
        let place = path(["dead", "plans", &id.to_string(), act]);
        self.0.value(self.0.patient(Method::POST, &place, APPLY_TIME)).await
    }
}
