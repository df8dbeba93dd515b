//! The words and the rules of Tidemill.
//!
//! Everything here is pure: no runtime, no SQL, no randomness but what is passed in. A rule is a
//! function of (state, input, now), so each one can be read, tested and proven on its own. The
//! store remembers what was decided here, and the engine acts on it.

pub mod access;
pub mod alert;
pub mod audit;
pub mod bounded;
pub mod by;
pub mod clock;
pub mod credit;
pub mod cursor;
pub mod dead;
pub mod depth;
pub mod error;
pub mod flow;
pub mod gate;
pub mod id;
pub mod job;
pub mod limit;
pub mod measure;
pub mod moment;
pub mod name;
pub mod payload;
pub mod problem;
pub mod queue;
pub mod redact;
pub mod retention;
pub mod retry;
pub mod schedule;
pub mod share;
pub mod span;
pub mod stowaway;
pub mod stream;
pub mod trace;
pub mod webhook;
pub mod why;
pub mod wire;
pub mod wish;
pub mod workflow;

pub use access::secret::Secret;
pub use access::{Act, Grant, Role};
pub use alert::{Alert, AlertKind, Thresholds};
pub use by::By;
pub use clock::{Clock, ManualClock};
pub use depth::Overflow;
pub use error::{Error, Result};
pub use flow::Flow;
pub use gate::{Breaker, Lacking, Limit, Per, QueueLimit, Rate};
pub use id::{AuditId, CredentialId, FlowId, JobId, PlanId, Token, WorkerId};
pub use job::ordered::{Line, OnDead};
pub use job::outcome::{ErrorClass, Failure, Settlement};
pub use job::state::State;
pub use job::unique::{OnDuplicate, Scope, Unique, UniqueKey};
pub use job::{Due, Job, NewJob, Options, Priority};
pub use limit::Limits;
pub use payload::Payload;
pub use queue::{Edition, QueueRules, RuleBook};
pub use retention::Retention;
pub use retry::own::OwnRetry;
pub use retry::{Backoff, Jitter, Retry};
pub use share::BandWeights;
pub use wish::Wish;
