//! Webhooks: who is told, over HTTP, that jobs have ended; and what is told.
//!
//! A delivery is a job of its own, in the queue [`QUEUE`], with the webhook's id as its key: so it is retried, limited,
//! circuit-broken and buried as every job is. The store writes it in the transaction that ends the job it tells of.
//!
//! It refuses to tell of deliveries, which would never end.

pub mod sign;
pub mod target;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::alert::Alert;
use crate::alert::book::News;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::state::State;
use crate::job::{Job, NewJob, Options};
use crate::limit::NAME_BYTES_MAX;
use crate::name;
use crate::payload::Payload;
use crate::queue::matches;
use crate::retry::{Backoff, Jitter, Retry};

/// Where deliveries wait.
pub const QUEUE: &str = "tidemill:webhooks";
/// What delivers them.
pub const KIND: &str = "tidemill:webhook";
/// The most webhooks of one store: each that ends a job looks at all of them.
pub const WEBHOOKS_MAX: usize = 1000;
/// Queues, and kinds, that one webhook may name.
pub const NAMES_MAX: usize = 100;
/// An output of more bytes is not told.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// How a job ended, to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Event {
    /// It finished well.
    Done,
    /// It was called off.
    Cancelled,
    /// It gave up.
    Dead,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Done, Self::Cancelled, Self::Dead];

    /// The state it is the coming of.
    pub fn state(self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Cancelled => State::Cancelled,
            Self::Dead => State::Dead,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        self.state().word()
    }
}

impl std::str::FromStr for Event {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|event| event.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "event",
            value: word.to_owned(),
            known: "done, cancelled, dead",
        })
    }
}

/// What a job wishes to be told of its end, whatever the webhook itself means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tell {
    /// The name of the webhook.
    pub to: String,
    /// Of which ends; all of them when none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// The same as it is asked for: `"orders"` alone is told of all ends.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "it is the name of a webhook, or {\"to\": NAME, \"events\": [done, cancelled, dead]}"
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TellText {
    /// The name of the webhook.
    Name(String),
    /// The name, and of which ends.
    Whole(Tell),
}

impl From<TellText> for Tell {
    fn from(text: TellText) -> Self {
        match text {
            TellText::Name(to) => Self { to, events: Vec::new() },
            TellText::Whole(tell) => tell,
        }
    }
}

/// Who is told of what. Its secrets are kept beside it, and never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Webhook {
    /// Where it is told.
    pub url: String,
    /// Queues or patterns whose jobs it means. None: only jobs that name it themselves.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Only jobs of these kinds; of all when none is named.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Only jobs of this tenant.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Of which ends; all of them when none is named.
    #[serde(default)]
    pub events: Vec<Event>,
    /// Whether it is told of [built-in alerts](crate::alert), which are of the whole store, whatever else it means.
    #[serde(default)]
    pub alerts: bool,
    /// Whether the output of a job that is done is told, up to 256 KiB.
    #[serde(default)]
    pub output: bool,
    /// Nothing is told while it is paused, nor later of what ended meanwhile.
    #[serde(default)]
    pub paused: bool,
}

