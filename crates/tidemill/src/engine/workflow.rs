//! Runs of workflows from outside: signals to them, and what is known of them.

mod act;
pub mod history;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::{Error as Invalid, JobId, Limits, Payload, name};
use tidemill_store::Receipt;
use tidemill_store::run::{RunFilter, RunView, Signal as Sent, SignalAnswer};

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
}

fn signalled(run: JobId, answer: Option<&SignalAnswer>) -> Result<()> {
    match answer {
        Some(SignalAnswer::Kept) => Ok(()),
        Some(SignalAnswer::Finished) => Err(Error::RunFinished { id: run }),
        Some(SignalAnswer::Unknown) | None => Err(Error::JobUnknown { id: run }),
    }
}
