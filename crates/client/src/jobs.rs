//! Jobs: enqueued, looked at, waited for, changed, called off.

use std::time::Duration;

use http::header::IF_MATCH;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use tidemill::core::job::edit::Changes;
use tidemill::core::why::Why;
use tidemill::store::view::AttemptView;
use tidemill::{
    By, CancelAnswer, Enqueue, JobFilter, JobId, JobPage, JobView, Priority, Receipt, Retried,
    Signal, State,
};
use tidemill_core::{Clock, Limits, NewJob, Wish};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::http::{Client, Path, Raw, WAIT_MAX, path, raw};

#[derive(Serialize)]
struct Many {
    jobs: Vec<Wish>,
}

#[derive(Deserialize)]
struct Receipts {
    receipts: Vec<Receipt>,
}

#[derive(Serialize)]
struct Asked<'a> {
    cursor: Option<JobId>,
    limit: usize,
    state: Option<State>,
    kind: Option<&'a str>,
    queue: Option<&'a str>,
    tenant: Option<&'a str>,
    key: Option<&'a str>,
    tag: Option<&'a str>,
}

#[derive(Serialize)]
struct Cancel<'a> {
    reason: &'a str,
}

#[derive(Deserialize)]
struct Cancelled {
    answer: CancelAnswer,
}

#[derive(Serialize)]
struct Again<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Raw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
}

#[derive(Deserialize)]
struct LetGo {
    retried: Retried,
}

#[derive(Serialize)]
pub(crate) struct Message<'a> {
    pub(crate) name: &'a str,
    pub(crate) payload: Raw,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'a str>,
}

impl Client {
    /// Enqueues a job. It is durable when this answers. The job has its id before it is sent, so the same one sent
    /// again is enqueued once.
    pub async fn enqueue(&self, job: impl Into<Enqueue>) -> Result<Receipt> {
        let receipts = self.enqueue_many([job]).await.map_err(Error::of_one)?;
        receipts.into_iter().next().ok_or_else(|| self.unreadable("no receipt".to_owned()))
    }

    /// Enqueues many jobs: all or none. Answers stand in the order of the jobs.
    pub async fn enqueue_many<E: Into<Enqueue>>(
        &self,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<Receipt>> {
        let jobs = jobs.into_iter().map(|job| checked(job.into()));
        self.put(&jobs.collect::<Result<Vec<_>>>()?).await
    }

    /// Enqueues jobs that were checked.
    pub(crate) async fn put(&self, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
        let many = Many { jobs: jobs.iter().map(Wish::from).collect() };
        let receipts: Receipts = self.post(&path(["jobs", "batch"]), &many).await?;
        Ok(receipts.receipts)
    }

    /// Checks a job as far as it can be without the server, which has its own limits.
    pub fn check(&self, job: &Enqueue) -> Result<()> {
        checked(job.clone()).map(drop)
    }

    /// The job, if it is kept.
    pub async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        known(self.get(&path(["jobs", &id.to_string()]), &()).await, "job_unknown")
    }

    /// A page of jobs, newest first, and where the next one begins.
    pub async fn jobs_page(&self, filter: &JobFilter) -> Result<JobPage> {
        let JobFilter { state, kind, queue, tenant, key, tag, .. } = filter;
        let asked = Asked {
            cursor: filter.before,
            limit: filter.page_rows(),
            state: *state,
            kind: kind.as_deref(),
            queue: queue.as_deref(),
            tenant: tenant.as_deref(),
            key: key.as_deref(),
            tag: tag.as_deref(),
        };
        self.get(&path(["jobs"]), &asked).await
    }

    /// The attempts of a job that did not finish it, oldest first.
    pub async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>> {
        self.get(&of(id, "attempts"), &()).await
    }

    /// Why a job is not running.
    pub async fn why(&self, id: JobId) -> Result<Why> {
        self.get(&of(id, "why"), &()).await
    }

