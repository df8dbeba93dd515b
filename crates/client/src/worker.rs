//! A worker of this process whose work a server gives: the handlers, the builder and the loops are those of `tidemill`.
//!
//! To such a worker the server is its store. What may go well later is `store_unavailable` and is tried again for as
//! long as it takes; what the server refuses is `store_refused`, with the server's own words and code.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tidemill::core::wire::run::{AppendBody, SaidAnswer, SaidItem};
use tidemill::core::wire::work::{Ask, Beaten, Card, Pulse, ReportBody, SettledBody, Work};
use tidemill::core::workflow::{Mail, ObjectKey};
use tidemill::core::{NewJob, span::Span};
use tidemill::store::Error as StoreError;
use tidemill::store::run::{EntryRow, PAGE_MAIL_MAX};
use tidemill::{
    Broker, History, Input, JobId, MailPage, Output, Payload, Receipt, RunFilter, RunPage, RunView,
    Timestamp, Worker, WorkerId, async_trait,
};

use crate::error::Error;
use crate::http::{Client, path};
use crate::workflows::of_object;

type Told<T> = Result<T, StoreError>;

/// What a server may have against a worker that registers, or replays.
const REFUSALS: [&str; 6] = [
    "credential_missing",
    "credential_refused",
    "queue_refused",
    "role_refused",
    "tenant_refused",
    "work_invalid",
];

impl Client {
    /// A worker for this server, to be given handlers and run: the very ones that `Tidemill::worker` takes.
    ///
    /// ```no_run
    /// # use serde::{Deserialize, Serialize};
    /// # use tidemill::Job;
    /// # #[derive(Serialize, Deserialize)] struct Greet { name: String }
    /// # impl Job for Greet { const KIND: &'static str = "greet"; type Output = String; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = tidemill_client::Client::builder("http://localhost:8384").token("tdm_…").build()?;
    /// let worker = client
    ///     .worker()
    ///     .slots(20)
    ///     .handle(|job: Greet, _cx| async move { Ok(format!("Hello, {}!", job.name)) })
    ///     .start()
    ///     .await?;
    /// # worker.stop().await; Ok(()) }
    /// ```
    pub fn worker(&self) -> Worker {
        Worker::elsewhere(Arc::new(Server(self.clone())))
    }
}

/// A server, as a worker sees it.
struct Server(Client);

#[derive(Deserialize)]
struct Journal {
    entries: Vec<JournalEntry>,
    run: Option<RunView>,
}

#[derive(Deserialize)]
struct JournalEntry {
    number: u32,
    at: Timestamp,
    entry: Payload,
}

#[derive(Deserialize)]
struct Inputs {
    inputs: Vec<Input>,
}

#[derive(Deserialize)]
struct Outputs {
    outputs: Vec<Output>,
}

#[derive(Deserialize)]
struct Object {
    state: Payload,
}

#[async_trait]
impl Broker for Server {
    async fn register(&self, card: &Card) -> tidemill::Result<WorkerId> {
        self.0.work().register(card).await.map_err(not_taken)
    }

    async fn sign_off(&self, worker: WorkerId) -> Told<()> {
        self.0.work().sign_off(worker).await.map(drop).map_err(told)
    }

    async fn beat(&self, worker: WorkerId, pulse: Pulse) -> Told<Option<Beaten>> {
        let wait = pulse.wait.map_or(Duration::ZERO, |Span(wait)| wait);
        match self.0.work().beat(worker, wait, pulse.tokens).await {
            Ok(beaten) => Ok(Some(beaten)),
            // Either way it is none of ours any more, and another can be registered.
            Err(error) if matches!(error.code(), "worker_lost" | "worker_refused") => Ok(None),
            Err(error) => Err(told(error)),
        }
    }

    async fn claim(&self, worker: WorkerId, ask: &Ask) -> Told<Work> {
        self.0.work().claim(worker, ask).await.map_err(told)
    }

    async fn settle(&self, worker: WorkerId, reports: Vec<ReportBody>) -> Told<Vec<SettledBody>> {
        self.0.work().settle(worker, reports).await.map_err(told)
    }

    async fn append(&self, worker: WorkerId, body: AppendBody) -> Told<bool> {
        match self.0.work().append(worker, &body).await {
            Ok(()) => Ok(true),
            Err(error) if error.code() == "lease_lost" => Ok(false),
            Err(error) => Err(told(error)),
        }
    }

    async fn say(&self, worker: WorkerId, items: Vec<SaidItem>) -> Told<Vec<SaidAnswer>> {
        self.0.work().say(worker, items).await.map_err(told)
    }

