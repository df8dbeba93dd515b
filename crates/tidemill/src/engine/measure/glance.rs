//! What an overview has that people look at first: the queues, what passes through them, and who works.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_store::measure::Passed;
use tidemill_store::{QueueView, WorkerView};

use crate::engine::Tidemill;
use crate::error::Result;

/// The queues and the workers of a store at a moment, at most about a second old.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Glance {
    /// The store's present.
    pub now: Timestamp,
    /// What the store is: `sqlite` or `postgres`.
    pub backend: String,
    /// All queues that have jobs, dead letters or rules.
    pub queues: Vec<QueueView>,
    /// What came into queues and went out of them.
    pub passed: Vec<Passed>,
    /// All workers that are registered.
    pub workers: Vec<WorkerView>,
}

impl Tidemill {
    /// The queues and the workers, at most about a second old.
    pub async fn glance(&self) -> Result<Glance> {
        let overview = self.overview().await?;
        Ok(Glance {
            now: overview.now,
            backend: self.0.store.backend().to_owned(),
            queues: overview.queues.clone(),
            passed: overview.passed.clone(),
            workers: overview.workers.clone(),
        })
    }
}
