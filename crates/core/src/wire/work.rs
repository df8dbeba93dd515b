//! What a worker and a server say to each other.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::Brought;
use super::run::RunBody;
use crate::id::{JobId, Token, WorkerId};
use crate::job::outcome::ErrorClass;
use crate::job::{Job, Options, Priority};
use crate::payload::Payload;
use crate::retry::text::BackoffText;
use crate::span::Span;
use crate::workflow::{Diff, ParkCode};

/// A worker, as it introduces itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// For people: host and process.
    pub name: String,
    /// The queues it will take from, by name or pattern (`mail:*`).
    pub queues: Vec<String>,
    /// The kinds it knows; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// How many jobs it runs at once.
    #[serde(default = "one")]
    pub slots: u32,
    /// Which of them the jobs of a queue or pattern may take, where that is not all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots_of: BTreeMap<String, QueueSlots>,
    /// How long after its last beat it is given up: between 1s and 1h, 6s when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
}

/// Which slots of a worker the jobs of a queue may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueSlots {
    /// Slots that are its own: nobody else takes them, and they are taken first.
    #[serde(default)]
    pub own: u32,
    /// How many it may take of those that are nobody's own.
    #[serde(default)]
    pub shared: u32,
}

impl QueueSlots {
    /// How many jobs of the queue run at once at most.
    pub fn all(self) -> u32 {
        self.own.saturating_add(self.shared)
    }
}

/// A worker that is registered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Registered {
    /// This run of it. A worker that was given up registers anew, and is another one.
    pub id: WorkerId,
}

/// How many jobs were given back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedOff {
    /// How many.
    pub given_back: u64,
}

/// A heartbeat.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Pulse {
    /// It beats after this time, or as soon as a job of it is called off; at once when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "2s"))]
    pub wait: Option<Span>,
    /// All tokens it has. What was claimed for it a minute ago under others was lost on its way, and is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Vec<Token>>,
}

/// What a heartbeat brings back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Beaten {
    /// Jobs it runs that were called off: end them and settle.
    pub cancelled: Vec<JobId>,
    /// How long it waited before it was written, in milliseconds: the lease counts from then, and no sooner than from
    /// so long after it was sent.
    #[serde(default)]
    pub waited_ms: u64,
}

/// A wish for work.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The queues to take from, by name or pattern (`mail:*`).
    pub queues: Vec<String>,
    /// Only these kinds; none means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// At most this many: the free slots. 1 when not given, at most 500.
    #[serde(default = "one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 500))]
    pub jobs_max: u32,
    /// How long to wait for something; not at all when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "2s"))]
    pub wait: Option<Span>,
}

/// Jobs that a worker has from now on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Work {
    /// Proves the lease on all of them; none when there are no jobs.
    pub token: Option<Token>,
    /// The store's present.
    pub now: Timestamp,
    /// What it is to run.
    pub jobs: Vec<Assigned>,
}

/// A job to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(from = "AssignedWire")]
pub struct Assigned {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// The number of this attempt; the first is 1.
    pub attempt: u16,
    /// How often it lost its worker.
    pub lost: u16,
    /// How long the attempt may run, if the job or its queue says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// When it must have finished, by the store's clock: an attempt that still runs then is to be stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_by: Option<Timestamp>,
    /// A journal or mail is kept for it: read that before you run it.
    pub has_run: bool,
}

/// The same as it is read, side by side: serde reads no raw JSON in a struct that is flattened into another.
#[derive(Deserialize)]
struct AssignedWire {
    id: JobId,
    kind: String,
    queue: String,
    priority: Priority,
    tenant: Option<String>,
    key: Option<String>,
    unique_key: Option<String>,
    payload: Payload,
    options: Options,
    created_at: Timestamp,
    attempt: u16,
    lost: u16,
    #[serde(default)]
    run_timeout_ms: Option<u64>,
    #[serde(default)]
    finish_by: Option<Timestamp>,
    has_run: bool,
}

