//! Whether a flow that is there is the one that is sent again.
//!
//! It compares what nothing changes as a flow goes on: names, the number of jobs at least, and of each step one job.

use tidemill_core::flow::plan::Plan;
use tidemill_core::{Job, NewJob};
use tidemill_store::flow::StepView;

use crate::engine::Tidemill;
use crate::engine::flow::new::Flow;
use crate::error::Result;

impl Tidemill {
    /// Whether the flow that is kept under the id of this one is this one, as far as can be told: of the same name and
    /// steps, with jobs of the same kind, queue, tenant and payload. Of one that is built in parts, its name and steps.
    pub(super) async fn is_same_flow(&self, flow: Flow) -> Result<bool> {
        let plan = self.plan(flow)?;
        // Not there: its retention has passed meanwhile, and nobody can tell.
        let Some(kept) = self.flow(plan.id).await? else { return Ok(true) };
        if kept.head.name != plan.name || kept.steps.len() < plan.steps.len() {
            return Ok(false);
        }
        for (step, kept) in plan.steps.iter().zip(&kept.steps) {
            if step.name != kept.name || !self.is_same_work(&plan, step.number, kept).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn is_same_work(&self, plan: &Plan, number: u32, kept: &StepView) -> Result<bool> {
        let jobs = || plan.jobs.iter().filter(|planned| planned.step == number);
        if plan.options.building || jobs().next().is_none() {
            return Ok(true);
        }
        if kept.jobs < jobs().count() as u64 {
            return Ok(false);
        }
        let Some(first) = kept.first else { return Ok(true) };
        let Some(view) = self.job(first).await? else { return Ok(true) };
        for planned in jobs() {
            if self.is_same_job(&planned.job, &view.job).await {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_same_job(&self, sent: &NewJob, kept: &Job) -> bool {
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let (one, other) = (sent.payload.as_str(), kept.payload.as_str());
        sent.kind == kept.kind
            && sent.tenant == kept.tenant
            // The database may have written it another way.
            && (one == other || json(one) == json(other))
            && (sent.queue == kept.queue
                || self.diverts_to(&sent.queue).await.as_ref() == Some(&kept.queue))
    }
}
