//! A job as it is asked for in JSON: a line of `tidemill enqueue --lines`, and the body of an HTTP request.
//!
//! One struct serves both, so that no wish exists in one place only. It refuses names it does not know: a misspelt
//! `dealy` must not run a job at once.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::ordered::OnDead;
use crate::job::unique::{Made, OnDuplicate, Scope, Unique};
use crate::job::{Due, NewJob, Options, Priority};
use crate::moment;
use crate::retry::own::OwnRetry;
use crate::retry::text::BackoffText;
use crate::schedule::spread;
use crate::span::Span;
use crate::webhook::{Tell, TellText};

/// What is to be done, and how it is to be treated.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Wish {
    /// The kind of the job.
    pub kind: String,
    /// Its payload; `null` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Where it waits; `default` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// In which band; `normal` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// It may start this long from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// It may start at this time; one that has passed means now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "moment::read_option")]
    pub run_at: Option<Timestamp>,
    /// It starts within this window after that, at a place that its key or tenant decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Span>,
    /// Whose job it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What limits per key and ordering count by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Jobs of its queue, tenant and key run one at a time, in order; what a dead one does to those behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OnDead>,
    /// What makes two jobs of this kind the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// The same, made of the payload: `["payload"]`, or the names of its fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unique_by: Vec<String>,
    /// The same, as a library made it: 32 digits of hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_print: Option<String>,
    /// How long the unique key is held: `unfinished`, `forever`, or a duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_scope: Option<String>,
    /// What a duplicate gets; `reject` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_duplicate: Option<OnDuplicate>,
    /// It is enqueued although the unique key is held, and takes the key over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// Attempts in all, the first included. What is not given of these three is as its kind says, else its queue, else
    /// 20, 3 and exponential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u16>,
    /// Attempts after which one whose effect nobody knows (a panic, a timeout) is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ambiguous_attempts: Option<u16>,
    /// The delay between attempts: `5s`, `exponential:1s..1h`, `decorrelated:1s..1h`, `custom:1s,10s,1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<BackoffText>,
    /// One attempt may run this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<Span>,
    /// It is dead if no attempt has started this long after it was due: whoever would take it then does not run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_within: Option<Span>,
    /// It is dead if it has not finished after this long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_within: Option<Span>,
    /// Words to search by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// W3C trace context (`traceparent`) to carry along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The webhook that hears of its end, or that it is parked: its name, or an object that says of which of these.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "tell")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<TellText>))]
    pub webhook: Option<Tell>,
    /// It is kept this long after it has finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retain: Option<Span>,
    /// Its id, a UUID; the same id enqueued twice is enqueued once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<JobId>,
}

impl Wish {
    /// How it is retried, as far as it says so.
    pub fn retry(&self) -> Option<OwnRetry> {
        let backoff = self.backoff.as_ref().map(|BackoffText(backoff)| backoff.clone());
        let (attempts_max, ambiguous_max) = (self.attempts, self.ambiguous_attempts);
        OwnRetry { attempts_max, ambiguous_max, backoff }.named()
    }

    /// What makes it the same as another, if it says so.
    pub fn unique(&self) -> Result<Option<Unique>> {
        let says_more = self.unique_scope.is_some() || self.on_duplicate.is_some() || self.force;
        let by = (&self.unique_key, self.unique_by.as_slice(), &self.unique_print);
        let unique = match by {
            (Some(key), [], None) => Unique::by_key(key),
            (None, [], Some(print)) => Unique::by_print(print),
            (None, [all], None) if all == "payload" => Unique::by_payload(),
            (None, [_, ..], None) => Unique::by_fields(self.unique_by.iter().cloned()),
            (Some(_), ..) | (None, [_, ..], Some(_)) => {
                return contradiction("a unique key is either given or made of the payload");
            }
            (None, [], None) if says_more => {
                return contradiction(
                    "duplicates need something that makes them the same; give a unique key, or say which fields of \
                     the payload make one",
                );
            }
            (None, [], None) => return Ok(None),
        };
        let unique = unique.on_duplicate(self.on_duplicate.unwrap_or_default());
        let unique = match self.unique_scope.as_deref() {
            None | Some("unfinished") => unique,
            Some("forever") => unique.forever(),
            Some(period) => match period.parse::<Span>() {
                Ok(period) => unique.scope(Scope::Period(period.0)),
                Err(_) => {
                    return Err(Error::WordUnknown {
                        what: "scope of a unique key",
                        value: period.to_owned(),
                        known: "unfinished, forever, or a duration like 1d",
                    });
                }
            },
        };
        Ok(Some(if self.force { unique.force() } else { unique }))
    }

    /// Refuses wishes that contradict each other, and a window that no job could be spread over.
    pub fn check(&self) -> Result<()> {
        if self.delay.is_some() && self.run_at.is_some() {
            return contradiction("a job starts after a delay or at a time, not both");
        }
        if self.attempts == Some(0) || self.ambiguous_attempts == Some(0) {
            return contradiction("0 attempts would never run it; give at least 1");
        }
        if let Some(Span(window)) = self.spread {
            let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
            spread::check(spread::WINDOW, window_ms)?;
        }
        self.unique().map(drop)
    }
}

