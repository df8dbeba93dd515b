//! Marks of effects: what a handler writes in a database of its own, and that it has, in one transaction.
//!
//! A job may be delivered again after its handler's work was committed and before that was settled. The mark stands
//! beside the work, so the second delivery finds it and returns what the first one recorded. The table of marks is
//! `tidemill_effect`, in the handler's own database; [`create_in`] makes it.
//!
//! It refuses to begin or commit anything: the transaction is the handler's.

use std::time::Duration;

use serde::Serialize;
use tidemill_core::{JobId, Limits, Payload};
use tidemill_store::ask::{Answer, Ask, Question};
#[cfg(feature = "sqlite")]
use tidemill_store::rusqlite::Connection;

use crate::engine::enqueue::Target;
use crate::error::{Error, Result};

/// What makes the table on Postgres, for those who migrate by files.
pub const POSTGRES: &str = Question::CreateEffects.postgres();
/// What makes the table on SQLite, for those who migrate by files.
pub const SQLITE: &str = Question::CreateEffects.sqlite();

/// Marks that are forgotten in one call, at most.
pub const FORGET_MAX: usize = 10_000;

/// Whether the work of an effect is still to be done.
#[derive(Debug)]
pub enum Effect<T> {
    /// It was done and committed, and came to this: there is nothing to do.
    Done(T),
    /// It is to be done now, in this transaction; whoever else comes waits for its end.
    Fresh(Mark),
}

/// The mark of an effect that is being done.
#[derive(Debug)]
#[must_use = "without record(), the next delivery does the work again"]
pub struct Mark {
    key: String,
}

impl Mark {
    /// Records what the effect came to, in the transaction that took the mark. Commit it then.
    pub async fn record<'t, T: Serialize + ?Sized>(
        self,
        target: impl Target<'t>,
        output: &T,
    ) -> Result<()> {
        let ask = self.ask(output)?;
        self.recorded(&target.ask(ask).await?)
    }

    /// The same by rusqlite.
    #[cfg(feature = "sqlite")]
    pub fn record_in_rusqlite<T: Serialize + ?Sized>(
        self,
        connection: &Connection,
        output: &T,
    ) -> Result<()> {
        let ask = self.ask(output)?;
        self.recorded(&tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &ask)?)
    }

    fn ask<T: Serialize + ?Sized>(&self, output: &T) -> Result<Ask> {
        let output = Payload::of(output, &Limits::default())?;
        let words = [self.key.clone(), output.as_str().to_owned()];
        Ok(Ask::new(Question::RecordEffect, words))
    }

    fn recorded(self, answer: &Answer) -> Result<()> {
        if answer.is_empty() { Err(Error::EffectElsewhere { key: self.key }) } else { Ok(()) }
    }
}

/// Makes the table of marks in a database of the caller's, unless it is there.
pub async fn create_in<'t>(target: impl Target<'t>) -> Result<()> {
    target.ask(Ask::new(Question::CreateEffects, [])).await?;
    Ok(())
}

/// The same by rusqlite.
#[cfg(feature = "sqlite")]
pub fn create_in_rusqlite(connection: &Connection) -> Result<()> {
    let ask = Ask::new(Question::CreateEffects, []);
    tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &ask)?;
    Ok(())
}

/// Forgets marks that were recorded longer ago than this, at most [`FORGET_MAX`]; answers how many. Keep them longer
/// than a job may come back: dead letters can be replayed for 90 days by default.
pub async fn forget_in<'t>(target: impl Target<'t>, older_than: Duration) -> Result<usize> {
    Ok(target.ask(forget(older_than)).await?.len())
}

/// The same by rusqlite.
#[cfg(feature = "sqlite")]
pub fn forget_in_rusqlite(connection: &Connection, older_than: Duration) -> Result<usize> {
    Ok(tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &forget(older_than))?.len())
}

fn forget(older_than: Duration) -> Ask {
    // A century is for ever, and fits every database.
    let ms = older_than.as_millis().min(3_155_760_000_000);
    Ask::new(Question::ForgetEffects, [ms.to_string(), FORGET_MAX.to_string()])
}

/// The question for the mark of a job's effect; without a name it is the job's only one.
pub(crate) fn take(id: JobId, key: &str, name: &str) -> (Mark, Ask) {
    let key = if name.is_empty() { key.to_owned() } else { format!("{key}/{name}") };
    let ask = Ask::new(Question::TakeEffect, [key.clone(), id.to_string()]);
    (Mark { key }, ask)
}

/// What the answer to it means.
pub(crate) fn taken<T: serde::de::DeserializeOwned>(
    id: JobId,
    mark: Mark,
    answer: tidemill_store::Result<Answer>,
) -> Result<Effect<T>> {
    let recorded = answer.map_err(missing)?.into_iter().next().flatten();
    let Some(output) = recorded else { return Ok(Effect::Fresh(mark)) };
    let unreadable = |e: serde_json::Error| Error::OutputUnreadable { id, reason: e.to_string() };
    Payload::trusted(output).read().map(Effect::Done).map_err(unreadable)
}

/// Says what is missing, if that is it: both databases name the table.
fn missing(error: tidemill_store::Error) -> Error {
    let reason = error.to_string();
    let is_it = matches!(error, tidemill_store::Error::Database { .. })
        && reason.contains("tidemill_effect")
        && (reason.contains("no such table") || reason.contains("does not exist"));
    if is_it { Error::EffectsMissing { reason } } else { error.into() }
}
