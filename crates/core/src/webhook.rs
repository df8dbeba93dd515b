//! Webhooks: who is told, over HTTP, that jobs have ended or do not go on by themselves; and what is told.
//!
//! A delivery is a job of its own, in the queue [`QUEUE`], with the webhook's id as its key: so it is retried, limited,
//! circuit-broken and buried as every job is. The store writes it where the job it tells of is ended or parked.
//!
//! It refuses to tell of deliveries, which would never end.

pub mod sign;
pub mod target;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
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
use crate::workflow::{ParkCode, Parked};

/// Where deliveries wait.
pub const QUEUE: &str = "tidemill:webhooks";
/// What delivers them.
pub const KIND: &str = "tidemill:webhook";
/// The most webhooks of one store: each that ends a job looks at all of them.
pub const WEBHOOKS_MAX: usize = 1000;
/// How many of them may be one tenant's.
pub const TENANT_WEBHOOKS_MAX: usize = 100;
/// Queues, and kinds, that one webhook may name.
pub const NAMES_MAX: usize = 100;
/// An output of more bytes is not told, and the message says that it was left out.
pub const OUTPUT_BYTES_MAX: usize = 256 * 1024;

/// The delay after the first try; an endpoint that asks for less does not get it.
pub const BACKOFF_MS: u64 = 5_000;
/// What was not delivered by then is dead.
const FINISH_WITHIN_MS: u64 = 3 * 24 * 3_600_000;

/// What became of a job, to a webhook.
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
    /// Its run waits until somebody has seen to it.
    Parked,
}

impl Event {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Done, Self::Cancelled, Self::Dead, Self::Parked];

    /// The end in this state; none if it is none.
    pub fn end_in(state: State) -> Option<Self> {
        match state {
            State::Done => Some(Self::Done),
            State::Cancelled => Some(Self::Cancelled),
            State::Dead => Some(Self::Dead),
            State::Blocked | State::Scheduled | State::Ready | State::Running => None,
        }
    }

    /// The state a job is in after it.
    pub fn state(self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Cancelled => State::Cancelled,
            Self::Dead => State::Dead,
            Self::Parked => State::Blocked,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done | Self::Cancelled | Self::Dead => self.state().word(),
            Self::Parked => "parked",
        }
    }
}

impl std::str::FromStr for Event {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|event| event.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "event",
            value: word.to_owned(),
            known: "done, cancelled, dead, parked",
        })
    }
}

/// What a job wishes to be told of it, whatever the webhook itself means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tell {
    /// The name of the webhook.
    pub to: String,
    /// Of which events; all of them when none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// The same as it is asked for: `"orders"` alone is told of all events.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "it is the name of a webhook, or {\"to\": NAME, \"events\": [done, cancelled, dead, parked]}"
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TellText {
    /// The name of the webhook.
    Name(String),
    /// The name, and of which events.
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
    /// Of which events; all of them when none is named.
    #[serde(default)]
    pub events: Vec<Event>,
    /// Whether it is told of [built-in alerts](crate::alert), which are of the whole store, whatever else it means.
    #[serde(default)]
    pub alerts: bool,
    /// Whether the output of a job that is done is told, up to 256 KiB; of a larger one, that it was left out.
    #[serde(default)]
    pub output: bool,
    /// Nothing is told while it is paused, nor later of what ended meanwhile.
    #[serde(default)]
    pub paused: bool,
}

impl Webhook {
    /// One that is told of every event of the jobs that name it.
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

    /// Whether it is told of this event of this job. `name` is its own.
    pub fn means(&self, name: &str, job: &Job, event: Event) -> bool {
        let of = |events: &[Event]| events.is_empty() || events.contains(&event);
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

    /// Whether it may still be told this: it may have been given to a tenant since.
    pub fn may_hear(&self, message: &Message) -> bool {
        #[derive(Deserialize)]
        struct OfTenant {
            tenant: Option<String>,
        }
        let of = message.data.read::<OfTenant>().ok().and_then(|of| of.tenant);
        self.tenant.is_none() || self.tenant == of
    }
}

/// What became of a job.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The job.
    pub job: &'a Job,
    /// That.
    pub event: Event,
    /// Attempts spent.
    pub attempt: u16,
    /// What it came to, if it is done.
    pub output: Option<&'a str>,
    /// Why, if it is not.
    pub error: Option<&'a str>,
    /// The code of that, if its run is parked.
    pub code: Option<ParkCode>,
    /// When.
    pub at: Timestamp,
}

