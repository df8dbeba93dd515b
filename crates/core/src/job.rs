//! A job: a kind, a payload, and how to treat it.

pub mod deadline;
pub mod edit;
pub mod ordered;
pub mod outcome;
pub mod settle;
pub mod state;
pub mod unique;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::flow::Place;
use crate::id::JobId;
use crate::limit::{Limits, NAME_BYTES_MAX, SPAN_MS_MAX, TRACE_BYTES_MAX};
use crate::name;
use crate::payload::Payload;
use crate::retry::own::OwnRetry;
use crate::span::Span;
use crate::trace::TraceParent;
use crate::webhook::Tell;
use crate::workflow::Origin;
use ordered::OnDead;
use unique::UniqueKey;

/// The queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

/// One of four bands. Smaller numbers are served first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Priority {
    /// Before everything.
    Urgent,
    /// Before ordinary work.
    High,
    /// Ordinary work. The default.
    #[default]
    Normal,
    /// When nothing else waits.
    Low,
}

impl Priority {
    /// All bands, first served first.
    pub const ALL: [Self; 4] = [Self::Urgent, Self::High, Self::Normal, Self::Low];

    /// The number the store keeps.
    pub fn band(self) -> i16 {
        self as i16
    }

    /// The priority of a number the store kept; unknown ones are the lowest.
    pub fn of_band(band: i16) -> Self {
        Self::ALL.get(band as usize).copied().unwrap_or(Self::Low)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["urgent", "high", "normal", "low"][self as usize]
    }
}

impl std::str::FromStr for Priority {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|p| p.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "priority",
            value: word.to_owned(),
            known: "urgent, high, normal, low",
        })
    }
}

/// When a job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// As soon as a slot is free. The default.
    #[default]
    Now,
    /// This long after the store's present.
    In(Duration),
    /// At this moment; one that has passed means now.
    At(Timestamp),
}

impl Due {
    /// The moment, given the store's present.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::In(delay) => now.checked_add(delay).unwrap_or(Timestamp::MAX),
            Self::At(at) => at.max(now),
        }
    }

    /// This much later.
    #[must_use]
    pub fn later(self, by: Duration) -> Self {
        match self {
            due if by.is_zero() => due,
            Self::Now => Self::In(by),
            Self::In(delay) => Self::In(delay.saturating_add(by)),
            Self::At(at) => Self::At(at.checked_add(by).unwrap_or(Timestamp::MAX)),
        }
    }

    fn check(self, limits: &Limits, now: Timestamp) -> Result<()> {
        let horizon = SignedDuration::from_hours(i64::from(limits.due_years_max) * 366 * 24);
        let far = match self {
            Self::Now => false,
            Self::In(delay) => {
                SignedDuration::try_from(delay).is_ok_and(|d| d > horizon)
                    || SignedDuration::try_from(delay).is_err()
            }
            Self::At(at) => at.duration_since(now) > horizon,
        };
        if far {
            let due = match self {
                Self::At(at) => at.to_string(),
                Self::In(delay) => format!("in {delay:?}"),
                Self::Now => String::new(),
            };
            return Err(Error::DueTooFar { due, years_max: limits.due_years_max });
        }
        Ok(())
    }
}

/// The rarer wishes of a job. Kept as one JSON value, absent when all are at their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Options {
    /// Its own part of the retry policy, before its kind's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<OwnRetry>,
    /// One attempt may run this long. Defaults to the kind's, then the worker's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// It is dead if no attempt has started this long after it was enqueued (and due), or replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_within_ms: Option<u64>,
    /// It is dead if it has not finished this long after it was enqueued, or replayed, retries included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_within_ms: Option<u64>,
    /// Free words to search by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// W3C trace context of whoever enqueued it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Kept this long after it finished, before its queue's rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_ms: Option<u64>,
    /// Jobs of its queue, tenant and key run one at a time, in the order of their enqueue; and what it does
    /// to those behind it when it is dead. Needs a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OnDead>,
    /// When it was last sent on its way again, being dead: its deadlines count from then. Set by the replay alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed_at: Option<Timestamp>,
    /// The run that started it and hears of its end. Set by the run alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<JobId>,
    /// Whose the beginning of its journal is, if it is a fork. Set by the fork alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<Origin>,
    /// How often it has continued anew, if it is a run. Set by the run alone.
    #[serde(skip_serializing_if = "is_zero")]
    pub turn: u32,
    /// The webhook that is to hear of its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<Box<Tell>>,
    /// Where it stands in a flow. Set by the flow alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<Box<Place>>,
    /// It is not diverted by a full queue: where it would go it would be refused. Known on its way in alone.
    #[serde(skip)]
    pub stays: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(turn: &u32) -> bool {
    *turn == 0
}

