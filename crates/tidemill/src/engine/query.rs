//! Looking at jobs, queues and workers.

use std::collections::HashMap;

use jiff::Timestamp;
use tidemill_core::JobId;
use tidemill_store::view::{AttemptView, Finding, Unfinished};
use tidemill_store::{JobFilter, JobPage, JobView, WorkerView};

use crate::engine::Tidemill;
use crate::error::Result;

impl Tidemill {
    /// One job, wherever it stands; `None` when there is none, or its retention has passed.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        Ok(self.0.store.job(id).await?)
    }

    /// The queues of those of these jobs that are there.
    pub async fn queues_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, String>> {
        Ok(self.0.store.queues_of(ids).await?)
    }

    /// Jobs that match, newest first: as many as the filter wants, or all that there are. Where few match it
    /// walks a long way; [`jobs_page`](Self::jobs_page) does not.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Vec<JobView>> {
        let (wanted, mut filter, mut jobs) = (filter.page_rows(), filter.clone(), Vec::new());
        loop {
            filter.limit = wanted - jobs.len();
            let page = self.jobs_page(&filter).await?;
            jobs.extend(page.jobs);
            filter.before = page.next;
            if page.next.is_none() || jobs.len() == wanted {
                return Ok(jobs);
            }
        }
    }

    /// A page of jobs, newest first, that looks at 20,000 jobs or [as many as it is let](JobFilter::look_max).
    /// It may be empty although others follow: [`next`](JobPage::next) says so.
    pub async fn jobs_page(&self, filter: &JobFilter) -> Result<JobPage> {
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

    /// Those of them that have beaten within their lease.
    pub(crate) async fn live_workers(&self) -> Result<Vec<WorkerView>> {
        let (now, mut workers) = (self.now().await?, self.workers().await?);
        workers.retain(|worker| !worker.is_silent(now));
        Ok(workers)
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