impl<'a> Told<'a> {
    /// The job's run is parked.
    pub fn parked(job: &'a Job, attempt: u16, parked: &'a Parked, at: Timestamp) -> Self {
        let (error, code) = (Some(parked.why.as_str()), Some(parked.code));
        Self { job, event: Event::Parked, attempt, output: None, error, code, at }
    }
}

/// The job that delivers it to a webhook. It is of the webhook's tenant, if that has one, not of the job's: who is told
/// of all tenants is none of theirs.
pub fn delivery(webhook: Uuid, rule: &Webhook, told: &Told<'_>) -> NewJob {
    let (id, Told { job, event, .. }) = (JobId::new(), *told);
    let output = told.output.filter(|_| rule.output);
    let (output, left_out) = match output {
        Some(output) if output.len() > OUTPUT_BYTES_MAX => (None, true),
        output => (output, false),
    };
    let data = JobData {
        id: job.id,
        kind: &job.kind,
        queue: &job.queue,
        tenant: job.tenant.as_deref(),
        key: job.key.as_deref(),
        state: event.state().word(),
        attempt: told.attempt,
        error: told.error,
        output: output.and_then(|output| serde_json::from_str(output).ok()),
        output_left_out: left_out,
        code: told.code.map(ParkCode::code),
    };
    let message = Message {
        webhook,
        message: id.0,
        event: format!("job.{}", event.word()),
        timestamp: told.at,
        data: Payload::trusted(text(&data)),
    };
    NewJob {
        id,
        queue: QUEUE.to_owned(),
        tenant: rule.tenant.clone(),
        key: Some(webhook.to_string()),
        // Its spans are linked to whoever enqueued the job it tells of.
        options: Options { trace: job.options.trace.clone(), ..options() },
        ..NewJob::new(KIND, Payload::trusted(text(&message)))
    }
}

/// What is told of a job.
#[derive(Serialize)]
struct JobData<'a> {
    id: JobId,
    kind: &'a str,
    queue: &'a str,
    tenant: Option<&'a str>,
    key: Option<&'a str>,
    state: &'static str,
    attempt: u16,
    error: Option<&'a str>,
    /// As it was written: numbers keep all their digits.
    output: Option<&'a RawValue>,
    output_left_out: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

/// Names and JSON texts: they can always be written.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
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

/// How deliveries are tried: 15 times within a day or so, each for half a minute at most. Three days end it in any
/// case: who asks to be left alone spends no try.
pub fn options() -> Options {
    let (base_ms, cap_ms) = (BACKOFF_MS, 12 * 3_600_000);
    let backoff = Backoff::Exponential { base_ms, cap_ms, jitter: Jitter::Equal };
    let retry = Retry { ambiguous_max: 15, ..Retry::attempts(15).backoff(backoff) };
    Options {
        retry: Some(retry.into()),
        run_timeout_ms: Some(60_000),
        finish_within_ms: Some(FINISH_WITHIN_MS),
        ..Options::default()
    }
}

/// What the log keeps of a try that was turned down.
pub fn turned_down(status: u16, took_ms: u64) -> String {
    format!("it answered {status} in {took_ms} ms")
}

/// Reads from the log of a try that was turned down what was answered, and after how many milliseconds.
pub fn answer_of(error: &str) -> Option<(u16, u64)> {
    let (_, rest) = error.split_once("it answered ")?;
    let (status, rest) = rest.split_once(" in ")?;
    let (took_ms, _) = rest.split_once(" ms")?;
    Some((status.parse().ok()?, took_ms.parse().ok()?))
}

