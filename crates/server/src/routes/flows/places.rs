//! Where the jobs of flows are: what a credential of some queues or of a tenant must reach to know of a flow.
//!
//! To know it, every job of a flow is looked at, which for a large one is not done at each request: jobs come to a
//! flow, and none leaves it or goes to another queue, so what was found is good for as long as it has as many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemill::{FlowView, Tidemill};
use tidemill_core::FlowId;

use crate::problem::Answer;

/// Flows of which it is remembered.
const FLOWS_MAX: usize = 1000;

/// A queue, and a tenant if there is one.
type Place = (String, Option<String>);

/// What was found of a flow with so many jobs.
type Found = (u64, Arc<[Place]>);

/// Of each flow, the queues and tenants of its jobs.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<HashMap<FlowId, Found>>);

impl Places {
    /// The queues and tenants of the jobs of a flow.
    pub(crate) async fn of(&self, mill: &Tidemill, view: &FlowView) -> Answer<Arc<[Place]>> {
        let (id, jobs) = (view.head.id, view.steps.iter().map(|step| step.jobs).sum());
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some((of_jobs, places)) = known
            && of_jobs == jobs
        {
            return Ok(places);
        }
        let places: Arc<[Place]> = mill.flow_places(id).await?.into();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= FLOWS_MAX {
            all.clear();
        }
        all.insert(id, (jobs, Arc::clone(&places)));
        Ok(places)
    }
}
