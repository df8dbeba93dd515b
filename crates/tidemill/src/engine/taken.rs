//! Ids that another job has already.
//!
//! Who enqueues a job may choose its id: sent twice, it is enqueued once. It refuses an id that is not the same job's,
//! which would be answered as enqueued though nothing was written.

use std::collections::{HashMap, HashSet};

use tidemill_core::{Job, JobId, NewJob};

use crate::engine::Tidemill;
use crate::engine::look::VIEWS_MAX;
use crate::error::{Error, Result};

impl Tidemill {
    /// Refuses ids that were chosen and that other jobs have, before anything is written.
    pub(crate) async fn refuse_taken(
        &self,
        chosen: &HashSet<JobId>,
        jobs: &[NewJob],
    ) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let mut wanted = HashMap::new();
        for job in jobs.iter().filter(|job| chosen.contains(&job.id)) {
            let first: &NewJob = wanted.entry(job.id).or_insert(job);
            if !is_twin(first, job) {
                return Err(Error::IdTaken { id: job.id });
            }
        }
        let there = self.queues_of(wanted.keys().copied().collect()).await?;
        let there: Vec<JobId> = there.into_keys().collect();
        for part in there.chunks(VIEWS_MAX) {
            let views = self.0.store.jobs_of(part.to_vec()).await?;
            let seen: HashSet<JobId> = views.iter().map(|view| view.job.id).collect();
            for id in part.iter().filter(|id| !seen.contains(id)) {
                // It cannot be shown, and says why; or it is gone meanwhile.
                self.job(*id).await?;
            }
            for view in views {
                let id = view.job.id;
                if let Some(job) = wanted.get(&id)
                    && !self.is_same(job, &view.job).await
                {
                    return Err(Error::IdTaken { id });
                }
            }
        }
        Ok(())
    }

    /// Whether a job that is there is the one that was sent. One that has a unique key may have the payload and the
    /// queue of a duplicate by now.
    async fn is_same(&self, job: &NewJob, there: &Job) -> bool {
        let key = job.unique.as_ref().map(|unique| &unique.key);
        let is_merged = key.is_some() && key == there.unique_key.as_ref();
        (&job.kind, &job.tenant) == (&there.kind, &there.tenant)
            && (is_merged
                || there.payload.is_same(job.payload.as_str())
                    && self.is_there(&job.queue, &there.queue).await)
    }

    /// Whether a job for one queue may stand in the other: there, or where a full queue has sent it.
    async fn is_there(&self, wanted: &str, found: &str) -> bool {
        wanted == found || self.diverts_to(wanted).await.as_deref() == Some(found)
    }
}

fn is_twin(one: &NewJob, other: &NewJob) -> bool {
    (&one.kind, &one.queue, &one.tenant) == (&other.kind, &other.queue, &other.tenant)
        && one.payload.is_same(other.payload.as_str())
}
