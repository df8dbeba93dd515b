//! Transactions: steps whose outcome is written by a transaction of the handler's own, with its rows.
//!
//! The body records what the step comes to on its own connection to the store's database; its rows and the entry of the
//! journal commit together, or not at all. Whatever becomes of the commit's answer, the journal is asked before the
//! step is tried again or has ended.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::workflow::{Entry, ParkCode};
use tidemill_core::{Payload, Retry, WorkerId};
use tidemill_store::ask::{Answer, Ask, Question};
use tidemill_store::run::{Append, RunWrites, Seal};
#[cfg(feature = "sqlite")]
use tidemill_store::rusqlite::Connection;

use super::step::{Came, Step, StepContext, write};
use super::{Runner, Trouble};
use crate::engine::Tidemill;
use crate::engine::enqueue::Target;
use crate::error::{Error, Result};
use crate::testing::{Crash, Strike};
use crate::worker::boss::Boss;
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::job::Enqueue;

/// A step on its way that commits with a transaction of the handler's own: [`run`](Self::run) runs it.
#[must_use = "a transaction does nothing until it is run and awaited"]
pub struct Transaction(Step);

/// What the body of a transaction knows.
#[derive(Debug, Clone)]
pub struct Recorder {
    cx: Context,
    key: String,
    hash: Option<String>,
    step: StepContext,
}

/// Proof that a step's outcome was recorded. Commit, then return it.
#[derive(Debug)]
#[must_use = "commit the transaction, then return this"]
pub struct Proof<T>(PhantomData<T>);

impl Context {
    /// A step of this name that commits together with rows of the handler's own, in the store's database. Its body
    /// begins a transaction with any driver, writes, [records](Recorder::record_in) what the step comes to, and
    /// commits. So its rows are written exactly once, whenever the process dies.
    ///
    /// ```
    /// # use tidemill::{Context, Fail};
    /// # #[cfg(feature = "sqlite")]
    /// async fn charge(amount: i64, cx: Context) -> Result<i64, Fail> {
    ///     cx.transaction("charge").run(|t| async move {
    ///         let mut db = rusqlite::Connection::open("app.db")?;
    ///         let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    ///         tx.execute("insert into payment (amount) values (?1)", [amount])?;
    ///         let paid = t.record_in_rusqlite(&tx, &tx.last_insert_rowid())?;
    ///         tx.commit()?;
    ///         Ok(paid)
    ///     }).await
    /// }
    /// ```
    pub fn transaction(&self, name: &str) -> Transaction {
        let mut step = self.step(name);
        // The journal must be there before the body writes into it.
        step.announced = !self.run().told().begun;
        Transaction(step)
    }
}

impl Transaction {
    /// What it is given; see [`Step::input`].
    pub fn input<T: Serialize + ?Sized>(self, input: &T) -> Self {
        Self(self.0.input(input))
    }

    /// How it is tried again when it fails; see [`Step::retry`].
    pub fn retry(self, retry: Retry) -> Self {
        Self(self.0.retry(retry))
    }

    /// How long one try may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self(self.0.timeout(timeout))
    }

    /// The job that undoes it; see [`Step::undo`].
    pub fn undo(self, job: impl Into<Enqueue>) -> Self {
        Self(self.0.undo(job))
    }

    /// Runs it, unless it was recorded before.
    pub async fn run<T, F, Fut>(self, mut body: F) -> std::result::Result<T, Fail>
    where
        T: Serialize + DeserializeOwned,
        F: FnMut(Recorder) -> Fut,
        Fut: Future<Output = std::result::Result<Proof<T>, Fail>>,
    {
        let Step { cx, key, hash, .. } = &self.0;
        let (cx, key, hash) = (cx.clone(), key.clone(), hash.clone());
        self.0
            .run_to(move |step| {
                let (cx, key, hash) = (cx.clone(), key.clone(), hash.clone());
                // Where nothing can be recorded, nothing begins.
                let begun = match cx.mill() {
                    Ok(_) => Ok(body(Recorder { cx, key, hash, step })),
                    Err(error) => Err(Fail::permanent(error)),
                };
                async move { begun?.await.map(|Proof(_)| Came::Recorded) }
            })
            .await
    }
}

impl Recorder {
    /// The same whenever this step of this job is tried.
    pub fn idempotency_key(&self) -> &str {
        self.step.idempotency_key()
    }

