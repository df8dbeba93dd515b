//! The trait that gives a payload type its kind, and a job on its way in.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::job::too_late;
use tidemill_core::schedule::spread;
use tidemill_core::webhook::Tell;
use tidemill_core::{
    Due, JobId, Limits, NewJob, OnDead, Options, OwnRetry, Payload, Priority, Retry, Unique, Wish,
    name,
};

use crate::error::Result;

/// A payload type with a kind: what is enqueued, and what a handler gets.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tidemill::{Job, Retry, Settings};
///
/// #[derive(Serialize, Deserialize)]
/// struct SendWelcome {
///     user: u64,
/// }
///
/// impl Job for SendWelcome {
///     const KIND: &'static str = "send_welcome";
///     type Output = ();
///     fn settings() -> Settings {
///         Settings { queue: "mail".into(), retry: Retry::attempts(5), ..Settings::default() }
///     }
/// }
/// ```
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the kind. It is kept in the store: do not change it while jobs wait.
    const KIND: &'static str;

    /// What the handler returns.
    type Output: Serialize + DeserializeOwned + Send + 'static;

    /// How jobs of this kind are treated, where a job does not say otherwise.
    fn settings() -> Settings {
        Settings::default()
    }
}

/// How jobs of a kind are treated, where a job does not say otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where they wait. Defaults to `default`.
    pub queue: String,
    /// In which band. Defaults to `Normal`.
    pub priority: Priority,
    /// How they are retried. Defaults to 20 attempts with full jitter up to an hour.
    pub retry: Retry,
    /// How long one attempt may run. Defaults to the worker's.
    pub run_timeout: Option<Duration>,
    /// What makes two of them the same. Defaults to nothing.
    pub unique: Option<Unique>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue: tidemill_core::job::DEFAULT_QUEUE.to_owned(),
            priority: Priority::default(),
            retry: Retry::default(),
            run_timeout: None,
            unique: None,
        }
    }
}

/// A job on its way in, with its wishes.
///
/// ```
/// use std::time::Duration;
/// use tidemill::{Enqueue, Priority};
/// let job = Enqueue::raw("send_welcome", r#"{"user":42}"#)
///     .queue("mail")
///     .priority(Priority::High)
///     .delay(Duration::from_secs(60))
///     .tenant("acme")
///     .tag("onboarding");
/// ```
#[derive(Debug, Clone)]
pub struct Enqueue {
    id: JobId,
    is_chosen: bool,
    kind: String,
    payload: Body,
    queue: String,
    priority: Priority,
    due: Due,
    tenant: Option<String>,
    key: Option<String>,
    unique: Option<Unique>,
    options: Options,
    spread: Option<Duration>,
}

/// A payload that is checked when its limits are known.
#[derive(Debug, Clone)]
enum Body {
    Text(String),
    Written(std::result::Result<String, String>),
}

impl<J: Job> From<J> for Enqueue {
    fn from(job: J) -> Self {
        Self::new(&job)
    }
}

impl TryFrom<Wish> for Enqueue {
    type Error = crate::Error;

    /// The job that was asked for in JSON.
    fn try_from(wish: Wish) -> Result<Self> {
        wish.check()?;
        let (unique, retry) = (wish.unique()?, wish.retry());
        let payload = wish.payload.map_or_else(|| "null".to_owned(), |raw| raw.get().to_owned());
        let mut job = Self::raw(wish.kind, payload);
        macro_rules! wish {
            ($($value:expr => $method:ident),* $(,)?) => {
                $(if let Some(value) = $value { job = job.$method(value); })*
            };
        }
        wish! {
            wish.queue => queue,
            wish.priority => priority,
            wish.delay.map(|span| span.0) => delay,
            wish.run_at => run_at,
            wish.spread.map(|span| span.0) => spread,
            wish.tenant => tenant,
            wish.key => key,
            wish.ordered => ordered,
            unique => unique,
            retry => retry,
            wish.run_timeout.map(|span| span.0) => run_timeout,
            wish.start_within.map(|span| span.0) => start_within,
            wish.finish_within.map(|span| span.0) => finish_within,
            wish.trace => trace,
            wish.webhook => webhook,
            wish.retain.map(|span| span.0) => retain,
            wish.id => id,
        }
        Ok(wish.tags.into_iter().fold(job, Self::tag))
    }
}

