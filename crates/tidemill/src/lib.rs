//! Durable background work on the database you already have.
//!
//! The library people use. `engine/` has the verbs (enqueue, claim, run, settle) and the clockwork;
//! `worker/` has the hands. Rules are in `tidemill-core`, memory is in `tidemill-store`.
#![doc = include_str!("../../../README.md")]

/// The page on schedules, so that its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/schedules.md")]
struct SchedulesPage;

/// The guide, so that its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
#[doc = include_str!("../../../docs/isolation.md")]
#[doc = include_str!("../../../docs/fairness.md")]
#[doc = include_str!("../../../docs/why.md")]
#[doc = include_str!("../../../docs/backpressure.md")]
#[doc = include_str!("../../../docs/limits.md")]
#[doc = include_str!("../../../docs/ordering.md")]
#[doc = include_str!("../../../docs/sagas.md")]
#[doc = include_str!("../../../docs/idempotency.md")]
#[doc = include_str!("../../../docs/security.md")]
#[doc = include_str!("../../../docs/metrics.md")]
struct Guide;

/// The page on streams, so that its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/streams.md")]
struct StreamsPage;

/// The page on workflows, so that its code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/workflows.md")]
struct WorkflowsPage;

/// The page on dead letters, so that its code is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/dead-letters.md")]
struct DeadLettersPage;

/// The pages on flows, so that their code is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/flows.md")]
#[doc = include_str!("../../../docs/chains.md")]
#[doc = include_str!("../../../docs/fan-in.md")]
#[doc = include_str!("../../../docs/graphs.md")]
struct FlowsPages;

pub mod effect;
mod engine;
mod error;
pub mod local;
pub mod testing;
mod worker;

pub use async_trait::async_trait;
pub use effect::{Effect, Mark};
pub use engine::Tidemill;
pub use engine::audit::Audit;
pub use engine::builder::Builder;
pub use engine::change::Retried;
pub use engine::credential::Credentials;
pub use engine::credential::verify::{Refusal, Verified};
pub use engine::dead::Dead;
pub use engine::dead::replay::{ReplayPace, ReplayReport, Replaying, replay};
pub use engine::depth::{Watermark, Watermarks};
pub use engine::enqueue::Target;
pub use engine::flow::building::Building;
pub use engine::flow::json::FlowWish;
pub use engine::flow::new::Flow;
pub use engine::keys::{KeyCount, Reach, Rotated};
pub use engine::limit::{LimitState, NamedLimit};
pub use engine::measure::glance::Glance;
pub use engine::measure::names::METRICS;
pub use engine::measure::overview::{LimitView, Overview};
pub use engine::schedule::Schedules;
pub use engine::schedule::ask::{Backfill, ComingSlot, KeyDue, PastSlot, Ran};
pub use engine::schedule::declare::{Declaration, Declared};
pub use engine::schedule::json::ScheduleWish;
pub use engine::schedule::new::Schedule;
pub use engine::service::{Service, Services};
pub use engine::stream::Follow;
pub use engine::telemetry::Counts;
pub use engine::webhook::{Delivery, Sent, WebhookView, Webhooks};
pub use engine::work;
pub use engine::workflow::Signal;
pub use engine::workflow::act::ForkAs;
pub use engine::workflow::history::{History, Recorded};
pub use engine::workflow::page::{MailPage, RunHead, RunPage};
pub use error::{Error, Result};
pub use jiff::Timestamp;
pub use tidemill_core as core;
pub use tidemill_core::access::Standing;
pub use tidemill_core::dead::plan::{Act as PlanAct, Stage as PlanStage};
pub use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
pub use tidemill_core::redact::{Redaction, Secrets};
pub use tidemill_core::schedule::{Missed, Overlap, Rule, slot_of};
pub use tidemill_core::stream::{Chunk, End, Event, Progress, Said};
pub use tidemill_core::workflow::ObjectKey;
pub use tidemill_core::{
    Act, Alert, AlertKind, AuditId, Backoff, Breaker, By, Clock, CredentialId, ErrorClass, FlowId,
    Grant, Jitter, JobId, Lacking, Limit, Limits, ManualClock, OnDead, OnDuplicate, Overflow,
    OwnRetry, Payload, Per, PlanId, Priority, QueueRules, Rate, Retention, Retry, Role, Scope,
    Secret, State, Thresholds, Token, Unique, WorkerId,
};
pub use tidemill_store as store;
pub use tidemill_store::audit;
pub use tidemill_store::flow::{
    FlowFilter, FlowHead, FlowProgress, FlowView, Input, Output, StepView,
};
pub use tidemill_store::plan::{PlanGroup, PlanView};
pub use tidemill_store::run::{RunActView, RunFilter, RunView};
pub use tidemill_store::stream::{StreamAnswer, StreamItem};
pub use tidemill_store::{
    CancelAnswer, CredentialView, JobFilter, JobPage, JobView, Keyring, Receipt,
};
pub use worker::broker::Broker;
pub use worker::context::Context;
pub use worker::durable::{
    Child, Children, First, First3, First4, Object, Proof, Race, Recorder, Started, Step,
    StepContext, Transaction, Update,
};
pub use worker::fail::Fail;
pub use worker::job::{Enqueue, Job, Settings};
pub use worker::middleware::{Attempted, Middleware, Next};
pub use worker::replay::asked::ReplayLine;
pub use worker::replay::{Replayed, RunReplay, RunsToReplay};
pub use worker::stop::Stop;
pub use worker::undo::{Outcome, Undo};
pub use worker::{Running, Worker};
