//! Ids that another job has already.
//!
//! Who enqueues a job may choose its id: sent twice, it is enqueued once. It refuses an id that is not the same job's,
//! which would be answered as enqueued though nothing was written.

use std::collections::{HashMap, HashSet};

use tidemill_core::{Job, JobId, NewJob, UniqueKey};
#[cfg(feature = "sqlite")]
use tidemill_store::{rusqlite::Connection, sqlite::adapter::job_in_rusqlite};

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

    /// The same for one job, by what the caller's transaction sees.
    #[cfg(feature = "sqlite")]
    pub(crate) fn refuse_taken_in(&self, connection: &Connection, job: &NewJob) -> Result<()> {
        let Some(there) = job_in_rusqlite(connection, job.id, &self.0.keys)? else {
            return Ok(());
        };
        let book = self.0.rooms.book();
        let divert = book.of(&job.queue).and_then(|rules| rules.overflow.divert());
        let is_there = job.queue == there.queue || divert == Some(there.queue.as_str());
        let mut hidden = job.clone();
        self.0.keys.hide_job(&mut hidden)?;
        let is_same = is_like(job, hidden.unique.as_ref(), &there, is_there);
        if is_same { Ok(()) } else { Err(Error::IdTaken { id: job.id }) }
    }

    /// Whether a job that is there is the one that was sent.
    async fn is_same(&self, job: &NewJob, there: &Job) -> bool {
        let is_there = self.is_there(&job.queue, &there.queue).await;
        is_like(job, job.unique.as_ref(), there, is_there)
    }

    /// Whether a job for one queue may stand in the other: there, or where a full queue has sent it.
    async fn is_there(&self, wanted: &str, found: &str) -> bool {
        wanted == found || self.diverts_to(wanted).await.as_deref() == Some(found)
    }
}

/// Whether a job that is there is the one that was sent, with its key as it is kept. One that has a unique key may have
/// the payload and the queue of a duplicate by now.
fn is_like(job: &NewJob, key: Option<&UniqueKey>, there: &Job, is_there: bool) -> bool {
    let is_merged = key.is_some_and(|unique| Some(&unique.key) == there.unique_key.as_ref());
    (&job.kind, &job.tenant) == (&there.kind, &there.tenant)
        && (is_merged || is_there && there.payload.is_same(job.payload.as_str()))
}

fn is_twin(one: &NewJob, other: &NewJob) -> bool {
    (&one.kind, &one.queue, &one.tenant) == (&other.kind, &other.queue, &other.tenant)
        && one.payload.is_same(other.payload.as_str())
}
