//! The choices made when a store is opened.

use std::collections::BTreeSet;
use std::sync::Arc;

use tidemill_core::redact::Redaction;
use tidemill_core::{Clock, Limits, Retention, Thresholds};
use tidemill_store::{Keyring, OpenOptions};

use crate::engine::alert::Alerts;
use crate::engine::credential::verify::Checks;
use crate::engine::ends::Ends;
use crate::engine::look::Looks;
use crate::engine::measure::Measures;
use crate::engine::room::Rooms;
use crate::engine::stream::hub::Hub;
use crate::engine::work::hands::Hands;
use crate::engine::{Engine, Tidemill};
use crate::error::Result;
use crate::worker::job::Job;
use crate::worker::replay::asked;

/// Opens a store with other choices than the default ones.
///
/// ```no_run
/// # async fn f() -> tidemill::Result<()> {
/// use tidemill::{Limits, Tidemill};
/// let mill = Tidemill::builder()
///     .limits(Limits { payload_bytes_max: 64 * 1024, ..Limits::default() })
///     .connections_max(16)
///     .open("postgres://app@localhost/app")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Builder {
    limits: Limits,
    hidden: Redaction,
    kinds: BTreeSet<String>,
    retention: Retention,
    thresholds: Thresholds,
    store: OpenOptions,
}

impl Builder {
    /// What inputs are checked against. Defaults to [`Limits::default`].
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Declares a kind. Once one is declared, enqueueing any other is refused: a typo is found
    /// where it is made. Without, unknown kinds wait until a worker knows them.
    #[must_use]
    pub fn kind<J: Job>(self) -> Self {
        self.kind_name(J::KIND)
    }

    /// Declares a kind by its name.
    #[must_use]
    pub fn kind_name(mut self, kind: impl Into<String>) -> Self {
        self.kinds.insert(kind.into());
        self
    }

    /// How long, and how much of, finished jobs are kept where their queue has no rule. Defaults to 3
    /// days, dead letters 90, without a bound on their number or bytes.
    #[must_use]
    pub fn retention(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// Beyond what something is an [alert](Tidemill::alerts). Defaults to [`Thresholds::default`].
    #[must_use]
    pub fn thresholds(self, thresholds: Thresholds) -> Self {
        Self { thresholds, ..self }
    }

    /// Which clock judges due times and leases. Defaults to the store's own.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.store.clock = clock;
        self
    }

    /// Whether to bring the schema up to date. Defaults to true.
    #[must_use]
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.store.migrate = migrate;
        self
    }

    /// Connections for ordinary work on Postgres. Defaults to 8.
    #[must_use]
    pub fn connections_max(mut self, connections_max: usize) -> Self {
        self.store.connections_max = connections_max;
        self
    }

    /// What payloads, outputs, journals and streams are encrypted with in the database. Defaults to no keys: they are
    /// not. `docs/encryption.md` says what that covers, and how keys are changed.
    ///
    /// ```no_run
    /// # async fn f() -> tidemill::Result<()> {
    /// use tidemill::{Keyring, Tidemill};
    /// let keys = Keyring::read("/etc/tidemill/keys".as_ref())?;
    /// let mill = Tidemill::builder().keys(keys).open("postgres://app@localhost/app").await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn keys(mut self, keys: Keyring) -> Self {
        self.store.keys = keys;
        self
    }

    /// Fields of payloads whose values are hidden in errors and streams, before they are written, and wherever people
    /// look: by `tidemill serve` in what it answers, by the command line in what it shows. Defaults to none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// use tidemill::{Redaction, Tidemill};
    /// let hidden = Redaction::parse(["password", "card.number"])?;
    /// let mill = Tidemill::builder().hide(hidden).open("sqlite::memory:").await?;
    /// # mill.close().await; Ok(()) }
    /// ```
    #[must_use]
    pub fn hide(self, hidden: Redaction) -> Self {
        Self { hidden, ..self }
    }

    /// Opens the store. A process that was asked to replay leaves its schema as it is.
    pub async fn open(mut self, url: &str) -> Result<Tidemill> {
        self.store.migrate &= !asked::is_asked();
        let (clock, keys) = (self.store.clock.clone(), self.store.keys.clone());
        let store = tidemill_store::open(url, self.store).await?;
        Ok(Tidemill(Arc::new(Engine {
            store,
            clock,
            keys,
            limits: self.limits,
            kinds: (!self.kinds.is_empty()).then_some(self.kinds),
            retention: self.retention,
            measures: Measures::default(),
            alerts: Alerts::new(self.thresholds),
            rules: Arc::default(),
            hands: Hands::new(!self.hidden.is_empty()),
            hidden: self.hidden,
            rooms: Rooms::default(),
            ends: Ends::default(),
            looks: Looks::default(),
            views: Looks::default(),
            hub: Hub::default(),
            checks: Checks::default(),
        })))
    }
}