/// What a delivery carries: where to, under which id, and what is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The webhook.
    pub webhook: Uuid,
    /// Names the message for ever, also when it is delivered again.
    pub message: Uuid,
    /// What happened: `job.done`, `job.cancelled`, `job.dead`, `job.parked`, `alert.began` or `alert.over`.
    #[serde(rename = "type")]
    pub event: String,
    /// When.
    pub timestamp: Timestamp,
    /// To which job, and how; or which alert. A JSON text, which is sent as it stands.
    pub data: Payload,
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
        let data = data.as_str();
        format!(r#"{{"type":{},"timestamp":"{timestamp}","data":{data}}}"#, json!(event))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_was_answered_is_read_from_the_log() {
        let log = format!("{}: it wants to hear no more", turned_down(410, 12));
        assert_eq!(answer_of(&log), Some((410, 12)));
        for log in ["it did not answer", "it answered 12345678 in 5 ms", "it answered 500"] {
            assert_eq!(answer_of(log), None, "{log}");
        }
    }

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
        for (hook, job, event, told) in [
            (hook(&["mail:*"]), &plain, Event::Done, true),
            (hook(&["mail"]), &plain, Event::Done, false),
            (hook(&[]), &plain, Event::Done, false),
            (hook(&[]), &job("q", None, tell(&[])), Event::Dead, true),
            (hook(&[]), &job("q", None, tell(&[Event::Dead])), Event::Done, false),
            (Webhook { events: vec![Event::Dead], ..hook(&["*"]) }, &plain, Event::Done, false),
            (Webhook { kinds: vec!["other".into()], ..hook(&["*"]) }, &plain, Event::Done, false),
            (Webhook { paused: true, ..hook(&["*"]) }, &plain, Event::Done, false),
            (Webhook { tenant: Some("a".into()), ..hook(&["*"]) }, &plain, Event::Done, false),
            (
                Webhook { tenant: Some("a".into()), ..hook(&[]) },
                &job("q", Some("b"), tell(&[])),
                Event::Done,
                false,
            ),
            (hook(&["*"]), &job(QUEUE, None, tell(&[])), Event::Dead, false),
            (hook(&["*"]), &plain, Event::Parked, true),
            (Webhook { events: vec![Event::Dead], ..hook(&["*"]) }, &plain, Event::Parked, false),
            (hook(&[]), &job("q", None, tell(&[Event::Parked])), Event::Parked, true),
        ] {
            assert_eq!(hook.means("w", job, event), told, "{hook:?} {job:?}");
        }
    }

    #[test]
    fn a_delivery_says_what_happened_and_keeps_its_id() {
        let job = job("q", Some("acme"), None);
        let ended = Told {
            job: &job,
            event: Event::Done,
            attempt: 2,
            output: Some(r#"{"n":1,"large":1e400}"#),
            error: None,
            code: None,
            at: Timestamp::UNIX_EPOCH,
        };
        let rule = Webhook { output: true, ..Webhook::new("https://example.com") };
        let new = delivery(Uuid::max(), &rule, &ended);
        let message: Message = serde_json::from_str(new.payload.as_str()).unwrap();
        assert_eq!((new.id.0, new.queue.as_str()), (message.message, QUEUE));
        let (body, kept) = (message.body(), r#""output":{"n":1,"large":1e400}"#);
        assert!(
            body.contains(kept),
            "a number that no type of ours holds is told as it is: {body}"
        );
        let body: Value = serde_json::from_str(&body.replace("1e400", "1")).unwrap();
        assert_eq!(body["type"], "job.done");
        assert_eq!(body["data"]["tenant"], "acme");
        assert_eq!(body["data"]["output_left_out"], false);
        assert_eq!(new.tenant, None, "it is of nobody who is told of all");
        let quiet = delivery(Uuid::max(), &Webhook { output: false, ..rule.clone() }, &ended);
        assert!(!quiet.payload.as_str().contains(r#""n":1"#));
        // One that was given to a tenant since.
        let of = |tenant: &str| Webhook { tenant: Some(tenant.into()), ..rule.clone() };
        let may = [rule.clone(), of("acme"), of("other")].map(|hook| hook.may_hear(&message));
        assert_eq!(may, [true, true, false]);
        assert_eq!(delivery(Uuid::max(), &of("acme"), &ended).tenant, Some("acme".into()));
    }

    #[test]
    fn every_end_has_its_event_and_a_run_that_is_parked_says_why() {
        for event in Event::ALL {
            let is_end = event.state().is_final();
            assert_eq!(Event::end_in(event.state()), is_end.then_some(event));
            assert_eq!(event.word().parse::<Event>().unwrap(), event);
        }
        let (job, parked) = (job("q", None, None), ParkCode::JournalFull.because("too long"));
        let told = Told::parked(&job, 1, &parked, Timestamp::UNIX_EPOCH);
        let new = delivery(Uuid::max(), &Webhook::new("https://example.com"), &told);
        let message: Message = serde_json::from_str(new.payload.as_str()).unwrap();
        assert_eq!(message.event, "job.parked");
        let data: Value = message.data.read().unwrap();
        assert_eq!(data["state"], "blocked");
        assert_eq!(data["code"], "parked_journal_full");
        assert_eq!(data["error"], "too long");
    }
}