    async fn journal(&self, job: JobId) -> Told<(Vec<EntryRow>, Option<RunView>)> {
        let path = path(["jobs", &job.to_string(), "journal"]);
        let Journal { entries, run } = self.0.get(&path, &()).await.map_err(told)?;
        let row = |JournalEntry { number, at, entry }| {
            let entry = entry.as_str().to_owned();
            EntryRow { number, at, entry }
        };
        Ok((entries.into_iter().map(row).collect(), run))
    }

    async fn value(&self, job: JobId, number: u32) -> Told<Option<Payload>> {
        let path = path(["jobs", &job.to_string(), "journal", &number.to_string()]);
        or_none(self.0.get(&path, &()).await, "value_unknown")
    }

    async fn mail(&self, job: JobId, after: i64, wait: Duration) -> Told<Vec<Mail>> {
        let path = path(["jobs", &job.to_string(), "mail"]);
        let query = [("after", after.to_string()), ("wait", Span(wait).to_string())];
        let MailPage { mut mail, mut next } = self.0.get(&path, &query).await.map_err(told)?;
        while let Some(after) = next {
            let page = self.0.mail_page(job, after, PAGE_MAIL_MAX).await.map_err(told)?;
            mail.extend(page.mail);
            next = page.next;
        }
        Ok(mail)
    }

    async fn inputs(&self, job: JobId) -> Told<Vec<Input>> {
        let path = path(["jobs", &job.to_string(), "inputs"]);
        let Inputs { inputs } = self.0.get(&path, &()).await.map_err(told)?;
        Ok(inputs)
    }

    async fn outputs(&self, job: JobId, step: &str, after: Option<JobId>) -> Told<Vec<Output>> {
        let path = path(["jobs", &job.to_string(), "inputs", step]);
        let query: Vec<_> = after.into_iter().map(|after| ("after", after.to_string())).collect();
        let Outputs { outputs } = self.0.get(&path, &query).await.map_err(told)?;
        Ok(outputs)
    }

    async fn object(&self, name: &str, key: ObjectKey<'_>) -> Told<Option<Payload>> {
        let found = self.0.get(&path(["objects", name]), &of_object(key)).await;
        Ok(or_none(found, "object_unknown")?.map(|Object { state }| state))
    }

    async fn runs_page(&self, filter: &RunFilter) -> tidemill::Result<RunPage> {
        self.0.runs_page(filter).await.map_err(not_taken)
    }

    async fn history(&self, run: JobId) -> tidemill::Result<Option<History>> {
        let path = path(["workflows", &run.to_string(), "history"]);
        match self.0.get(&path, &[("whole", "true")]).await {
            Err(error) if matches!(error.code(), "job_unknown" | "run_unknown") => Ok(None),
            history => history.map(Some).map_err(not_taken),
        }
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Told<Vec<Receipt>> {
        self.0.put(&jobs).await.map_err(told)
    }
}

/// What was found, or nothing where the server says so by this code.
fn or_none<T>(found: crate::Result<T>, unknown: &str) -> Told<Option<T>> {
    match found {
        Err(error) if error.code() == unknown => Ok(None),
        found => found.map(Some).map_err(told),
    }
}

/// Why a server does not take a worker, by its own code.
fn not_taken(error: Error) -> tidemill::Error {
    match REFUSALS.into_iter().find(|code| *code == error.code()) {
        Some(code) => tidemill::Error::WorkerRefused { code, reason: error.to_string() },
        None => told(error).into(),
    }
}

/// What stands in quotes in a sentence, first of all.
fn quoted(sentence: &str) -> String {
    sentence.split('"').nth(1).unwrap_or_default().to_owned()
}

/// An error as that of a store. A credential that nobody knows may be known by the next call: somebody is changing it.
/// What it may not do it will not be allowed later.
#[expect(clippy::needless_pass_by_value, reason = "it is what is left of a call")]
fn told(error: Error) -> StoreError {
    let unavailable = |reason| StoreError::Unavailable { reason, unknown: true };
    match &error {
        // The server has the keys. What it says of one names it in quotes, and nothing else.
        Error::Refused { problem, .. } if problem.code == "encryption_key_missing" => {
            StoreError::KeyMissing { key: quoted(&problem.detail) }
        }
        Error::Refused { problem, .. } if problem.code == "ciphertext_invalid" => {
            StoreError::CiphertextInvalid { key: quoted(&problem.detail) }
        }
        Error::Refused { problem, .. }
            if matches!(problem.status, 401 | 408 | 429 | 500..)
                || problem.code == "worker_lost" =>
        {
            unavailable(error.to_string())
        }
        Error::Refused { problem, .. } => {
            let reason = format!("{} ({})", problem.detail, problem.code);
            StoreError::Database { reason }
        }
        Error::Unreachable { .. } | Error::Unreadable { .. } => unavailable(error.to_string()),
        Error::Engine(_) | Error::Unsendable { .. } | Error::ClientInvalid { .. } => {
            StoreError::Database { reason: error.to_string() }
        }
    }
}