impl Enqueue {
    /// A job of a typed kind, treated as its settings say.
    pub fn new<J: Job>(job: &J) -> Self {
        let settings = J::settings();
        let written = serde_json::to_string(job).map_err(|e| e.to_string());
        Self {
            queue: settings.queue,
            priority: settings.priority,
            unique: settings.unique,
            ..Self::with(J::KIND.to_owned(), Body::Written(written))
        }
    }

    /// A job of any kind, with its payload as JSON text.
    pub fn raw(kind: impl Into<String>, payload: impl Into<String>) -> Self {
        Self::with(kind.into(), Body::Text(payload.into()))
    }

    fn with(kind: String, payload: Body) -> Self {
        Self {
            id: JobId::new(),
            is_chosen: false,
            kind,
            payload,
            queue: tidemill_core::job::DEFAULT_QUEUE.to_owned(),
            priority: Priority::default(),
            due: Due::Now,
            tenant: None,
            key: None,
            unique: None,
            options: Options::default(),
            spread: None,
        }
    }

    /// The id it will have. Enqueueing the same id twice enqueues it once.
    #[must_use]
    pub fn id(self, id: JobId) -> Self {
        Self { id, is_chosen: true, ..self }
    }

    /// Its id, if that is not one that was made for it.
    pub(crate) fn chosen_id(&self) -> Option<JobId> {
        self.is_chosen.then_some(self.id)
    }

    /// The id it will have.
    pub fn job_id(&self) -> JobId {
        self.id
    }