impl From<&NewJob> for Wish {
    /// The wish that makes this very job, for another process to make. Where the job stands in a flow, and whose child
    /// it is, is no wish.
    fn from(job: &NewJob) -> Self {
        let span = |ms: u64| Span(Duration::from_millis(ms));
        let Options { retry, tags, trace, webhook, ordered, .. } = &job.options;
        let (delay, run_at) = match job.due {
            Due::Now => (None, None),
            Due::In(delay) => (Some(Span(delay)), None),
            Due::At(at) => (None, Some(at)),
        };
        let made = job.unique.as_ref().map(|unique| unique.made(&job.kind));
        Self {
            kind: job.kind.clone(),
            payload: RawValue::from_string(job.payload.as_str().to_owned()).ok(),
            queue: Some(job.queue.clone()),
            priority: Some(job.priority),
            delay,
            run_at,
            spread: None,
            tenant: job.tenant.clone(),
            key: job.key.clone(),
            ordered: *ordered,
            unique_key: made.and_then(Made::given).map(str::to_owned),
            unique_by: Vec::new(),
            unique_print: made.and_then(Made::print).map(str::to_owned),
            unique_scope: job.unique.as_ref().map(|unique| match unique.scope {
                Scope::Period(period) => Span(period).to_string(),
                scope => scope.word().to_owned(),
            }),
            on_duplicate: job.unique.as_ref().map(|unique| unique.on_duplicate),
            force: job.unique.as_ref().is_some_and(|unique| unique.force),
            attempts: retry.as_ref().and_then(|retry| retry.attempts_max),
            ambiguous_attempts: retry.as_ref().and_then(|retry| retry.ambiguous_max),
            backoff: retry.as_ref().and_then(|retry| retry.backoff.clone()).map(BackoffText),
            run_timeout: job.options.run_timeout_ms.map(span),
            start_within: job.options.start_within_ms.map(span),
            finish_within: job.options.finish_within_ms.map(span),
            tags: tags.clone(),
            trace: trace.clone(),
            webhook: webhook.as_deref().cloned(),
            retain: job.options.retain_ms.map(span),
            id: Some(job.id),
        }
    }
}

fn tell<'de, D: Deserializer<'de>>(text: D) -> std::result::Result<Option<Tell>, D::Error> {
    Ok(Option::<TellText>::deserialize(text)?.map(Tell::from))
}

fn contradiction<T>(reason: &str) -> Result<T> {
    Err(Error::WishContradiction { reason: reason.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_is_read_and_written_as_it_was() {
        let text = r#"{"kind":"k","payload":{"n":9007199254740993},"queue":"mail","priority":"high","delay":"5m",
            "tenant":"t","key":"c:1","unique_key":"u","unique_scope":"1d","on_duplicate":"join","attempts":3,
            "ambiguous_attempts":2,"backoff":"fixed:1s",
            "run_timeout":"1m","start_within":"1h","finish_within":"2h","tags":["a"],
            "trace":"00-1","webhook":{"to":"w","events":["dead"]},
            "retain":"1d","id":"018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de"}"#;
        let wish: Wish = serde_json::from_str(text).unwrap();
        wish.check().unwrap();
        let written = serde_json::to_string(&wish).unwrap();
        let squeezed: String = text.split_whitespace().collect();
        assert_eq!(written, squeezed);
    }

    #[test]
    fn a_webhook_may_be_a_name() {
        let read = |webhook: &str| {
            serde_json::from_str::<Wish>(&format!(r#"{{"kind":"k","webhook":{webhook}}}"#))
        };
        let whole = Some(Tell { to: "w".into(), events: Vec::new() });
        assert_eq!(read(r#""w""#).unwrap().webhook, whole);
        assert_eq!(read(r#"{"to":"w"}"#).unwrap().webhook, whole);
        for wrong in ["7", "[]", "{}", r#"{"to":"w","of":1}"#, r#"{"to":"w","events":["ended"]}"#] {
            let said = read(wrong).unwrap_err().to_string();
            assert!(said.starts_with("it is the name of a webhook, or "), "{wrong}: {said}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |text: &str| {
            let wish: Wish = serde_json::from_str(text).unwrap();
            wish.check().unwrap_err().code()
        };
        for text in [
            r#"{"kind":"k","on_duplicate":"join"}"#,
            r#"{"kind":"k","unique_key":"u","unique_by":["a"]}"#,
            r#"{"kind":"k","delay":"5m","run_at":"2026-01-31T12:00:00Z"}"#,
            r#"{"kind":"k","attempts":0}"#,
        ] {
            assert_eq!(refused(text), "wish_contradiction", "{text}");
        }
        assert_eq!(refused(r#"{"kind":"k","unique_key":"u","unique_scope":"1y"}"#), "word_unknown");
        assert!(serde_json::from_str::<Wish>(r#"{"kind":"k","dealy":"5m"}"#).is_err());
        assert!(serde_json::from_str::<Wish>(r#"{"queue":"q"}"#).is_err(), "it has no kind");
    }
}
