//! Who gives a worker its work, where that is no engine of its own process.
//!
//! The verbs are those of [`Work`](crate::work::Work), the words those of `core::wire`; `docs/protocol.md` says what
//! they mean. How attempts ended is reported as their handlers said it: what becomes of the jobs is judged where the
//! rules are. `tidemill-client` has the one that asks a server.

use std::time::Duration;

use async_trait::async_trait;
use tidemill_core::wire::run::{AppendBody, SaidAnswer, SaidItem};
use tidemill_core::wire::work::{Ask, Beaten, Card, Pulse, ReportBody, SettledBody, Work};
use tidemill_core::workflow::{Mail, ObjectKey};
use tidemill_core::{JobId, NewJob, Payload, WorkerId};
use tidemill_store::flow::{Input, Output};
use tidemill_store::run::{EntryRow, RunFilter, RunView};
use tidemill_store::{Receipt, Result};

use crate::engine::workflow::history::History;
use crate::engine::workflow::page::RunPage;

/// Gives work to a [`Worker`](crate::Worker) of this process, and takes what comes of it, somewhere else.
///
/// To its worker it is the store, so its errors are those of one: `store_unavailable` is tried again for as long as it
/// takes, `store_refused` is final. That a lease is lost is an answer.
#[async_trait]
pub trait Broker: Send + Sync + 'static {
    /// Takes a worker in; answers who it is from now on. A refusal keeps its own code, as it is told to whoever starts
    /// the worker and not to a handler.
    async fn register(&self, card: &Card) -> crate::Result<WorkerId>;

    /// Signs a worker off. What it still has is ready again, unspent.
    async fn sign_off(&self, worker: WorkerId) -> Result<()>;

    /// Beats once the wait of the pulse is over, or as soon as a job of the worker is called off. `None` if the worker
    /// was given up.
    async fn beat(&self, worker: WorkerId, pulse: Pulse) -> Result<Option<Beaten>>;

    /// Takes jobs for a worker: as soon as there are some, or none when the wait is over. Dropped, it need not be
    /// answered: what it took is given back by a beat or the end of the worker.
    async fn claim(&self, worker: WorkerId, ask: &Ask) -> Result<Work>;

    /// Settles attempts; answers in their order. Sent again, it is answered as before.
    async fn settle(&self, worker: WorkerId, reports: Vec<ReportBody>) -> Result<Vec<SettledBody>>;

    /// Writes to the journal of a run; `false` if the lease is lost.
    async fn append(&self, worker: WorkerId, body: AppendBody) -> Result<bool>;

    /// Adds to the streams of jobs; answers in their order.
    async fn say(&self, worker: WorkerId, items: Vec<SaidItem>) -> Result<Vec<SaidAnswer>>;

    /// The journal of a run, in order, and what else is kept of it.
    async fn journal(&self, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)>;

    /// What stands beside an entry of a journal.
    async fn value(&self, job: JobId, number: u32) -> Result<Option<Payload>>;

    /// The mail of a run after a number: at once, or as soon as there is some within `wait`.
    async fn mail(&self, job: JobId, after: i64, wait: Duration) -> Result<Vec<Mail>>;

    /// What the steps returned that the step of this job comes after.
    async fn inputs(&self, job: JobId) -> Result<Vec<Input>>;

    /// A page of what the jobs of such a step returned, by id, after this one.
    async fn outputs(&self, job: JobId, step: &str, after: Option<JobId>) -> Result<Vec<Output>>;

    /// What an object is, if anything is kept under this name and key.
    async fn object(&self, name: &str, key: ObjectKey<'_>) -> Result<Option<Payload>>;

    /// A page of runs, newest first, for a replay: like [`register`](Self::register) it is asked for whoever starts the
    /// worker, so a refusal keeps its own code.
    async fn runs_page(&self, filter: &RunFilter) -> crate::Result<RunPage>;

    /// Everything that the code of a run saw, with nothing hidden; `None` if there is no such run, or it has not begun.
    async fn history(&self, run: JobId) -> crate::Result<Option<History>>;

    /// Enqueues jobs: all or none. Sent again, they are enqueued once.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Receipt>>;
}
