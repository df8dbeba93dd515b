//! What may change of a job that waits: its band, its payload and its rarer wishes. Nothing of one that runs or has
//! finished.
//!
//! It refuses what makes a job what it is, or says where it stands (its kind, queue, tenant, keys, due time): whoever
//! counts by those has counted it already.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Job, Options, Priority};
use crate::error::{Error, Result};
use crate::limit::Limits;
use crate::payload::Payload;
use crate::retry::text::BackoffText;
use crate::span::Span;

/// What of a job is never changed, by the names of its wishes.
pub const FIXED: [&str; 14] = [
    "id",
    "kind",
    "queue",
    "tenant",
    "key",
    "ordered",
    "unique_key",
    "unique_by",
    "unique_scope",
    "on_duplicate",
    "delay",
    "run_at",
    "spread",
    "trace",
];

/// A wish that is given, or taken back (`null`). What is not said stays.
type Given<T> = Option<Option<T>>;

/// What is to change of a job that waits, as JSON asks for it. What is not said stays; `null` takes a wish back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Changes {
    /// In which band it waits; `null`: in the one of jobs that say nothing.
    #[serde(deserialize_with = "band", skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// What its handler gets. A unique key that was made of the payload stays as it is.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    #[serde(deserialize_with = "raw", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// Attempts in all, the first included.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub attempts: Given<u16>,
    /// The delay between attempts.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BackoffText>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub backoff: Given<BackoffText>,
    /// One attempt may run this long.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Span>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub run_timeout: Given<Span>,
    /// It is dead if no attempt has started this long after it was due: whoever would take it then does not run it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Span>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub start_within: Given<Span>,
    /// It is dead if it has not finished after this long.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Span>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub finish_within: Given<Span>,
    /// Words to search by.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub tags: Given<Vec<String>>,
    /// It is kept this long after it has finished.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Span>))]
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub retain: Given<Span>,
}

fn band<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Priority>, D::Error> {
    let given = Option::<Priority>::deserialize(deserializer)?;
    Ok(Some(given.unwrap_or_default()))
}

fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> std::result::Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// A payload may be `null`, which is a payload.
fn raw<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Box<RawValue>>, D::Error> {
    Box::deserialize(from).map(Some)
}

/// A checked change of a job that waits.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    changes: Changes,
    payload: Option<Payload>,
    /// Only if the job is still as this print says ([`Job::print`]).
    pub of: Option<String>,
}

impl Edit {
    /// Another band, and nothing else.
    pub fn to(priority: Priority) -> Self {
        let changes = Changes { priority: Some(priority), ..Changes::default() };
        Self { changes, ..Self::default() }
    }

    /// Checks what is asked for.
    pub fn new(changes: Changes, limits: &Limits) -> Result<Self> {
        let payload =
            changes.payload.as_ref().map(|raw| Payload::parse(raw.get(), limits)).transpose()?;
        if changes.attempts == Some(Some(0)) {
            let reason = "0 attempts would never run it; give at least 1".to_owned();
            return Err(Error::WishContradiction { reason });
        }
        let tags = changes.tags.clone().flatten().unwrap_or_default();
        let mut options = Options { tags, ..Options::default() };
        set(&mut options.run_timeout_ms, changes.run_timeout);
        set(&mut options.start_within_ms, changes.start_within);
        set(&mut options.finish_within_ms, changes.finish_within);
        set(&mut options.retain_ms, changes.retain);
        options.check(limits)?;
        Ok(Self { changes, payload, of: None })
    }

    /// The payload that the job gets, if it gets another.
    pub fn payload_mut(&mut self) -> Option<&mut Payload> {
        self.payload.as_mut()
    }

    /// The same, only if the job is still as this print says.
    #[must_use]
    pub fn only_of(self, print: Option<String>) -> Self {
        Self { of: print, ..self }
    }

    /// The job as it is after the change; `None`: it is not the one that the change was made of.
    pub fn apply(&self, job: &Job) -> Option<Job> {
        if self.of.as_ref().is_some_and(|of| *of != job.print()) {
            return None;
        }
        let mut job = job.clone();
        let Changes { priority, attempts, backoff, tags, .. } = &self.changes;
        job.priority = priority.unwrap_or(job.priority);
        if let Some(payload) = &self.payload {
            job.payload = payload.clone();
        }
        let Changes { run_timeout, start_within, finish_within, retain, .. } = &self.changes;
        let options = &mut job.options;
        set(&mut options.run_timeout_ms, *run_timeout);
        set(&mut options.start_within_ms, *start_within);
        set(&mut options.finish_within_ms, *finish_within);
        set(&mut options.retain_ms, *retain);
        if let Some(tags) = tags {
            options.tags = tags.clone().unwrap_or_default();
        }
        if attempts.is_some() || backoff.is_some() {
            let mut retry = options.retry.take().unwrap_or_default();
            retry.attempts_max = attempts.unwrap_or(retry.attempts_max);
            if let Some(backoff) = backoff {
                retry.backoff = backoff.as_ref().map(|text| text.0.clone());
            }
            options.retry = retry.named();
        }
        Some(job)
    }
}