impl Webhook {
    /// One that is told of every end of the jobs that name it.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            queues: Vec::new(),
            kinds: Vec::new(),
            tenant: None,
            events: Vec::new(),
            alerts: false,
            output: false,
            paused: false,
        }
    }

    /// Refuses one that can never be told anything. Whether its address may be called is the sender's to say.
    pub fn check(&self, name: &str) -> Result<()> {
        name::check("webhook", name, NAME_BYTES_MAX)?;
        target::Target::parse(&self.url)?;
        for (what, names) in [("queue", &self.queues), ("kind", &self.kinds)] {
            if names.len() > NAMES_MAX {
                let reason = format!("{} {what}s are more than {NAMES_MAX}", names.len());
                return Err(Error::WebhookInvalid { reason });
            }
            names.iter().try_for_each(|name| name::check(what, name, NAME_BYTES_MAX))?;
        }
        if self.alerts && self.tenant.is_some() {
            let reason = "alerts are of the whole store, and not for a tenant".to_owned();
            return Err(Error::WebhookInvalid { reason });
        }
        self.tenant.iter().try_for_each(|tenant| name::check("tenant", tenant, NAME_BYTES_MAX))
    }

    /// Whether it is told of this end of this job. `name` is its own.
    pub fn means(&self, name: &str, job: &Job, state: State) -> bool {
        let of = |events: &[Event]| {
            events.is_empty() || events.iter().any(|event| event.state() == state)
        };
        let is_asked = || {
            let tell = job.options.webhook.as_ref().filter(|tell| tell.to == name);
            tell.is_some_and(|tell| of(&tell.events))
        };
        let is_meant = || {
            of(&self.events)
                && (self.kinds.is_empty() || self.kinds.contains(&job.kind))
                && self.queues.iter().any(|queue| matches(queue, &job.queue))
        };
        // A tenant's webhook hears of nobody else's jobs, also if they ask for it.
        let is_theirs = self.tenant.is_none() || self.tenant == job.tenant;
        !self.paused && is_theirs && job.queue != QUEUE && (is_meant() || is_asked())
    }
}

/// The end of a job.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// The job.
    pub job: &'a Job,
    /// How it ended.
    pub state: State,
    /// Attempts spent.
    pub attempt: u16,
    /// What it came to, if it is done.
    pub output: Option<&'a str>,
    /// Why, if it is not.
    pub error: Option<&'a str>,
    /// When.
    pub at: Timestamp,
}

/// The job that delivers it to a webhook.
pub fn delivery(webhook: Uuid, tells_output: bool, ended: &Ended<'_>) -> NewJob {
    let (id, told) = (JobId::new(), tells_output.then_some(ended.output).flatten());
    let told = told.filter(|output| output.len() <= OUTPUT_BYTES_MAX);
    let data = json!({
        "id": ended.job.id, "kind": ended.job.kind, "queue": ended.job.queue, "tenant": ended.job.tenant,
        "key": ended.job.key, "state": ended.state.word(), "attempt": ended.attempt, "error": ended.error,
        "output": told.and_then(|output| serde_json::from_str::<Value>(output).ok()),
    });
    let payload = json!({
        "webhook": webhook, "message": id, "type": format!("job.{}", ended.state.word()),
        "timestamp": ended.at, "data": data,
    });
    NewJob {
        id,
        queue: QUEUE.to_owned(),
        tenant: ended.job.tenant.clone(),
        key: Some(webhook.to_string()),
        // Its spans are linked to whoever enqueued the job it tells of.
        options: Options { trace: ended.job.options.trace.clone(), ..options() },
        ..NewJob::new(KIND, Payload::trusted(payload.to_string()))
    }
}

/// The job that tells a webhook what became of an alert.
pub fn alert_delivery(webhook: Uuid, news: &News<'_>) -> NewJob {
    let id = news.delivery(webhook);
    let Alert { alert, queue, kind, value, threshold, .. } = news.alert;
    let data = json!({
        "alert": alert.word(), "queue": queue, "kind": kind, "value": value, "threshold": threshold,
        "sentence": news.alert.to_string(),
    });
    let payload = json!({
        "webhook": webhook, "message": id, "type": news.turn.event(), "timestamp": news.at, "data": data,
    });
    NewJob {
        id,
        queue: QUEUE.to_owned(),
        key: Some(webhook.to_string()),
        options: options(),
        ..NewJob::new(KIND, Payload::trusted(payload.to_string()))
    }
}

/// How deliveries are tried: 15 times within three days or so, each for half a minute at most.
pub fn options() -> Options {
    let backoff =
        Backoff::Exponential { base_ms: 5_000, cap_ms: 12 * 3_600_000, jitter: Jitter::Equal };
    let retry = Retry { ambiguous_max: 15, ..Retry::attempts(15).backoff(backoff) };
    Options { retry: Some(retry), run_timeout_ms: Some(60_000), ..Options::default() }
}