impl From<AssignedWire> for Assigned {
    fn from(wire: AssignedWire) -> Self {
        let AssignedWire { id, kind, queue, priority, tenant, key, unique_key, .. } = wire;
        let (payload, options, created_at) = (wire.payload, wire.options, wire.created_at);
        Self {
            job: Job {
                id,
                kind,
                queue,
                priority,
                tenant,
                key,
                unique_key,
                payload,
                options,
                created_at,
            },
            attempt: wire.attempt,
            lost: wire.lost,
            run_timeout_ms: wire.run_timeout_ms,
            finish_by: wire.finish_by,
            has_run: wire.has_run,
        }
    }
}

/// How attempts ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reports {
    /// At most 1,000.
    pub reports: Vec<ReportBody>,
}

/// How one attempt ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportBody {
    /// Which job.
    pub id: JobId,
    /// The token of its claim.
    pub token: Token,
    /// What its handler says.
    #[serde(deserialize_with = "one_outcome")]
    pub outcome: OutcomeBody,
    /// When it started, by the worker's clock; for the history only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// Attempts in all, of jobs of this kind that do not say; goes before what their queue says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u16>,
    /// Attempts after which an ambiguous failure is final, by the same rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous_attempts: Option<u16>,
    /// The delay between attempts, by the same rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffText>,
    /// What its run wants written with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunBody>,
}

/// Reads an outcome, and says what is wrong with two: serde would miss a brace.
fn one_outcome<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutcomeBody, D::Error> {
    struct One;
    impl<'de> Visitor<'de> for One {
        type Value = OutcomeBody;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(r#"an object with one field, such as {"done": {}}"#)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<OutcomeBody, A::Error> {
            let outcome = OutcomeBody::deserialize(MapAccessDeserializer::new(&mut fields))?;
            match fields.next_key::<String>()? {
                None => Ok(outcome),
                Some(second) => Err(A::Error::custom(format!(
                    "an attempt ends with one outcome, and {second:?} is a second one; report what is so"
                ))),
            }
        }
    }
    deserializer.deserialize_map(One)
}

/// What a handler says.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum OutcomeBody {
    /// It is done.
    Done {
        /// What it returned; `null` when not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
        output: Option<Box<RawValue>>,
        /// Jobs that are enqueued in the same transaction.
        #[serde(default, skip_serializing_if = "Brought::is_empty")]
        #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::wish::Wish>))]
        follow_ups: Brought,
        /// Steps that are added to the job's flow in the same transaction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<Step>,
    },
    /// It failed; the class decides whether it runs again.
    Failed {
        /// `transient` when not given.
        #[serde(default = "transient")]
        class: ErrorClass,
        /// What happened, for people.
        message: String,
        /// When to try again, before the policy's delay.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after: Option<Span>,
    },
    /// It wants to be called again later; no attempt is spent.
    Snooze {
        /// For how long.
        delay: Span,
    },
    /// It is called off.
    Cancel {
        /// Why.
        reason: String,
    },
    /// It was not begun, or cannot go on here: ready again, no attempt spent.
    GiveBack {},
    /// Its run waits: for the clock, or for mail.
    Wait {
        /// The first moment at which something is due.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// New mail is of use from so many pieces on; 0: mail is of no use.
        #[serde(default)]
        mail_min: u32,
        /// What is waited for, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        what: Vec<String>,
        /// The number of the last piece of mail it has read.
        #[serde(default)]
        read: i64,
        /// Why it does not go on by itself, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parked: Option<String>,
        /// The stable code of that; `parked_by_worker` when not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parked_code: Option<ParkCode>,
        /// How its code differs from its journal, if that is why it does not go on by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        differs: Option<Diff>,
        /// It continues anew, with an empty journal.
        #[serde(default)]
        anew: bool,
    },
}

/// Jobs that are added to a flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name; if it is taken, it gets a number.
    pub name: String,
    /// What it is made of.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<crate::wish::Wish>))]
    pub jobs: Brought,
    /// They leave nothing behind that would have to be undone: needed in a saga before its point of no return.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nothing_to_undo: bool,
}

/// What became of the reports, in their order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Answers {
    /// One for each report.
    pub answers: Vec<SettledBody>,
}

/// What became of one report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum SettledBody {
    /// It is durable; also when it was settled by the same token before.
    Accepted,
    /// It would have run again, but was called off meanwhile.
    Cancelled,
    /// The lease was lost: nothing was written.
    Stale,
}

fn one() -> u32 {
    1
}

fn transient() -> ErrorClass {
    ErrorClass::Transient
}
