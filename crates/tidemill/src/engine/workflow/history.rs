//! Recorded histories: everything that the code of a run saw, so that other code can be led along it.
//!
//! A history is a document. Kept beside the tests of a workflow, it shows on every change whether runs that are under
//! way would still be understood ([`testing::replay`](crate::testing::replay)).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::workflow::{Ending, Entry, Mail, put_outputs_back};
use tidemill_core::{Job, JobId, Payload};
use tidemill_store::flow::Input;
use tidemill_store::run::EntryRow;
use tidemill_store::{Error as StoreError, JobView};

use crate::engine::Tidemill;
use crate::error::{Error, Result};

/// An entry of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its number.
    pub number: u32,
    /// When it was written.
    pub at: Timestamp,
    /// It.
    pub entry: Entry,
}

/// What a run did and what came for it, up to the moment when this was recorded. As JSON it is a fixture for tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The job, with its kind and its payload.
    pub job: Job,
    /// The number of the attempt that runs, or would be next.
    pub attempt: u16,
    /// When this was recorded, by the store's clock. A replay stands at this moment.
    pub at: Timestamp,
    /// The version of the code that the run began with; empty: it was not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// What it returned, if it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Payload>,
    /// What it did, in order.
    pub journal: Vec<Recorded>,
    /// What came for it, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mail: Vec<Mail>,
    /// What it got from the steps of its flow that it comes after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
}

impl Tidemill {
    /// What a run did, in order.
    pub async fn journal(&self, id: JobId) -> Result<Vec<Recorded>> {
        read(self.0.store.journal(id).await?.0)
    }

    /// Everything that the code of a run saw: what [`testing::replay`](crate::testing::replay) leads other code along.
    pub async fn history(&self, id: JobId) -> Result<History> {
        let view = self.0.store.job(id).await?.ok_or(Error::JobUnknown { id })?;
        self.history_of(view).await?.ok_or(Error::RunUnknown { id })
    }

    /// Puts what stands beside an entry back into it.
    pub(crate) async fn fetch(&self, id: JobId, entry: &mut Entry) -> Result<()> {
        if let Entry::Ended { ending, .. } = entry
            && let Ending::Aside { number, .. } = ending
            && let Some(beside) = self.0.store.value(id, *number).await?
        {
            *ending = Ending::Ok(beside.value);
        }
        if let Entry::Joined { ends, aside, .. } = entry
            && let Some(outputs) = aside
            && let Some(beside) = self.0.store.value(id, outputs.number).await?
            && put_outputs_back(ends, &beside.value)
        {
            *aside = None;
        }
        Ok(())
    }

    /// The same of a job that was looked at; `None` if it is no run, or has not begun.
    ///
    /// The job is looked at before its journal, so the journal of one that was done is whole.
    async fn history_of(&self, view: JobView) -> Result<Option<History>> {
        let (store, id) = (&self.0.store, view.job.id);
        let (rows, run) = store.journal(id).await?;
        // One that only got mail may be no workflow at all: its code is not run for a look.
        let run = run.filter(|run| !rows.is_empty() || run.waits.is_some());
        let Some(run) = run else { return Ok(None) };
        let mut journal = read(rows)?;
        for recorded in &mut journal {
            self.fetch(id, &mut recorded.entry).await?;
        }
        let mail = store.mail(id, 0).await?;
        let mut inputs = Vec::new();
        if let Some(place) = view.job.options.flow.as_ref().filter(|place| place.joins) {
            inputs = store.inputs(&[(place.id, place.step)]).await?.pop().unwrap_or_default();
        }
        Ok(Some(History {
            attempt: view.attempt + 1,
            at: store.now().await?,
            version: run.version,
            output: view.output,
            journal,
            mail,
            inputs,
            job: view.job,
        }))
    }
}

fn read(rows: Vec<EntryRow>) -> Result<Vec<Recorded>> {
    let read = |EntryRow { number, at, entry }: EntryRow| {
        let entry = serde_json::from_str(&entry);
        let unreadable = |e: serde_json::Error| StoreError::Database { reason: e.to_string() };
        Ok(Recorded { number, at, entry: entry.map_err(unreadable)? })
    };
    rows.into_iter().map(read).collect()
}
