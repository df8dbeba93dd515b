//! The wishes of a job on the command line; JSON has the same, by the same names (`tidemill::core::Wish`).

use serde_json::value::RawValue;
use tidemill::core::retry::text::BackoffText;
use tidemill::core::webhook::Tell;
use tidemill::core::{Wish, moment};
use tidemill::{Enqueue, JobId, OnDead, OnDuplicate, Priority, Timestamp};

use crate::duration::Span;
use crate::exit::{Exit, Failure, Outcome};

/// How a job is to be treated.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub struct Wishes {
    /// Where it waits [default: default]
    #[arg(long)]
    queue: Option<String>,
    /// In which band: urgent, high, normal or low [default: normal]
    #[arg(long, value_name = "BAND")]
    priority: Option<Priority>,
    /// Start this long from now
    #[arg(long, value_name = "DURATION", conflicts_with = "run_at", allow_hyphen_values = true)]
    delay: Option<Span>,
    /// Start at this time (RFC 3339); one that has passed means now
    #[arg(long, value_name = "TIME", value_parser = moment::parse)]
    run_at: Option<Timestamp>,
    /// Start within this window after that, at a place its key or tenant decides
    #[arg(long, value_name = "DURATION")]
    spread: Option<Span>,
    /// Whose job it is
    #[arg(long)]
    tenant: Option<String>,
    /// What per-key limits and ordering count by
    #[arg(long)]
    key: Option<String>,
    /// Jobs of its queue, tenant and key run one at a time, in order; when it is dead, it blocks those behind
    /// it, or lets them pass: block or skip [default: block]
    #[arg(
        long,
        value_name = "POLICY",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "block"
    )]
    ordered: Option<OnDead>,
    /// What makes two jobs of this kind the same
    #[arg(long, value_name = "KEY", conflicts_with = "unique_by")]
    unique_key: Option<String>,
    /// The same, made of the payload: `payload`, or the names of its fields
    #[arg(long, value_name = "FIELD,…", value_delimiter = ',')]
    unique_by: Vec<String>,
    /// How long the unique key is held: unfinished, forever, or a duration [default: unfinished]
    #[arg(long, value_name = "SCOPE")]
    unique_scope: Option<String>,
    /// What a duplicate gets: reject, join, replace, debounce, throttle or run_once_more
    /// [default: reject]
    #[arg(long, value_name = "POLICY")]
    on_duplicate: Option<OnDuplicate>,
    /// Enqueue although the unique key is held, and take the key over
    #[arg(long)]
    force: bool,
    /// Attempts in all, the first included
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    attempts: Option<u16>,
    /// The delay between attempts: 5s, exponential:1s..1h, decorrelated:1s..1h, custom:1s,10s,1m
    #[arg(long)]
    backoff: Option<BackoffText>,
    /// One attempt may run this long
    #[arg(long, value_name = "DURATION")]
    run_timeout: Option<Span>,
    /// It is dead if no attempt has started this long after it was due
    #[arg(long, value_name = "DURATION")]
    start_within: Option<Span>,
    /// It is dead if it has not finished after this long
    #[arg(long, value_name = "DURATION")]
    finish_within: Option<Span>,
    /// A word to search by; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// W3C trace context (traceparent) to carry along
    #[arg(long, value_name = "TRACEPARENT")]
    trace: Option<String>,
    /// Keep it this long after it has finished
    #[arg(long, value_name = "DURATION")]
    retain: Option<Span>,
    /// The webhook that is to hear of its end
    #[arg(long, value_name = "NAME")]
    webhook: Option<String>,
    /// Its id, a UUID; the same id enqueued twice is enqueued once
    #[arg(long, value_name = "UUID")]
    id: Option<JobId>,
}

impl Wishes {
    /// Takes the window out: what a schedule makes is spread by the schedule.
    pub fn take_spread(&mut self) -> Option<std::time::Duration> {
        self.spread.take().map(|span| span.0)
    }

    /// The id, if one was given.
    pub fn id(&self) -> Option<JobId> {
        self.id
    }

    /// The job they describe.
    pub fn job(self, kind: String, payload: String) -> Outcome<Enqueue> {
        let payload = RawValue::from_string(payload).map_err(|error| {
            Failure::new(
                Exit::Usage,
                "payload_not_json",
                format!("the payload is not JSON: {error}"),
            )
        })?;
        let Self { queue, priority, delay, run_at, spread, tenant, key, ordered, .. } = self;
        let Self { unique_key, unique_by, unique_scope, on_duplicate, force, .. } = self;
        let Self { attempts, backoff, run_timeout, start_within, finish_within, .. } = self;
        let Self { tags, trace, webhook, retain, id, .. } = self;
        Ok(Enqueue::try_from(Wish {
            kind,
            payload: Some(payload),
            queue,
            priority,
            delay,
            run_at,
            spread,
            tenant,
            key,
            ordered,
            unique_key,
            unique_by,
            unique_print: None,
            unique_scope,
            on_duplicate,
            force,
            attempts,
            ambiguous_attempts: None,
            backoff,
            run_timeout,
            start_within,
            finish_within,
            tags,
            trace,
            webhook: webhook.map(|to| Tell { to, events: Vec::new() }),
            retain,
            id,
        })?)
    }
}
