//! The wishes of a job, the same on the command line and in a JSON line.
//!
//! One struct serves both, so that no option exists in one place only. It refuses names it does
//! not know: a misspelt `dealy` must not run a job at once.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill::{Enqueue, JobId, OnDead, OnDuplicate, Priority, Retry, Scope, Timestamp, Unique};

use super::backoff::BackoffText;
use crate::duration::Span;
use crate::exit::{Failure, Outcome};

/// How a job is to be treated.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wishes {
    /// The kind, in a JSON line.
    #[arg(skip)]
    pub kind: Option<String>,
    /// The payload, in a JSON line.
    #[arg(skip)]
    pub payload: Option<Box<RawValue>>,
    /// Where it waits [default: default]
    #[arg(long)]
    queue: Option<String>,
    /// In which band: urgent, high, normal or low [default: normal]
    #[arg(long, value_name = "BAND")]
    priority: Option<Priority>,
    /// Start this long from now
    #[arg(long, value_name = "DURATION", conflicts_with = "run_at")]
    delay: Option<Span>,
    /// Start at this time (RFC 3339); one that has passed means now
    #[arg(long, value_name = "TIME")]
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
    /// Jobs of its queue and key run one at a time, in order; when it is dead, it blocks those behind
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
    /// Its id, a UUID; the same id enqueued twice is enqueued once
    #[arg(long, value_name = "UUID")]
    id: Option<JobId>,
}

impl PartialEq for Wishes {
    /// Equal when they wish the same; told by their words, because a raw payload has no equality.
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Wishes {
    /// Takes the window out: what a schedule makes is spread by the schedule.
    pub fn take_spread(&mut self) -> Option<std::time::Duration> {
        self.spread.take().map(|span| span.0)
    }

    /// The job they describe.
    pub fn job(self, kind: String, payload: String) -> Outcome<Enqueue> {
        let unique = self.unique()?;
        let retry = self.retry();
        let mut job = Enqueue::raw(kind, payload);
        macro_rules! wish {
            ($($value:expr => $method:ident),* $(,)?) => {
                $(if let Some(value) = $value { job = job.$method(value); })*
            };
        }
        wish! {
            self.queue => queue,
            self.priority => priority,
            self.delay.map(|span| span.0) => delay,
            self.run_at => run_at,
            self.spread.map(|span| span.0) => spread,
            self.tenant => tenant,
            self.key => key,
            self.ordered => ordered,
            unique => unique,
            retry => retry,
            self.run_timeout.map(|span| span.0) => run_timeout,
            self.start_within.map(|span| span.0) => start_within,
            self.finish_within.map(|span| span.0) => finish_within,
            self.trace => trace,
            self.retain.map(|span| span.0) => retain,
            self.id => id,
        }
        Ok(self.tags.into_iter().fold(job, Enqueue::tag))
    }

    fn retry(&self) -> Option<Retry> {
        if self.attempts.is_none() && self.backoff.is_none() {
            return None;
        }
        let retry = self.attempts.map_or_else(Retry::default, Retry::attempts);
        Some(match &self.backoff {
            Some(backoff) => retry.backoff(backoff.0.clone()),
            None => retry,
        })
    }

    fn unique(&self) -> Outcome<Option<Unique>> {
        let unique = match (&self.unique_key, self.unique_by.as_slice()) {
            (Some(key), []) => Unique::by_key(key),
            (None, [all]) if all == "payload" => Unique::by_payload(),
            (None, [_, ..]) => Unique::by_fields(self.unique_by.iter().cloned()),
            (Some(_), _) => {
                return Err(Failure::usage("a unique key is either given or made of the payload"));
            }
            (None, [])
                if self.unique_scope.is_some() || self.on_duplicate.is_some() || self.force =>
            {
                return Err(Failure::usage("duplicates need something that makes them the same")
                    .hint("give a unique key, or say which fields of the payload make one"));
            }
            (None, []) => return Ok(None),
        };
        let unique = unique.on_duplicate(self.on_duplicate.unwrap_or_default());
        let unique = match self.unique_scope.as_deref() {
            None | Some("unfinished") => unique,
            Some("forever") => unique.forever(),
            Some(period) => {
                let period = period.parse::<Span>().map_err(|_| {
                    Failure::usage(format!("{period:?} is not a scope of a unique key"))
                        .hint("one of unfinished, forever, or a duration like 1d")
                })?;
                unique.scope(Scope::Period(period.0))
            }
        };
        Ok(Some(if self.force { unique.force() } else { unique }))
    }
}
