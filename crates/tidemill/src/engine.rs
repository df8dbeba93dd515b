//! The verbs and the clockwork, around one store.
//!
//! A file per verb; each is short, because the rule it follows is in `core` and the transaction it
//! needs is in `store`.

pub mod alert;
pub mod audit;
pub mod builder;
mod cancel;
pub mod change;
pub mod credential;
pub mod dead;
pub mod depth;
mod ends;
pub mod enqueue;
pub mod flow;
pub(crate) mod heard;
pub(crate) mod judge;
pub mod keys;
pub mod limit;
mod look;
pub mod measure;
pub(crate) mod patience;
mod query;
mod queue;
mod room;
pub(crate) mod rules;
pub mod schedule;
pub mod service;
pub(crate) mod services;
pub(crate) mod settle;
pub mod stream;
mod taken;
pub mod telemetry;
pub(crate) mod trace;
mod wait;
pub mod webhook;
mod why;
pub mod work;
pub mod workflow;

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemill_core::redact::Redaction;
use tidemill_core::{Clock, JobId, Limits, Retention};

use tidemill_store::{JobView, Keyring, Store};

use crate::error::Result;
use crate::worker::Worker;
use builder::Builder;
use measure::Measures;
use telemetry::Counts;

/// Durable background work on one store. Cheap to clone; all clones are the same.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
/// let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
/// let receipt = mill.enqueue(tidemill::Enqueue::raw("greet", r#"{"name":"Ada"}"#)).await?;
/// assert!(receipt.is_new());
/// # mill.close().await; Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tidemill(pub(crate) Arc<Engine>);

pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    /// For what is written in transactions of others; all else is the store's business.
    pub(crate) keys: Keyring,
    pub(crate) limits: Limits,
    pub(crate) hidden: Redaction,
    pub(crate) kinds: Option<BTreeSet<String>>,
    pub(crate) retention: Retention,
    pub(crate) measures: Measures,
    pub(crate) alerts: alert::Alerts,
    pub(crate) rules: Arc<rules::Rules>,
    pub(crate) hands: work::hands::Hands,
    pub(crate) rooms: room::Rooms,
    pub(crate) ends: ends::Ends,
    pub(crate) looks: look::Looks<JobId, look::Found>,
    pub(crate) views: look::Looks<JobId, Arc<JobView>>,
    pub(crate) hub: stream::hub::Hub,
    pub(crate) checks: credential::verify::Checks,
}

impl Tidemill {
    /// Opens `sqlite:FILE`, `sqlite::memory:` or `postgres://…` and brings its schema up to date.
    pub async fn open(url: &str) -> Result<Self> {
        Builder::default().open(url).await
    }

    /// Opens with other choices than the default ones.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A worker for this store, to be given handlers and run.
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }

    /// The store below, for what the library does not wrap.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// What is not to be seen of payloads, as [`Builder::hide`] said.
    pub fn hidden(&self) -> &Redaction {
        &self.0.hidden
    }

    /// What this process has counted since it started.
    pub fn counts(&self) -> Counts {
        self.0.measures.counts()
    }

    /// Closes the store's connections. Workers must have stopped.
    pub async fn close(&self) {
        self.0.store.close().await;
    }
}

impl std::fmt::Debug for Tidemill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tidemill").field(&self.0.store.backend()).finish()
    }
}
