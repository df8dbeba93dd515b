//! Ids that another job has already.
//!
//! Who enqueues a job may choose its id: sent twice, it is enqueued once. It refuses an id that is not the same job's,
//! which would be answered as enqueued though nothing was written.

use std::collections::{HashMap, HashSet};

use tidemill_core::{Job, JobId, NewJob};

use crate::engine::Tidemill;
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
        for id in there.into_keys() {
            let (Some(job), Some(view)) = (wanted.get(&id), self.job(id).await?) else { continue };
            // One that has a unique key may have the payload and the queue of a duplicate by now.
            let key = job.unique.as_ref().map(|unique| &unique.key);
            let is_merged = key.is_some() && key == view.job.unique_key.as_ref();
            let is_same = is_akin(job, &view.job)
                && (is_merged
                    || same_json(job.payload.as_str(), view.job.payload.as_str())
                        && self.is_there(&job.queue, &view.job.queue).await);
            if !is_same {
                return Err(Error::IdTaken { id });
            }
        }
        Ok(())
    }

    /// Whether a job for one queue may stand in the other: there, or where a full queue has sent it.
    async fn is_there(&self, wanted: &str, found: &str) -> bool {
        wanted == found || self.diverts_to(wanted).await.as_deref() == Some(found)
    }
}

fn is_twin(one: &NewJob, other: &NewJob) -> bool {
    let same = |job: &NewJob| (job.kind.clone(), job.queue.clone(), job.tenant.clone());
    same(one) == same(other) && same_json(one.payload.as_str(), other.payload.as_str())
}

fn is_akin(job: &NewJob, there: &Job) -> bool {
    job.kind == there.kind && job.tenant == there.tenant
}

/// The database may have written it another way.
fn same_json(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
    one == other || read(one) == read(other)
}
