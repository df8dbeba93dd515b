//! Jobs: enqueued, looked at, waited for.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tidemill::{Enqueue, JobId, JobView, Receipt};
use tidemill_core::{Clock, Limits, NewJob, Wish};

use crate::error::Result;
use crate::http::{Client, path};

#[derive(Serialize)]
struct Many {
    jobs: Vec<Wish>,
}

#[derive(Deserialize)]
struct Receipts {
    receipts: Vec<Receipt>,
}

impl Client {
    /// Enqueues a job. It is durable when this answers. The job has its id before it is sent, so the same one sent
    /// again is enqueued once.
    pub async fn enqueue(&self, job: impl Into<Enqueue>) -> Result<Receipt> {
        let receipts = self.enqueue_many([job]).await?;
        receipts.first().copied().ok_or_else(|| self.unreadable("no receipt".to_owned()))
    }

    /// Enqueues many jobs: all or none. Answers stand in the order of the jobs.
    pub async fn enqueue_many<E: Into<Enqueue>>(
        &self,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Receipt>> {
        let jobs = jobs.into_iter().map(|job| Ok(Wish::from(&checked(job.into())?)));
        let many = Many { jobs: jobs.collect::<Result<_>>()? };
        let receipts: Receipts = self.post(&path(["jobs", "batch"]), &many).await?;
        Ok(receipts.receipts)
    }

    /// The job, if it is kept.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        match self.get(&path(["jobs", &id.to_string()]), &()).await {
            Err(error) if error.code() == "job_unknown" => Ok(None),
            job => job.map(Some),
        }
    }

    /// Waits until the job has finished; an error with the code `wait_timeout` if it has not in this time.
    pub async fn wait(&self, id: JobId, time: Duration) -> Result<JobView> {
        let path = path(["jobs", &id.to_string(), "wait"]);
        let timeout = format!("{}ms", time.as_millis());
        let request = self.patient(Method::GET, &path, time).query(&[("timeout", timeout)]);
        let response = self.answer(request).await?;
        let is_finished = response.status() != StatusCode::ACCEPTED;
        let view: JobView = self.read(response).await?;
        if is_finished {
            return Ok(view);
        }
        let waited_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Err(tidemill::Error::WaitTimeout { id, waited_ms, state: view.state }.into())
    }
}

/// Checks a job as far as it can be without the server, which has its own limits.
fn checked(job: Enqueue) -> Result<NewJob> {
    let limits = Limits { payload_bytes_max: usize::MAX, ..Limits::default() };
    Ok(job.check(&limits, Clock::System.now())?)
}