/// What a delivery carries: where to, under which id, and what is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The webhook.
    pub webhook: Uuid,
    /// Names the message for ever, also when it is delivered again.
    pub message: Uuid,
    /// What happened: `job.done`, `job.cancelled`, `job.dead`, `alert.began` or `alert.over`.
    #[serde(rename = "type")]
    pub event: String,
    /// When.
    pub timestamp: Timestamp,
    /// To which job, and how; or which alert.
    pub data: Value,
}

impl Message {
    /// The value of `webhook-id`.
    pub fn id(&self) -> String {
        format!("msg_{}", self.message.simple())
    }

    /// What is sent: the same bytes every time.
    pub fn body(&self) -> String {
        let Self { event, timestamp, data, .. } = self;
        // In the order in which people read it; each part of it is a whole JSON text.
        format!(r#"{{"type":{},"timestamp":"{timestamp}","data":{data}}}"#, json!(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(queue: &str, tenant: Option<&str>, tell: Option<Tell>) -> Job {
        let new = NewJob::new("charge", Payload::null());
        Job {
            id: new.id,
            kind: new.kind,
            queue: queue.to_owned(),
            priority: new.priority,
            tenant: tenant.map(Into::into),
            key: None,
            unique_key: None,
            payload: new.payload,
            options: Options { webhook: tell.map(Box::new), ..Options::default() },
            created_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_webhook_means_what_it_says_and_what_asks_for_it() {
        let hook = |queues: &[&str]| Webhook {
            queues: queues.iter().map(|&queue| queue.into()).collect(),
            ..Webhook::new("https://example.com/in")
        };
        let tell = |events: &[Event]| Some(Tell { to: "w".into(), events: events.to_vec() });
        let plain = job("mail:eu", None, None);
        for (hook, job, state, told) in [
            (hook(&["mail:*"]), &plain, State::Done, true),
            (hook(&["mail"]), &plain, State::Done, false),
            (hook(&[]), &plain, State::Done, false),
            (hook(&[]), &job("q", None, tell(&[])), State::Dead, true),
            (hook(&[]), &job("q", None, tell(&[Event::Dead])), State::Done, false),
            (Webhook { events: vec![Event::Dead], ..hook(&["*"]) }, &plain, State::Done, false),
            (Webhook { kinds: vec!["other".into()], ..hook(&["*"]) }, &plain, State::Done, false),
            (Webhook { paused: true, ..hook(&["*"]) }, &plain, State::Done, false),
            (Webhook { tenant: Some("a".into()), ..hook(&["*"]) }, &plain, State::Done, false),
            (
                Webhook { tenant: Some("a".into()), ..hook(&[]) },
                &job("q", Some("b"), tell(&[])),
                State::Done,
                false,
            ),
            (hook(&["*"]), &job(QUEUE, None, tell(&[])), State::Dead, false),
        ] {
            assert_eq!(hook.means("w", job, state), told, "{hook:?} {job:?}");
        }
    }

    #[test]
    fn a_delivery_says_what_happened_and_keeps_its_id() {
        let job = job("q", Some("acme"), None);
        let ended = Ended {
            job: &job,
            state: State::Done,
            attempt: 2,
            output: Some(r#"{"n":1}"#),
            error: None,
            at: Timestamp::UNIX_EPOCH,
        };
        let new = delivery(Uuid::max(), true, &ended);
        let message: Message = serde_json::from_str(new.payload.as_str()).unwrap();
        assert_eq!((new.id.0, new.queue.as_str()), (message.message, QUEUE));
        let body: Value = serde_json::from_str(&message.body()).unwrap();
        assert_eq!(body["type"], "job.done");
        assert_eq!(body["data"]["output"]["n"], 1);
        assert_eq!(body["data"]["tenant"], "acme");
        let quiet = delivery(Uuid::max(), false, &ended);
        assert!(!quiet.payload.as_str().contains(r#""n":1"#));
    }
}
