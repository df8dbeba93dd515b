//! Runs of workflows from outside: signals to them, and what is known of them.

pub mod act;
pub mod history;
pub mod page;
pub(crate) mod unlock;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::{Ending, ObjectKey};
use tidemill_core::{Error as Invalid, JobId, Limits, NewJob, Payload, name};
use tidemill_store::run::{Reply, Room, RunFilter, RunView, Signal as Sent, SignalAnswer};
use tidemill_store::{Hint, Receipt};
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::engine::telemetry::verb;
use crate::engine::wait::{LOOK_FIRST, LOOK_RARELY};
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

    /// Its name, what it carries as JSON, and its id: for those who send it to an engine elsewhere.
    pub fn parts(&self) -> Result<(&str, &str, Option<&str>)> {
        let refused = |reason: &String| Invalid::PayloadNotJson { reason: reason.clone() };
        let payload = self.payload.as_deref().map_err(refused)?;
        Ok((&self.name, payload, self.id.as_deref()))
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
    /// Sends a signal to a run. It is kept until the run asks for it, also if the run has not begun. A run takes only
    /// so many that it has not asked for ([`Limits::mailbox_signals_max`]); then it is refused, `mailbox_full`.
    pub async fn signal(&self, run: JobId, signal: Signal) -> Result<()> {
        let sent = signal.check(run, &self.0.limits)?;
        let (_, answers) = verb("signal", 1, self.send(None, sent)).await?;
        self.signalled(run, answers.first())
    }

    /// Enqueues a job and sends it a signal, in one transaction. With a unique key, an existing job that stands for it
    /// gets the signal instead.
    pub async fn signal_with_start(
        &self,
        job: impl Into<Enqueue>,
        signal: Signal,
    ) -> Result<Receipt> {
        self.know_rules().await;
        let job = self.checked(job.into())?;
        let (id, sent) = (job.id, signal.check(job.id, &self.0.limits)?);
        let (receipt, answers) = verb("signal", 1, self.send(Some(job), sent)).await?;
        let receipt = receipt.unwrap_or(Receipt::Enqueued { id });
        self.signalled(receipt.id(), answers.first())?;
        Ok(receipt)
    }

    /// Sends a message to a run and waits for what it answers. Sent again under the same id, it is not sent again,
    /// and the answer is the same. One that the run refuses is an error, `update_refused`; so is a run that finishes
    /// without an answer, `run_finished`. After `timeout` it fails with `wait_timeout`; ask again under its id then.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidemill::{JobId, Signal, Tidemill};
    /// # async fn add(mill: Tidemill, cart: JobId) -> tidemill::Result<()> {
    /// let items: u32 = mill.update(cart, Signal::new("add", &3).id("click-17"), Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn update<T: DeserializeOwned>(
        &self,
        run: JobId,
        mut update: Signal,
        timeout: Duration,
    ) -> Result<T> {
        let has_id = update.id.is_some();
        let sent = update.id.get_or_insert_with(|| JobId::new().to_string()).clone();
        let expected = [Hint::Mail { id: run }, Hint::Finished { id: run }];
        let answered = self.0.store.wake().expect(expected);
        // One that was sent before may have been answered by a run that has finished since.
        if !has_id || self.0.store.reply(run, &sent).await? == Reply::Unknown {
            self.signal(run, update).await?;
        }
        let deadline = ends_at(timeout);
        let mut pause = LOOK_FIRST;
        loop {
            match self.0.store.reply(run, &sent).await? {
                Reply::Given(answer) => return read_answer(run, &answer),
                Reply::Pending if Instant::now() < deadline => {}
                Reply::Pending => {
                    let state = self.job(run).await?.ok_or(Error::JobUnknown { id: run })?.state;
                    let waited_ms = timeout.as_millis() as u64;
                    return Err(Error::WaitTimeout { id: run, waited_ms, state });
                }
                Reply::Finished => return Err(Error::RunFinished { id: run }),
                Reply::Unknown => return Err(Error::RunUnknown { id: run }),
            }
            let next_look = (Instant::now() + pause).min(deadline);
            pause = (pause * 2).min(LOOK_RARELY);
            tokio::select! {
                () = tokio::time::sleep_until(next_look) => {}
                () = answered.come() => {}
            }
        }
    }

    fn send(
        &self,
        start: Option<NewJob>,
        sent: Sent,
    ) -> impl Future<Output = tidemill_store::Result<(Option<Receipt>, Vec<SignalAnswer>)>> {
        self.0.store.signal(start, vec![sent], Room::from(&self.0.limits))
    }

    fn signalled(&self, run: JobId, answer: Option<&SignalAnswer>) -> Result<()> {
        match answer {
            Some(SignalAnswer::Kept) => Ok(()),
            Some(SignalAnswer::Finished) => Err(Error::RunFinished { id: run }),
            Some(SignalAnswer::Unknown) | None => Err(Error::JobUnknown { id: run }),
            Some(SignalAnswer::Full) => {
                let Limits { mailbox_signals_max, mailbox_bytes_max, .. } = self.0.limits;
                let (signals_max, bytes_max) = (mailbox_signals_max, mailbox_bytes_max);
                Err(Error::MailboxFull { id: run, signals_max, bytes_max })
            }
        }
    }

    /// What the object of this name and key is; `None`: nothing. See [`Enqueue::object`]. Of jobs of a tenant,
    /// `ObjectKey::new("user-7").tenant("acme")` is its key.
    pub async fn object<'a, S: DeserializeOwned>(
        &self,
        name: &str,
        key: impl Into<ObjectKey<'a>>,
    ) -> Result<Option<S>> {
        let key = key.into();
        let Some(state) = self.0.store.object(name, key).await? else { return Ok(None) };
        let unreadable = |e: serde_json::Error| Error::ObjectUnreadable {
            name: format!("{name}/{}", key.key),
            reason: e.to_string(),
        };
        state.read().map(Some).map_err(unreadable)
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

fn read_answer<T: DeserializeOwned>(run: JobId, answer: &str) -> Result<T> {
    let unreadable =
        |e: serde_json::Error| Error::OutputUnreadable { id: run, reason: e.to_string() };
    match serde_json::from_str(answer).map_err(unreadable)? {
        Ending::Ok(output) => output.read().map_err(unreadable),
        Ending::Err { message, .. } => Err(Error::UpdateRefused { id: run, reason: message }),
        Ending::Aside { .. } => Err(Error::RunUnknown { id: run }),
    }
}