fn set(wish: &mut Option<u64>, given: Given<Span>) {
    if let Some(given) = given {
        *wish = given.map(|span| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX));
    }
}

impl Job {
    /// A print of all that may be changed of it: two looks with the same print saw the same job.
    pub fn print(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.priority.word().as_bytes());
        hasher.update(&(self.payload.as_str().len() as u64).to_be_bytes());
        hasher.update(self.payload.as_str().as_bytes());
        // Plain data always has a JSON text.
        hasher.update(serde_json::to_string(&self.options).unwrap_or_default().as_bytes());
        hasher.finalize().to_hex()[..16].to_owned()
    }

    /// The same under a key: who sees a part of the job alone cannot find the rest by trying what gives this print.
    pub fn print_under(&self, key: &[u8; 32]) -> String {
        blake3::keyed_hash(key, self.print().as_bytes()).to_hex()[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use jiff::Timestamp;

    fn job() -> Job {
        Job {
            id: JobId::new(),
            kind: "k".into(),
            queue: "q".into(),
            priority: Priority::Normal,
            tenant: None,
            key: None,
            unique_key: None,
            payload: Payload::null(),
            options: Options { retain_ms: Some(5), ..Options::default() },
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn edit(text: &str) -> Edit {
        Edit::new(serde_json::from_str(text).unwrap(), &Limits::default()).unwrap()
    }

    #[test]
    fn what_is_not_said_stays_and_null_takes_a_wish_back() {
        let before = job();
        assert_eq!(edit("{}").apply(&before).unwrap(), before);
        let text = r#"{"priority":"high","payload":{"n":9007199254740993},"attempts":3,"backoff":"fixed:1s",
            "run_timeout":"1m","tags":["a"],"retain":null}"#;
        let after = edit(text).apply(&before).unwrap();
        assert_eq!((after.priority, after.options.retain_ms), (Priority::High, None));
        assert_eq!(after.payload.as_str(), r#"{"n":9007199254740993}"#);
        assert_eq!((after.options.run_timeout_ms, after.options.tags.len()), (Some(60_000), 1));
        let again = edit(r#"{"attempts":4}"#).apply(&after).unwrap();
        let retry = again.options.retry.clone().unwrap();
        assert_eq!(
            (retry.attempts_max, retry.backoff),
            (Some(4), Some(crate::retry::Backoff::Fixed { delay_ms: 1000 }))
        );
        let plain = edit(r#"{"priority":null}"#).apply(&after).unwrap();
        assert_eq!((plain.priority, plain.payload == after.payload), (Priority::Normal, true));
        let part = edit(r#"{"backoff":null}"#).apply(&again).unwrap().options.retry.unwrap();
        assert_eq!((part.attempts_max, part.backoff), (Some(4), None));
        let own = edit(r#"{"attempts":null,"backoff":null,"payload":null}"#).apply(&again).unwrap();
        assert_eq!((own.options.retry, own.payload), (None, Payload::null()));
    }

    #[test]
    fn a_change_of_another_job_changes_nothing() {
        let before = job();
        let change = Edit::to(Priority::Low).only_of(Some(before.print()));
        let after = change.apply(&before).unwrap();
        assert_ne!(after.print(), before.print());
        assert_eq!(change.apply(&after), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (text, code) in [
            (r#"{"attempts":0}"#, "wish_contradiction"),
            (r#"{"tags":[""]}"#, "name_empty"),
            (r#"{"start_within":"0s"}"#, "rule_invalid"),
            (r#"{"payload":"\u0000"}"#, "payload_nul"),
        ] {
            let changes = serde_json::from_str(text).unwrap();
            assert_eq!(Edit::new(changes, &Limits::default()).unwrap_err().code(), code, "{text}");
        }
        for name in FIXED {
            let text = format!(r#"{{"{name}":null}}"#);
            assert!(serde_json::from_str::<Changes>(&text).is_err(), "{name}");
        }
    }
}
