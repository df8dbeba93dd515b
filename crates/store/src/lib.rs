//! Durable memory: the `Store` trait, and all SQL of the project.
//!
//! Two backends, one meaning. `sqlite/` and `postgres/` have the same file names, the same tables
//! and the same words; a conformance suite runs over both. The store decides nothing that is a
//! rule of jobs: rules live in `tidemill-core`, and what they decided is applied here, in one
//! transaction, guarded by the token.

pub mod ask;
pub mod audit;
pub mod credential;
pub mod decided;
mod encrypted;
pub mod error;
pub mod flow;
mod followed;
pub mod full;
pub mod keyring;
mod late;
pub mod lease;
pub mod measure;
mod nul;
mod open;
mod options;
mod over;
pub mod plan;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod request;
pub mod run;
pub mod schedule;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod store;
pub mod stream;
mod together;
pub mod value;
pub mod view;
pub mod wake;
mod wanted;
pub mod webhook;

pub use audit::Audits;
pub use credential::{CredentialView, Credentials};
pub use error::{Error, Result};
pub use flow::Flows;
pub use full::Full;
pub use keyring::Keyring;
pub use lease::Leases;
pub use measure::Measured;
pub use open::{OpenOptions, open, without_password};
pub use plan::{PlanView, Plans};
pub use request::{
    CancelAnswer, Claim, ClaimRequest, ClaimedJob, EditAnswer, Lane, Receipt, Rescued, SettleItem,
    Settled, Share, WorkerCard,
};
pub use run::Runs;
pub use schedule::{FireView, ScheduleView};
pub use store::Store;
pub use stream::Streams;
pub use view::{
    Crowd, DeadGroup, DeadLetter, DepthView, End, JobFilter, JobPage, JobPlace, JobView, LineView,
    QueueView, WorkerView,
};
pub use wake::{Expecting, Hint, Wake};
pub use webhook::Webhooks;

// The drivers that the adapters speak, so that a caller can name the very same version.
#[cfg(feature = "sqlite")]
pub use rusqlite;
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
pub use sqlx;
#[cfg(feature = "postgres")]
pub use tokio_postgres;
