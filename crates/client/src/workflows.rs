//! Runs of workflows: listed, looked at, asked, and helped when they are stuck.

use std::time::Duration;

use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::core::span::Span;
use tidemill::{
    CancelAnswer, ForkAs, History, JobId, MailPage, Recorded, RunActView, RunFilter, RunHead,
    RunPage, RunView, Signal, State,
};
use tidemill_core::cursor;
use tidemill_core::workflow::ObjectKey;
use tokio::time::Instant;

use crate::error::Result;
use crate::http::{Client, Path, Raw, path};
use crate::jobs::{known, message};

/// One question waits so long at most for its answer; a server may have less patience, and is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(50);

/// The list that its cursors are of.
const LIST: &str = "runs";

#[derive(Serialize)]
struct Asked<'a> {
    kind: Option<&'a str>,
    parked: bool,
    unfinished: bool,
    cursor: Option<String>,
    limit: usize,
}

#[derive(Deserialize)]
struct Page {
    runs: Vec<Raw>,
    next: Option<String>,
}

/// What a row of a page has beside the run.
#[derive(Deserialize)]
struct Stand {
    kind: String,
    job_state: State,
}

#[derive(Deserialize)]
struct Journal {
    entries: Vec<Recorded>,
}

#[derive(Serialize, Default)]
struct RunAct<'a> {
    act: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Raw>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
    instead: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_entries_max: Option<u32>,
    why: &'a str,
}