    /// Waits until the job has finished; an error with the code `wait_timeout` if it has not in this time.
    pub async fn wait(&self, id: JobId, timeout: Duration) -> Result<JobView> {
        let began = Instant::now();
        loop {
            let left = timeout.saturating_sub(began.elapsed());
            let turn = left.min(WAIT_MAX);
            let request = self.patient(Method::GET, &of(id, "wait"), turn);
            let request = request.query(&[("timeout", format!("{}ms", turn.as_millis()))]);
            let response = self.answer(request).await?;
            let is_finished = response.status() != StatusCode::ACCEPTED;
            let view: JobView = self.read(response).await?;
            if is_finished {
                return Ok(view);
            }
            if began.elapsed() >= timeout {
                let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                return Err(
                    tidemill::Error::WaitTimeout { id, waited_ms, state: view.state }.into()
                );
            }
        }
    }

    /// Calls a job off. One that runs is told; no attempt starts after this has answered.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<CancelAnswer> {
        let cancelled: Result<Cancelled> = self.post(&of(id, "cancel"), &Cancel { reason }).await;
        Ok(known(cancelled, "job_unknown")?.map_or(CancelAnswer::Unknown, |said| said.answer))
    }

    /// Calls jobs off, one after the other. Answers stand in their order.
    pub async fn cancel_many(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>> {
        let mut answers = Vec::with_capacity(ids.len());
        for id in ids {
            answers.push(self.cancel(id, reason).await?);
        }
        Ok(answers)
    }

    /// Lets a job start now: a dead one again, with another payload if given; one that waits for the clock without
    /// waiting. Who did it is whose credential it is, whatever `by` says.
    pub async fn retry<'b>(
        &self,
        id: JobId,
        by: impl Into<By<'b>>,
        payload: Option<&str>,
    ) -> Result<Retried> {
        let again = Again { payload: payload.map(raw).transpose()?, why: by.into().why };
        let let_go: LetGo = self.post(&of(id, "retry"), &again).await?;
        Ok(let_go.retried)
    }

    /// Lets a job wait in another band.
    pub async fn set_priority(&self, id: JobId, priority: Priority) -> Result<()> {
        self.edit(id, Changes { priority: Some(priority), ..Changes::default() }, None).await
    }

    /// Changes a job that waits. With `of`, the print of the job that the change was made up for, it is refused if
    /// somebody has changed it since (`job_changed`).
    pub async fn edit(&self, id: JobId, changes: Changes, of: Option<String>) -> Result<()> {
        let request = self.request(Method::PATCH, &path(["jobs", &id.to_string()])).json(&changes);
        let tagged = of
            .into_iter()
            .fold(request, |request, print| request.header(IF_MATCH, &format!("\"{print}\"")));
        self.told(tagged).await
    }

    /// Sends a signal to a run. It is kept until the run asks for it.
    pub async fn signal(&self, run: JobId, signal: Signal) -> Result<()> {
        let message = message(&signal)?;
        self.told(self.request(Method::POST, &of(run, "signal")).json(&message)).await
    }
}

/// A signal as it is sent.
pub(crate) fn message(signal: &Signal) -> Result<Message<'_>> {
    let (name, payload, id) = signal.parts()?;
    Ok(Message { name, payload: raw(payload)?, id })
}

fn of(id: JobId, what: &str) -> Path {
    path(["jobs", &id.to_string(), what])
}

/// What is not there is no error to whoever asks whether it is.
pub(crate) fn known<T>(answer: Result<T>, code: &str) -> Result<Option<T>> {
    match answer {
        Err(error) if error.code() == code => Ok(None),
        answer => answer.map(Some),
    }
}

/// Checks a job as far as it can be without the server.
pub(crate) fn checked(job: Enqueue) -> Result<NewJob> {
    Ok(job.check(&limits(), Clock::System.now())?)
}

/// The limits of whoever has a server that knows better.
pub(crate) fn limits() -> Limits {
    Limits { payload_bytes_max: usize::MAX, ..Limits::default() }
}
