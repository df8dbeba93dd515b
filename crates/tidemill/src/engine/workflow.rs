//! Runs of workflows from outside: signals to them, what they did, and what operators do with them.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::Entry;
use tidemill_core::{Error as Invalid, JobId, Limits, Payload, name};
use tidemill_store::run::{
    EntryRow, RunAct, RunAnswer, RunFilter, RunView, Signal as Sent, SignalAnswer,
};
use tidemill_store::{Error as StoreError, Receipt};

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;

/// A message to a run.
///
/// ```
/// let approval = tidemill::Signal::new("approve", &true).id("click-17");
/// ```
#[derive(Debug, Clone)]
pub struct Signal {
    name: String,
    payload: std::result::Result<String, String>,
    id: Option<String>,
}

impl Signal {
    /// A signal of this name that carries this.
    pub fn new<T: Serialize + ?Sized>(name: impl Into<String>, payload: &T) -> Self {
        let payload = serde_json::to_string(payload).map_err(|e| e.to_string());
        Self { name: name.into(), payload, id: None }
    }

    /// Sent again under the same id, it is not sent again.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    fn check(self, to: JobId, limits: &Limits) -> Result<Sent> {
        let bytes_max = tidemill_core::workflow::STEP_NAME_BYTES_MAX;
        name::check("signal", &self.name, bytes_max)?;
        if let Some(id) = &self.id {
            name::check("id of a signal", id, bytes_max)?;
        }
        let payload = self.payload.map_err(|reason| Invalid::PayloadNotJson { reason })?;
        let payload = Payload::written(payload, limits)?;
        Ok(Sent { to, name: self.name, payload, id: self.id })
    }
}

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recorded {
    /// Its number.
    pub number: u32,
    /// When it was written.
    pub at: Timestamp,
    /// It.
    pub entry: Entry,
}

impl Tidemill {
    /// Sends a signal to a run. It is kept until the run asks for it, also if the run has not begun.
    pub async fn signal(&self, run: JobId, signal: Signal) -> Result<()> {
        let sent = signal.check(run, &self.0.limits)?;
        let (_, answers) = verb("signal", 1, self.0.store.signal(None, vec![sent])).await?;
        signalled(run, answers.first())
    }

    /// Enqueues a job and sends it a signal, in one transaction. With a unique key, an existing job that stands for it
    /// gets the signal instead.
    pub async fn signal_with_start(
        &self,
        job: impl Into<Enqueue>,
        signal: Signal,
    ) -> Result<Receipt> {
        let job = self.checked(job.into())?;
        let (id, sent) = (job.id, signal.check(job.id, &self.0.limits)?);
        let sending = self.0.store.signal(Some(job), vec![sent]);
        let (receipt, answers) = verb("signal", 1, sending).await?;
        let receipt = receipt.unwrap_or(Receipt::Enqueued { id });
        signalled(receipt.id(), answers.first())?;
        Ok(receipt)
    }

    /// What is known of a run beside its journal.
    pub async fn run(&self, id: JobId) -> Result<Option<RunView>> {
        Ok(self.0.store.journal(id).await?.1)
    }

    /// A page of runs, newest first.
    pub async fn runs(&self, filter: &RunFilter) -> Result<Vec<RunView>> {
        Ok(self.0.store.runs(filter).await?)
    }

    /// What a run shows of itself; `None` if it shows nothing.
    pub async fn run_state<T: DeserializeOwned>(&self, id: JobId) -> Result<Option<T>> {
        let run = self.run(id).await?.ok_or(Error::RunUnknown { id })?;
        let read = run.state.map(|state| state.read()).transpose();
        read.map_err(|e| Error::OutputUnreadable { id, reason: e.to_string() })
    }

    /// What a run did, in order.
    pub async fn journal(&self, id: JobId) -> Result<Vec<Recorded>> {
        let (rows, _) = self.0.store.journal(id).await?;
        let read = |EntryRow { number, at, entry }: EntryRow| {
            let entry = serde_json::from_str(&entry);
            let unreadable = |e: serde_json::Error| StoreError::Database { reason: e.to_string() };
            Ok(Recorded { number, at, entry: entry.map_err(unreadable)? })
        };
        rows.into_iter().map(read).collect()
    }

    /// Lets a run go no further than where it waits next, until it is resumed.
    pub async fn pause_run(&self, id: JobId) -> Result<()> {
        self.act_on_run(id, RunAct::Pause).await
    }

    /// Lets a run go on that was paused or parked.
    pub async fn resume_run(&self, id: JobId) -> Result<()> {
        self.act_on_run(id, RunAct::Resume).await
    }

    /// Forgets what a run did from this step on, and lets it go on from there. Only while it waits: pause it first.
    pub async fn reset_run(&self, id: JobId, step: &str) -> Result<()> {
        let journal = self.journal(id).await?;
        let first = journal.iter().find(|recorded| recorded.entry.key() == step);
        let Some(first) = first else {
            let why = format!("its journal has nothing under {step:?}");
            return Err(Error::RunNotNow { id, why });
        };
        self.act_on_run(id, RunAct::Reset { from: first.number }).await
    }

    async fn act_on_run(&self, id: JobId, act: RunAct) -> Result<()> {
        match self.0.store.change_run(id, act).await? {
            RunAnswer::Acted => Ok(()),
            RunAnswer::NotNow => {
                let why = "it does not wait; pause it first, if it has not finished".to_owned();
                Err(Error::RunNotNow { id, why })
            }
            RunAnswer::Unknown => Err(Error::RunUnknown { id }),
        }
    }
}

fn signalled(run: JobId, answer: Option<&SignalAnswer>) -> Result<()> {
    match answer {
        Some(SignalAnswer::Kept) => Ok(()),
        Some(SignalAnswer::Finished) => Err(Error::RunFinished { id: run }),
        Some(SignalAnswer::Unknown) | None => Err(Error::JobUnknown { id: run }),
    }
}