impl<'a> RunAct<'a> {
    /// An act on a step.
    fn on(act: &'a str, step: &'a str, why: &'a str) -> Self {
        Self { act, step: Some(step), why, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Acted {
    fork: Option<JobId>,
    cancel: Option<CancelAnswer>,
}

#[derive(Serialize)]
struct Question<'a> {
    name: &'a str,
    payload: Raw,
    id: &'a str,
    timeout: Span,
}

#[derive(Deserialize)]
struct Reply {
    answer: Raw,
}

#[derive(Deserialize)]
struct Object {
    state: Raw,
}

impl Client {
    /// Runs of workflows, newest first.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        Ok(self.runs_page(filter).await?.runs.into_iter().map(|head| head.run).collect())
    }

    /// The same with the kinds of the runs and where the next page begins. A page of what a credential reaches may be
    /// short, or empty, and others follow.
    pub async fn runs_page(&self, filter: &RunFilter) -> Result<RunPage> {
        let asked = Asked {
            kind: filter.kind.as_deref(),
            parked: filter.parked,
            unfinished: filter.unfinished,
            cursor: filter.before.map(|id| cursor::write(LIST, &id.to_string())),
            limit: filter.page_rows(),
        };
        let Page { runs, next } = self.get(&path(["workflows"]), &asked).await?;
        let runs = runs.iter().map(|row| head(row)).collect::<serde_json::Result<_>>();
        let runs = runs.map_err(|error| self.unreadable(error.to_string()))?;
        let place = |next: &String| cursor::read(LIST, next)?.parse().ok();
        let unplaced = || self.unreadable("the next page has no place".to_owned());
        let next = next.map(|next| place(&next).ok_or_else(unplaced)).transpose()?;
        Ok(RunPage { runs, next })
    }

    /// A page of what has come for a run, after a number; 0: from the first on. A page has at most 1,000 pieces.
    pub async fn mail_page(&self, id: JobId, after: i64, limit: usize) -> Result<MailPage> {
        let query = [("after", after.to_string()), ("limit", limit.to_string())];
        self.get(&path(["jobs", &id.to_string(), "mail"]), &query).await
    }

    /// A run, if the job is one.
    pub async fn run(&self, id: JobId) -> Result<Option<RunView>> {
        let run = known(self.get(&path(["workflows", &id.to_string()]), &()).await, "run_unknown");
        Ok(known(run, "job_unknown")?.flatten())
    }

    /// Everything that the code of a run saw.
    pub async fn history(&self, id: JobId) -> Result<History> {
        self.get(&of(id, "history"), &()).await
    }

    /// What a run did, in order.
    pub async fn journal(&self, id: JobId) -> Result<Vec<Recorded>> {
        Ok(self.get::<Journal>(&path(["jobs", &id.to_string(), "journal"]), &()).await?.entries)
    }

    /// What was done with a run from outside, in order.
    pub async fn run_acts(&self, id: JobId) -> Result<Vec<RunActView>> {
        self.get(&of(id, "acts"), &()).await
    }

    /// Lets a run go no further than where it waits next. Here and in the acts below, who did it is whose credential
    /// it is, whatever `by` says.
    pub async fn pause_run(&self, id: JobId, by: &str, why: &str) -> Result<()> {
        self.act_on_run(id, by, RunAct { act: "pause", why, ..RunAct::default() }).await.map(drop)
    }

    /// Lets a run go on that was paused or parked.
    pub async fn resume_run(&self, id: JobId, by: &str, why: &str) -> Result<()> {
        self.act_on_run(id, by, RunAct { act: "resume", why, ..RunAct::default() }).await.map(drop)
    }

    /// The same for a run whose journal is full: from now on it may have so many entries.
    pub async fn resume_run_with_journal(
        &self,
        id: JobId,
        journal_entries_max: u32,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let journal_entries_max = Some(journal_entries_max);
        let act = RunAct { act: "resume", journal_entries_max, why, ..RunAct::default() };
        self.act_on_run(id, by, act).await.map(drop)
    }

    /// Forgets what a run did from this step on, and lets it go on from there.
    pub async fn reset_run(&self, id: JobId, step: &str, by: &str, why: &str) -> Result<()> {
        self.act_on_run(id, by, RunAct::on("reset", step, why)).await.map(drop)
    }

    /// Lets a step that is stuck have returned this.
    pub async fn skip_step<T: Serialize + ?Sized>(
        &self,
        id: JobId,
        step: &str,
        output: &T,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let output = Some(written(output)?);
        self.act_on_run(id, by, RunAct { output, ..RunAct::on("skip", step, why) }).await.map(drop)
    }

    /// Lets a step that is stuck have failed for good.
    pub async fn fail_step(
        &self,
        id: JobId,
        step: &str,
        message: &str,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let message = Some(message);
        self.act_on_run(id, by, RunAct { message, ..RunAct::on("fail", step, why) }).await.map(drop)
    }

    /// Lets a step that has ended have returned this; what came after it is forgotten.
    pub async fn edit_step<T: Serialize + ?Sized>(
        &self,
        id: JobId,
        step: &str,
        output: &T,
        by: &str,
        why: &str,
    ) -> Result<()> {
        let output = Some(written(output)?);
        self.act_on_run(id, by, RunAct { output, ..RunAct::on("edit", step, why) }).await.map(drop)
    }

    /// Starts a run that goes on from a step of another.
    pub async fn fork_run(
        &self,
        id: JobId,
        step: &str,
        fork: ForkAs,
        by: &str,
        why: &str,
    ) -> Result<JobId> {
        let instead = fork == ForkAs::Instead;
        let act = RunAct { instead, ..RunAct::on("fork", step, why) };
        let acted = self.act_on_run(id, by, act).await?;
        acted.fork.ok_or_else(|| self.unreadable("no fork".to_owned()))
    }

    /// Calls a run off, and undoes what it did.
    pub async fn cancel_run(&self, id: JobId, by: &str, why: &str) -> Result<CancelAnswer> {
        let acted =
            self.act_on_run(id, by, RunAct { act: "cancel", why, ..RunAct::default() }).await?;
        acted.cancel.ok_or_else(|| self.unreadable("no answer to a cancel".to_owned()))
    }

    async fn act_on_run(&self, id: JobId, by: &str, act: RunAct<'_>) -> Result<Acted> {
        let _ = by;
        self.value(self.request(Method::POST, &of(id, "acts")).json(&act)).await
    }

    /// Sends a message to a run and waits for what it answers; an error with the code `wait_timeout` if it has not in
    /// this time. Without an id of its own it is given one, so that it is heard once however often it is asked.
    pub async fn update<T: DeserializeOwned>(
        &self,
        run: JobId,
        update: Signal,
        timeout: Duration,
    ) -> Result<T> {
        let (began, said) = (Instant::now(), message(&update)?);
        let id = said.id.map_or_else(|| JobId::new().to_string(), str::to_owned);
        let mut question =
            Question { name: said.name, payload: said.payload, id: &id, timeout: Span(timeout) };
        loop {
            let turn = timeout.saturating_sub(began.elapsed()).min(ANSWER_MAX);
            question.timeout = Span(turn);
            let request = self.patient(Method::POST, &of(run, "update"), turn).json(&question);
            let read = |reply: Reply| serde_json::from_str(reply.answer.get());
            match self.value::<Reply>(request).await {
                Ok(reply) => {
                    return read(reply).map_err(|error| self.unreadable(error.to_string()));
                }
                Err(error) if error.code() != "wait_timeout" => return Err(error),
                Err(_) if began.elapsed() < timeout => {}
                Err(_) => {
                    let view = self.job(run).await?;
                    let state = view.ok_or(tidemill::Error::JobUnknown { id: run })?.state;
                    let waited_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                    return Err(tidemill::Error::WaitTimeout { id: run, waited_ms, state }.into());
                }
            }
        }
    }

    /// What an object is: what jobs of one name and key keep between them. Of jobs of a tenant,
    /// `ObjectKey::new("user-7").tenant("acme")` is its key; a credential that is of a tenant asks for its own.
    pub async fn object<'a, S: DeserializeOwned>(
        &self,
        name: &str,
        key: impl Into<ObjectKey<'a>>,
    ) -> Result<Option<S>> {
        let key = key.into();
        let asked = self.get::<Object>(&path(["objects", name]), &of_object(key)).await;
        let Some(object) = known(asked, "object_unknown")? else { return Ok(None) };
        let state = serde_json::from_str(object.state.get());
        state.map(Some).map_err(|error| {
            let name = format!("{name}/{}", key.key);
            tidemill::Error::ObjectUnreadable { name, reason: error.to_string() }.into()
        })
    }
}

/// How an object is asked for.
pub(crate) fn of_object(key: ObjectKey<'_>) -> Vec<(&'static str, &str)> {
    let tenant = key.tenant.map(|tenant| ("tenant", tenant));
    [("key", key.key)].into_iter().chain(tenant).collect()
}

fn written<T: Serialize + ?Sized>(value: &T) -> Result<Raw> {
    let written = serde_json::value::to_raw_value(value).map_err(|error| {
        tidemill::Error::from(tidemill_core::Error::PayloadNotJson { reason: error.to_string() })
    });
    Ok(written?)
}

/// A run and the rest of its row, read apart: flattened, the digits of what it shows of itself would be lost.
fn head(row: &RawValue) -> serde_json::Result<RunHead> {
    let Stand { kind, job_state } = serde_json::from_str(row.get())?;
    Ok(RunHead { run: serde_json::from_str(row.get())?, kind, job_state })
}

fn of(id: JobId, what: &str) -> Path {
    path(["workflows", &id.to_string(), what])
}