impl Options {
    /// Whether everything is at its default, so that nothing need be kept.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// How many milliseconds it is kept, for a database to reckon with: longer is for ever.
    pub fn kept_ms(&self) -> Option<i64> {
        self.retain_ms.map(|ms| ms.min(SPAN_MS_MAX).cast_signed())
    }

    /// Reads options as they are kept. What cannot be read of them is left out, and told: a job must not be stuck for
    /// its wishes, nor lose one for another.
    pub fn read(text: &str) -> (Self, Option<String>) {
        let error = match serde_json::from_str(text) {
            Ok(options) => return (options, None),
            Err(error) => error.to_string(),
        };
        let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
        fields.retain(|name, value| {
            let alone = Map::from_iter([(name.clone(), value.clone())]);
            Self::deserialize(Value::Object(alone)).is_ok()
        });
        (Self::deserialize(Value::Object(fields)).unwrap_or_default(), Some(error))
    }

    /// Refuses what nobody can wish for, because the engine alone sets it.
    pub fn check_wished(&self) -> Result<()> {
        let set = [
            ("replayed_at", self.replayed_at.is_some()),
            ("parent", self.parent.is_some()),
            ("origins", !self.origins.is_empty()),
            ("turn", self.turn != 0),
        ];
        match set.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) => Err(Error::WishContradiction {
                reason: format!("the option `{name}` is set by the engine alone; leave it out"),
            }),
            None => Ok(()),
        }
    }

    fn check(&self, limits: &Limits) -> Result<()> {
        if let Some(place) = &self.flow {
            let reason =
                "a job enters a flow with the flow alone; start a flow that has it".to_owned();
            return Err(Error::FlowInvalid { step: place.name.clone(), reason });
        }
        if self.tags.len() > limits.tags_max {
            return Err(Error::TagsTooMany { tags: self.tags.len(), tags_max: limits.tags_max });
        }
        for tag in &self.tags {
            name::check("tag", tag, NAME_BYTES_MAX)?;
        }
        if let Some(tell) = &self.webhook {
            name::check("webhook", &tell.to, NAME_BYTES_MAX)?;
        }
        if let Some(trace) = &self.trace {
            name::check_value("trace context", trace, TRACE_BYTES_MAX)?;
            trace
                .parse::<TraceParent>()
                .map_err(|_| Error::TraceInvalid { value: trace.clone() })?;
        }
        self.check_times()?;
        self.retry.as_ref().map_or(Ok(()), OwnRetry::check)
    }

    /// Refuses times in which nothing can be done, and those that no database can reckon with.
    fn check_times(&self) -> Result<()> {
        for (what, ms) in [
            ("run timeout", self.run_timeout_ms),
            ("deadline to start", self.start_within_ms),
            ("deadline to finish", self.finish_within_ms),
            ("time to be kept", self.retain_ms),
        ] {
            if let Some(ms) = ms.filter(|ms| *ms > SPAN_MS_MAX) {
                let value = Span(Duration::from_millis(ms)).to_string();
                return Err(Error::DurationInvalid { what, value, years_max: 1000 });
            }
        }
        let refused = |rule, reason: &str| {
            Err(Error::RuleInvalid { rule, reason: format!("{reason}; give at least 1 ms") })
        };
        if self.run_timeout_ms == Some(0) {
            return refused("the run timeout", "0 would end every attempt as it begins");
        }
        if self.start_within_ms == Some(0) {
            return refused("the deadline to start", "0 would end the job before it begins");
        }
        if self.finish_within_ms == Some(0) {
            return refused("the deadline to finish", "0 would end the job before it begins");
        }
        Ok(())
    }
}

/// A job as it is enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Made by the caller's side, so that sending it twice enqueues it once.
    pub id: JobId,
    /// Which handler runs it.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// In which band.
    pub priority: Priority,
    /// When it may start.
    pub due: Due,
    /// Whose job it is.
    pub tenant: Option<String>,
    /// What per-key limits and ordering count by.
    pub key: Option<String>,
    /// What makes it the same as another, and what then happens.
    pub unique: Option<UniqueKey>,
    /// What the handler gets.
    pub payload: Payload,
    /// The rarer wishes.
    pub options: Options,
}

impl NewJob {
    /// A job with every wish at its default.
    pub fn new(kind: impl Into<String>, payload: Payload) -> Self {
        Self {
            id: JobId::new(),
            kind: kind.into(),
            queue: DEFAULT_QUEUE.to_owned(),
            priority: Priority::default(),
            due: Due::Now,
            tenant: None,
            key: None,
            unique: None,
            payload,
            options: Options::default(),
        }
    }

