//! What a handler says when it does not return a value.

use std::fmt;
use std::time::Duration;

use tidemill_core::ErrorClass;
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
pub struct Fail(Kind);

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
        match self.0 {
            Kind::Failed { class, message, retry_after } => {
                StepFail::Error { class, message, retry_after }
            }
            Kind::Snooze(delay) => StepFail::Later(delay),
            Kind::Cancel(_) => StepFail::Cancel(self),
        }
    }

    /// A transaction says that it recorded what its step came to. If the journal knows nothing of it, it was not
    /// committed.
    pub(crate) fn recorded() -> Self {
        Self::permanent("the transaction that recorded it was not committed")
    }

    fn failed(class: ErrorClass, message: impl fmt::Display) -> Self {
        Self(Kind::Failed { class, message: message.to_string(), retry_after: None })
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

    /// The other side asked to wait: retried after that, no attempt spent.
    pub fn rate_limited(retry_after: Duration) -> Self {
        let message = format!("rate limited for {retry_after:?}");
        Self::failed(ErrorClass::RateLimited, message).retry_after(retry_after)
    }

    /// Call again later; nothing failed and no attempt is spent.
    pub fn snooze(delay: Duration) -> Self {
        Self(Kind::Snooze(delay))
    }

    /// Call the job off.
    pub fn cancel(reason: impl fmt::Display) -> Self {
        Self(Kind::Cancel(reason.to_string()))
    }

    /// The next attempt starts after this delay, whatever the policy says.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        if let Kind::Failed { retry_after, .. } = &mut self.0 {
            *retry_after = Some(delay);
        }
        self
    }

    /// The class of the failure; `None` when nothing failed.
    pub fn class(&self) -> Option<ErrorClass> {
        match &self.0 {
            Kind::Failed { class, .. } => Some(*class),
            Kind::Snooze(_) | Kind::Cancel(_) => None,
        }
    }

    pub(crate) fn ended(self) -> Ended {
        match self.0 {
            Kind::Failed { class, message, retry_after } => {
                Ended::Failed { class, message, retry_after }
            }
            Kind::Snooze(delay) => Ended::Snoozed(delay),
            Kind::Cancel(reason) => Ended::Cancelled(reason),
        }
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
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