    /// Where it waits.
    #[must_use]
    pub fn queue(self, queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), ..self }
    }

    /// The queue it will wait in.
    pub fn queue_name(&self) -> &str {
        &self.queue
    }

    /// Whose job it will be.
    pub fn tenant_name(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The trace context it will carry, if one was given to it.
    pub fn trace_context(&self) -> Option<&str> {
        self.options.trace.as_deref()
    }

    /// In which band.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// It may start this long from now.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { due: Due::In(delay), ..self }
    }

    /// It may start at this moment; one that has passed means now.
    #[must_use]
    pub fn run_at(self, at: Timestamp) -> Self {
        Self { due: Due::At(at), ..self }
    }

    /// It is due within this window after its time, at a place that its key, else its tenant, else its
    /// payload decides: always the same. So a crowd that is enqueued at once is not due at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// use std::time::Duration;
    /// use tidemill::Enqueue;
    /// let hour = Duration::from_secs(3600);
    /// let nightly = |tenant: u64| {
    ///     Enqueue::raw("digest", "{}").tenant(format!("tenant:{tenant}")).spread(hour)
    /// };
    /// mill.enqueue_many((0..1000).map(nightly)).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn spread(self, window: Duration) -> Self {
        Self { spread: Some(window), ..self }
    }

    /// Whose job it is.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// What per-key limits and ordering count by.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Jobs of its queue, tenant and key that ask for order run one at a time, in the order of their enqueue.
    /// Needs a [`key`](Self::key). The policy says what happens to those behind it when it is dead.
    ///
    /// ```
    /// use tidemill::{Enqueue, OnDead};
    /// let job = Enqueue::raw("ship", "{}").key("order:42").ordered(OnDead::Block);
    /// ```
    #[must_use]
    pub fn ordered(mut self, on_dead: OnDead) -> Self {
        self.options.ordered = Some(on_dead);
        self
    }

    /// To the object of this name and key: into the queue of that name, where jobs of one key run one at a time, in the
    /// order in which they came, and keep what they want to know of each other. One that is dead is passed over. See
    /// [`Context::object`](crate::Context::object).
    #[must_use]
    pub fn object(self, name: impl Into<String>, key: impl Into<String>) -> Self {
        self.queue(name).key(key).ordered(OnDead::Skip)
    }

    /// What makes it the same as another, and what then happens.
    #[must_use]
    pub fn unique(self, unique: Unique) -> Self {
        Self { unique: Some(unique), ..self }
    }

    /// Only jobs of these queues may hold its unique key, if it has one: see [`Unique::within`].
    #[must_use]
    pub fn within<S: Into<String>>(self, queues: impl IntoIterator<Item = S>) -> Self {
        Self { unique: self.unique.map(|unique| unique.within(queues)), ..self }
    }

    /// Its wish to be unique, if it has one.
    pub fn uniqueness(&self) -> Option<&Unique> {
        self.unique.as_ref()
    }

    /// How it is retried, before its kind's policy: a whole [`Retry`], or the part of it that it names.
    ///
    /// ```
    /// use tidemill::{Enqueue, OwnRetry, Retry};
    /// let pays_once = Enqueue::raw("charge", "{}").retry(Retry::never());
    /// // Waits between attempts as its kind does, else its queue.
    /// let gives_up_soon = Enqueue::raw("charge", "{}").retry(OwnRetry::attempts(3));
    /// ```
    #[must_use]
    pub fn retry(mut self, retry: impl Into<OwnRetry>) -> Self {
        self.options.retry = Some(retry.into());
        self
    }

    /// How long one attempt may run.
    #[must_use]
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.options.run_timeout_ms = Some(millis(timeout));
        self
    }

    /// It is dead if no attempt has started this long after it was enqueued and due.
    #[must_use]
    pub fn start_within(mut self, deadline: Duration) -> Self {
        self.options.start_within_ms = Some(millis(deadline));
        self
    }

    /// It is dead if it has not finished this long after it was enqueued.
    #[must_use]
    pub fn finish_within(mut self, deadline: Duration) -> Self {
        self.options.finish_within_ms = Some(millis(deadline));
        self
    }

    /// A free word to search by; may be called several times.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.options.tags.push(tag.into());
        self
    }

    /// The webhook that is to hear of its end, by its name.
    #[must_use]
    pub fn webhook(mut self, tell: Tell) -> Self {
        self.options.webhook = Some(Box::new(tell));
        self
    }

    /// W3C trace context (`traceparent`) to carry along.
    #[must_use]
    pub fn trace(mut self, traceparent: impl Into<String>) -> Self {
        self.options.trace = Some(traceparent.into());
        self
    }

    /// Kept this long after it finished, before its queue's rule.
    #[must_use]
    pub fn retain(mut self, retain: Duration) -> Self {
        self.options.retain_ms = Some(millis(retain));
        self
    }

    /// Checks everything and makes the job the store gets. The engine does so itself; this is for those who send
    /// jobs to one.
    pub fn check(self, limits: &Limits, now: Timestamp) -> Result<NewJob> {
        let payload = match self.payload {
            Body::Text(text) => Payload::parse(&text, limits)?,
            Body::Written(Ok(text)) => Payload::written(text, limits)?,
            Body::Written(Err(reason)) => {
                return Err(tidemill_core::Error::PayloadNotJson { reason }.into());
            }
        };
        let tenant = self.tenant.as_deref();
        let unique = self.unique.map(|u| u.resolve(&self.kind, tenant, &payload)).transpose()?;
        if let Some(window) = self.spread {
            spread::check(spread::WINDOW, millis(window))?;
        }
        if let (Some(window), Some(ms)) = (self.spread, self.options.finish_within_ms) {
            let due = self.due.later(window).resolve(now);
            let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
            let within = Duration::from_millis(ms);
            // Whichever place it has: another key would have another.
            if wait > within {
                let what = "it may not be due before";
                return Err(too_late(what, wait, "its deadline to finish", within).into());
            }
        }
        let place = self.spread.map_or(Duration::ZERO, |window| {
            let key = self.key.as_deref().or(self.tenant.as_deref());
            spread::place(key.unwrap_or(payload.as_str()), millis(window))
        });
        let job = NewJob {
            id: self.id,
            kind: self.kind,
            queue: self.queue,
            priority: self.priority,
            due: self.due.later(place),
            tenant: self.tenant,
            key: self.key,
            unique,
            payload,
            options: self.options,
        };
        job.check(limits, now)?;
        name::check_own("kind", &job.kind)?;
        name::check_own("queue", &job.queue)?;
        Ok(job)
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
