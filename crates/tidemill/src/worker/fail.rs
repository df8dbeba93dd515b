//! What a handler says when it does not return a value.

use std::fmt;
use std::time::Duration;

use tidemill_core::ErrorClass;
use tidemill_core::clock::delay_us;
use tidemill_core::job::settle::Ended;

/// Why an attempt did not finish its job. Any error becomes one with `?`, as transient.
///
/// ```
/// use std::time::Duration;
/// use tidemill::Fail;
/// fn charge(card: &str) -> Result<(), Fail> {
///     let amount: u32 = card.parse()?; // transient: retried with backoff
///     match amount {
///         0 => Err(Fail::permanent("nothing to charge")), // dead at once
///         1 => Err(Fail::rate_limited(Duration::from_secs(30))), // later, no attempt spent
///         2 => Err(Fail::ambiguous("the bank did not answer")), // a smaller budget
///         3 => Err(Fail::snooze(Duration::from_secs(60))), // later; nothing failed
///         4 => Err(Fail::cancel("the order is gone")), // called off
///         _ => Ok(()),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fail {
    kind: Kind,
    /// The keys of the steps whose failure it is, if it is one: the first, and those that failed beside it.
    steps: Vec<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Failed { class: ErrorClass, message: String, retry_after: Option<Duration> },
    Snooze(Duration),
    Cancel(String),
}

/// What a step makes of it.
pub(crate) enum StepFail {
    Error { class: ErrorClass, message: String, retry_after: Option<Duration> },
    Later(Duration),
    Cancel(Fail),
}

impl Fail {
    pub(crate) fn of_step(self) -> StepFail {
        match self.kind {
            Kind::Failed { class, message, retry_after } => {
                let retry_after = retry_after.map(at_most_a_century);
                StepFail::Error { class, message, retry_after }
            }
            Kind::Snooze(delay) => StepFail::Later(at_most_a_century(delay)),
            Kind::Cancel(_) => StepFail::Cancel(self),
        }
    }

    /// The same, as the failure of this step.
    pub(crate) fn of(self, step: &str) -> Self {
        Self { steps: vec![step.into()], ..self }
    }

    /// The first of these failures, as that of the steps of all of them, at most so many.
    pub(crate) fn first<'a>(
        all: impl IntoIterator<Item = Option<&'a Self>>,
        steps_max: usize,
    ) -> Option<Self> {
        let mut all = all.into_iter().flatten();
        let mut first = all.next()?.clone();
        first.steps.extend(all.flat_map(|fail| fail.steps.iter().cloned()));
        first.steps.truncate(steps_max);
        Some(first)
    }

    /// The keys of the steps whose failure it is.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(AsRef::as_ref)
    }

    fn failed(class: ErrorClass, message: impl fmt::Display) -> Self {
        Kind::Failed { class, message: message.to_string(), retry_after: None }.into()
    }

    /// It may work next time: retried with backoff.
    pub fn transient(message: impl fmt::Display) -> Self {
        Self::failed(ErrorClass::Transient, message)
    }

    /// It will never work: dead at once.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self::failed(ErrorClass::Permanent, message)
    }

    /// Nobody knows whether it took effect: retried on a smaller budget.
    pub fn ambiguous(message: impl fmt::Display) -> Self {
        Self::failed(ErrorClass::Ambiguous, message)
    }

    /// It may have taken effect, and another attempt would not help: dead at once, and undone where that can be.
    pub fn in_doubt(message: impl fmt::Display) -> Self {
        Self::failed(ErrorClass::InDoubt, message)
    }

    /// The other side asked to wait: retried after that, no attempt spent.
    pub fn rate_limited(retry_after: Duration) -> Self {
        let message = format!("rate limited for {retry_after:?}");
        Self::failed(ErrorClass::RateLimited, message).retry_after(retry_after)
    }

    /// Call again later; nothing failed and no attempt is spent.
    pub fn snooze(delay: Duration) -> Self {
        Kind::Snooze(delay).into()
    }

    /// Call the job off.
    pub fn cancel(reason: impl fmt::Display) -> Self {
        Kind::Cancel(reason.to_string()).into()
    }

    /// The next attempt starts after this delay, whatever the policy says.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        if let Kind::Failed { retry_after, .. } = &mut self.kind {
            *retry_after = Some(delay);
        }
        self
    }

    /// The same with words before its message. A failure of a step stays that step's: a workflow that dies of it tries
    /// the step again when its dead letter is replayed.
    ///
    /// ```
    /// let fail = tidemill::Fail::permanent("no such card").context("charging");
    /// assert_eq!(fail.to_string(), "permanent: charging: no such card");
    /// ```
    #[must_use]
    pub fn context(mut self, what: impl fmt::Display) -> Self {
        if let Kind::Failed { message, .. } | Kind::Cancel(message) = &mut self.kind {
            *message = format!("{what}: {message}");
        }
        self
    }

    /// The class of the failure; `None` when nothing failed.
    pub fn class(&self) -> Option<ErrorClass> {
        match &self.kind {
            Kind::Failed { class, .. } => Some(*class),
            Kind::Snooze(_) | Kind::Cancel(_) => None,
        }
    }

    /// Whether no other attempt follows, whatever the retry policy says.
    pub(crate) fn is_final(&self) -> bool {
        self.class().is_some_and(ErrorClass::is_final)
    }

    pub(crate) fn ended(self) -> Ended {
        match self.kind {
            Kind::Failed { class, message, retry_after } => {
                Ended::Failed { class, message, retry_after }
            }
            Kind::Snooze(delay) => Ended::Snoozed(delay),
            Kind::Cancel(reason) => Ended::Cancelled(reason),
        }
    }
}

/// The delay of a job is cut so where it is kept. That of a step becomes a moment before, and one beyond the calendar
/// would be none.
fn at_most_a_century(delay: Duration) -> Duration {
    Duration::from_micros(delay_us(delay).unsigned_abs())
}

impl From<Kind> for Fail {
    fn from(kind: Kind) -> Self {
        Self { kind, steps: Vec::new() }
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Failed { class, message, .. } => write!(f, "{}: {message}", class.word()),
            Kind::Snooze(delay) => write!(f, "snoozed for {delay:?}"),
            Kind::Cancel(reason) => write!(f, "cancelled: {reason}"),
        }
    }
}

impl<E: std::error::Error> From<E> for Fail {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::transient(message)
    }
}
