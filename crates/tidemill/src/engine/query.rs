//! Looking at jobs, queues and workers.

use jiff::Timestamp;
use tidemill_core::JobId;
use tidemill_store::view::{AttemptView, Finding, Unfinished};
use tidemill_store::{JobFilter, JobView, WorkerView};

use crate::engine::Tidemill;
use crate::error::Result;

impl Tidemill {
    /// One job, wherever it stands; `None` when there is none, or its retention has passed.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        Ok(self.0.store.job(id).await?)
    }

    /// A page of jobs, newest first.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobView>> {
        Ok(self.0.store.jobs(filter).await?)
    }

    /// The attempts of a job that did not finish it, oldest first.
    pub async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>> {
        Ok(self.0.store.attempts(id).await?)
    }

    /// How many jobs are not finished.
    pub async fn unfinished(&self) -> Result<Unfinished> {
        Ok(self.0.store.unfinished().await?)
    }

    /// All workers that are registered, in every process.
    pub async fn workers(&self) -> Result<Vec<WorkerView>> {
        Ok(self.0.store.workers().await?)
    }

    /// The store's present.
    pub async fn now(&self) -> Result<Timestamp> {
        Ok(self.0.store.now().await?)
    }

    /// Looks at the health of the database.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        Ok(self.0.store.examine().await?)
    }
}