    /// The number of this try; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.step.attempt()
    }

    /// Records what the step comes to, in the handler's transaction on the store's own database. Commit it then, and
    /// return what this answers. Refused with `lease_lost` when the attempt is over, or the step was recorded by an
    /// earlier try: then roll back and return the error.
    pub async fn record_in<'t, T: Serialize>(
        &self,
        target: impl Target<'t>,
        output: &T,
    ) -> Result<Proof<T>> {
        let mill = self.cx.boss().same_store(target.backend())?;
        let ask = self.ask(mill, output)?;
        self.recorded(&target.ask(ask).await?)
    }

    /// The same by rusqlite. Begin the transaction with `BEGIN IMMEDIATE`.
    #[cfg(feature = "sqlite")]
    pub fn record_in_rusqlite<T: Serialize>(
        &self,
        connection: &Connection,
        output: &T,
    ) -> Result<Proof<T>> {
        let mill = self.cx.boss().same_store("sqlite")?;
        let ask = self.ask(mill, output)?;
        self.recorded(&tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &ask)?)
    }

    fn ask<T: Serialize>(&self, mill: &Tidemill, output: &T) -> Result<Ask> {
        let unwritable = |reason| tidemill_core::Error::PayloadNotJson { reason };
        let output = write(output).map_err(unwritable)?;
        if self.cx.is_over() {
            return Err(Error::LeaseLost { id: self.cx.id() });
        }
        let number = self.cx.run().told().replay.as_mut().map(|replay| replay.reserve(&self.key));
        let number = number.ok_or(Error::LeaseLost { id: self.cx.id() })?;
        let (key, hash, tries) = (self.key.clone(), self.hash.clone(), self.attempt());
        let entry = serde_json::to_string(&Entry::Recorded { key, hash, tries, output });
        let entry = entry.map_err(|error| unwritable(error.to_string()))?;
        let entry = mill.0.keys.hide_entry(self.cx.id(), &entry)?;
        let (id, token) = (self.cx.id().to_string(), self.cx.token().to_string());
        Ok(Ask::new(Question::RecordStep, [id, token, number.to_string(), entry]))
    }

    fn recorded<T>(&self, answer: &Answer) -> Result<Proof<T>> {
        let lost = Error::LeaseLost { id: self.cx.id() };
        if answer.is_empty() { Err(lost) } else { Ok(Proof(PhantomData)) }
    }
}

/// What the journal has of a step whose body may have recorded something. From here on nothing can be recorded by it
/// any more.
pub(super) async fn ask_journal(cx: &Context, key: &str) -> Told {
    let Some((worker, strike, number)) = reserved(cx, key) else { return Told::Nothing };
    let entry = Entry::Sealed { key: key.to_owned() };
    let Ok(entry) = serde_json::to_string(&entry) else { return Told::Nothing };
    let writes = RunWrites { entries: vec![(number, entry)], ..RunWrites::default() };
    let item = Append { job: cx.id(), token: cx.token(), writes };
    if strike == Strike::Before {
        return Told::Trouble(Trouble::Stale);
    }
    // Elsewhere nothing can have been recorded.
    let Boss::Here(mill) = cx.boss() else { return Told::Nothing };
    match mill.0.store.seal(worker, item).await {
        _ if strike == Strike::After => Told::Trouble(Trouble::Stale),
        Ok(Seal::Recorded(entry)) => match serde_json::from_str(&entry) {
            Ok(Entry::Recorded { output, .. }) => Told::Recorded(output),
            _ => Told::unreadable(key, &entry),
        },
        Ok(Seal::Sealed) => {
            if let Some(replay) = cx.run().told().replay.as_mut() {
                replay.sealed(key);
            }
            Told::Nothing
        }
        Ok(Seal::Stale) => Told::Trouble(Trouble::Stale),
        // Nobody knows: the next attempt reads the journal.
        Err(error) => Told::Trouble(Trouble::Fail(Fail::transient(error))),
    }
}

fn reserved(cx: &Context, key: &str) -> Option<(WorkerId, Strike, u32)> {
    let told = cx.run().told();
    let number = told.replay.as_ref()?.reserved(key)?;
    let Runner { worker, crash, .. } = told.runner.as_ref()?;
    Some((*worker, crash.as_ref().map_or(Strike::None, Crash::strikes), number))
}

/// What the journal told.
pub(super) enum Told {
    /// The body recorded this.
    Recorded(Payload),
    /// It recorded nothing, and cannot any more.
    Nothing,
    /// The attempt ends.
    Trouble(Trouble),
}

impl Told {
    /// Something else stands where the body was to record.
    fn unreadable(key: &str, entry: &str) -> Self {
        let why = format!("the journal of {key:?} has {entry}");
        Self::Trouble(Trouble::park(ParkCode::JournalUnreadable, why))
    }
}