    /// Refuses what no store should see.
    pub fn check(&self, limits: &Limits, now: Timestamp) -> Result<()> {
        name::check("kind", &self.kind, NAME_BYTES_MAX)?;
        name::check("queue", &self.queue, NAME_BYTES_MAX)?;
        if let Some(tenant) = &self.tenant {
            name::check("tenant", tenant, NAME_BYTES_MAX)?;
        }
        if let Some(key) = &self.key {
            name::check("key", key, NAME_BYTES_MAX)?;
        }
        self.check_order()?;
        self.due.check(limits, now)?;
        self.check_deadline(self.options.finish_within_ms, "its deadline to finish", now)?;
        self.options.check(limits)
    }

    /// Refuses a job that is not due before this time to finish is over: it could only die. The time to start counts
    /// from when it is due, and contradicts no delay.
    pub fn check_deadline(
        &self,
        finish_within_ms: Option<u64>,
        whose: &str,
        now: Timestamp,
    ) -> Result<()> {
        let wait =
            Duration::try_from(self.due.resolve(now).duration_since(now)).unwrap_or_default();
        let within = finish_within_ms.map(Duration::from_millis);
        match within.filter(|within| !wait.is_zero() && wait >= *within) {
            Some(within) => Err(too_late("it is not due before", wait, whose, within)),
            None => Ok(()),
        }
    }
}

/// A wait after which it would be too late to finish.
pub fn too_late(what: &str, wait: Duration, whose: &str, within: Duration) -> Error {
    let (wait, within) = (Span(wait), Span(within));
    let reason = format!(
        "{what} {wait}, and {whose}, which counts from its enqueue, is {within}: it could only die; wait less than \
         {within}, or give it more than {wait} to finish"
    );
    Error::WishContradiction { reason }
}

/// A job as it was written: the body, which no attempt changes.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Job {
    /// Names it.
    pub id: JobId,
    /// Which handler runs it.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// In which band.
    pub priority: Priority,
    /// Whose job it is.
    pub tenant: Option<String>,
    /// What per-key limits and ordering count by.
    pub key: Option<String>,
    /// The unique key it holds: as the store keeps it, and in JSON as it was given.
    pub unique_key: Option<String>,
    /// What the handler gets.
    pub payload: Payload,
    /// The rarer wishes.
    pub options: Options,
    /// When it was enqueued, by the store's clock.
    pub created_at: Timestamp,
}

impl Job {
    /// The unique key it holds as people know it.
    pub fn shown_unique_key(&self) -> Option<String> {
        let key = self.unique_key.as_deref()?;
        Some(UniqueKey::shown(key, &self.kind, self.tenant.as_deref()))
    }
}

/// In JSON its unique key is as it was given. Read from there it has the mark of its kind again, whatever it begins
/// with, so that it is shown as it was.
impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "Job")]
        struct Told {
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
        }
        let told = Told::deserialize(deserializer)?;
        let Told { id, kind, queue, priority, tenant, key, payload, options, created_at, .. } =
            told;
        let unique_key = told.unique_key.map(|shown| UniqueKey::given(&kind, &shown));
        Ok(Self {
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
        })
    }
}

impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Self { id, kind, queue, priority, tenant, key, payload, options, created_at, .. } =
            self;
        let mut fields = serializer.serialize_struct("Job", 10)?;
        fields.serialize_field("id", id)?;
        fields.serialize_field("kind", kind)?;
        fields.serialize_field("queue", queue)?;
        fields.serialize_field("priority", priority)?;
        fields.serialize_field("tenant", tenant)?;
        fields.serialize_field("key", key)?;
        fields.serialize_field("unique_key", &self.shown_unique_key())?;
        fields.serialize_field("payload", payload)?;
        fields.serialize_field("options", options)?;
        fields.serialize_field("created_at", created_at)?;
        fields.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_job() -> NewJob {
        NewJob::new("k", Payload::null())
    }

    fn code(job: &NewJob) -> Option<&'static str> {
        job.check(&Limits::default(), Timestamp::UNIX_EPOCH).err().map(|e| e.code())
    }

    #[test]
    fn a_wish_that_cannot_be_read_takes_no_other_with_it() {
        let text = r#"{"ordered":"block","retry":{"attempts_max":"many"},"tags":["a"],"later":1}"#;
        let (options, unread) = Options::read(text);
        assert!(unread.unwrap().contains("many"));
        let read = Options {
            ordered: Some(OnDead::Block),
            tags: vec!["a".into()],
            retry: None,
            ..Options::default()
        };
        assert_eq!(options, read);
        for (text, is_told) in
            [("{}", false), (r#"{"retain_ms":5}"#, false), ("null", true), ("", true)]
        {
            assert_eq!(Options::read(text).1.is_some(), is_told, "{text}");
        }
    }

    #[test]
    fn a_unique_key_is_shown_alike_near_and_far() {
        let job = |key: &str, tenant: Option<&str>| Job {
            id: JobId::new(),
            kind: "k".into(),
            queue: "q".into(),
            priority: Priority::Normal,
            tenant: tenant.map(str::to_owned),
            key: None,
            unique_key: Some(key.to_owned()),
            payload: Payload::null(),
            options: Options::default(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        for (key, shown) in [
            (UniqueKey::given("k", "order:42"), "order:42"),
            (UniqueKey::given("k", "k=42"), "k=42"),
            (UniqueKey::given("k", "k=k=42"), "k=k=42"),
            (UniqueKey::given("k", "#42"), "#42"),
        ] {
            for tenant in [None, Some("acme")] {
                let near = job(&key, tenant);
                assert_eq!(near.shown_unique_key().as_deref(), Some(shown));
                let told = serde_json::to_string(&near).unwrap();
                let far: Job = serde_json::from_str(&told).unwrap();
                assert_eq!(far.shown_unique_key().as_deref(), Some(shown), "{tenant:?}");
                assert_eq!(serde_json::to_string(&far).unwrap(), told);
            }
        }
    }

    #[test]
    fn absurd_wishes_are_refused() {
        const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let far = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 366 * 30);
        let past = Timestamp::UNIX_EPOCH - SignedDuration::from_hours(1);
        let ordered = || Options { ordered: Some(OnDead::Block), ..Options::default() };
        let at_once = Options { run_timeout_ms: Some(0), ..Options::default() };
        let start_at_once = Options { start_within_ms: Some(0), ..Options::default() };
        let finish_at_once = Options { finish_within_ms: Some(0), ..Options::default() };
        let ever = Some(SPAN_MS_MAX + 1);
        let runs_ever = Options { run_timeout_ms: ever, ..Options::default() };
        let starts_ever = Options { start_within_ms: ever, ..Options::default() };
        let finishes_ever = Options { finish_within_ms: ever, ..Options::default() };
        let kept = |ms| Options { retain_ms: Some(ms), ..Options::default() };
        let traced = |trace: &str| Options { trace: Some(trace.into()), ..Options::default() };
        let tags = |n| Options { tags: vec!["t".into(); n], ..Options::default() };
        for (job, expected) in [
            (new_job(), None),
            (NewJob { due: Due::At(past), ..new_job() }, None),
            (NewJob { due: Due::At(Timestamp::MIN), ..new_job() }, None),
            (NewJob { due: Due::At(Timestamp::UNIX_EPOCH), ..new_job() }, None),
            (NewJob { due: Due::At(far), ..new_job() }, Some("due_too_far")),
            (NewJob { due: Due::In(Duration::MAX), ..new_job() }, Some("due_too_far")),
            (NewJob { kind: String::new(), ..new_job() }, Some("name_empty")),
            (NewJob { queue: "q".repeat(201), ..new_job() }, Some("name_too_long")),
            (NewJob { tenant: Some("a\0".into()), ..new_job() }, Some("name_invalid")),
            (NewJob { options: tags(32), ..new_job() }, None),
            (NewJob { options: tags(33), ..new_job() }, Some("tags_too_many")),
            (NewJob { options: ordered(), ..new_job() }, Some("key_missing")),
            (NewJob { kind: " k".into(), ..new_job() }, Some("name_invalid")),
            (NewJob { options: at_once, ..new_job() }, Some("rule_invalid")),
            (NewJob { options: start_at_once, ..new_job() }, Some("rule_invalid")),
            (NewJob { options: finish_at_once, ..new_job() }, Some("rule_invalid")),
            (NewJob { options: runs_ever, ..new_job() }, Some("duration_invalid")),
            (NewJob { options: starts_ever, ..new_job() }, Some("duration_invalid")),
            (NewJob { options: finishes_ever, ..new_job() }, Some("duration_invalid")),
            (NewJob { options: kept(u64::MAX), ..new_job() }, Some("duration_invalid")),
            (NewJob { options: kept(SPAN_MS_MAX), ..new_job() }, None),
            (NewJob { options: traced("junk"), ..new_job() }, Some("trace_invalid")),
            (NewJob { options: traced(TRACE), ..new_job() }, None),
            (NewJob { options: ordered(), key: Some("c:1".into()), ..new_job() }, None),
        ] {
            assert_eq!(code(&job), expected, "{job:?}");
        }
    }

    #[test]
    fn a_due_time_in_the_past_means_now() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(Due::At(now - SignedDuration::from_hours(1)).resolve(now), now);
        assert_eq!(Due::In(Duration::MAX).resolve(now), Timestamp::MAX);
    }

    #[test]
    fn priorities_survive_their_words_and_numbers() {
        for priority in Priority::ALL {
            assert_eq!(priority.word().parse(), Ok(priority));
            assert_eq!(Priority::of_band(priority.band()), priority);
        }
        assert!("fast".parse::<Priority>().is_err());
    }
}
