//! What the driver says, sorted by what is to be done about it.
//!
//! Some faults say that nothing happened and that trying again will help (a deadlock, a lost race);
//! some leave open whether the statement took effect (a connection that broke). Only a caller that
//! may safely be run again is run again; the others are told that the result is unknown.

use std::error::Error as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool_postgres::PoolError;
use rustls::CertificateError;
use tokio_postgres::error::SqlState;

use crate::error::{Error, ID_TAKEN, Result};
use crate::postgres::tls;

/// Our own code for a queue that is full; the detail says which, as JSON.
const FULL: &str = "TM001";

/// Why a try failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Nothing of it happened; the same again may work at once.
    Again(String),
    /// A job of one of these ids exists. Nothing of it happened.
    Duplicate(String),
    /// The connection broke; nobody knows whether it happened.
    Lost(String),
    /// No connection could be had: nothing was sent.
    Away(String),
    /// The server answered that it cannot do this now, for want of something. Nothing of it happened.
    Lacking(String),
    /// The answer is no.
    Refused(Error),
}

impl Fault {
    /// The same, saying where the database is that was not there, or would not be connected to.
    pub fn at(self, place: &str) -> Self {
        let said = |reason: String| format!("{place}: {reason}");
        match self {
            Self::Lost(reason) => Self::Lost(said(reason)),
            Self::Away(reason) => Self::Away(said(reason)),
            Self::Lacking(reason) => Self::Lacking(said(reason)),
            other => other,
        }
    }
}

impl From<tokio_postgres::Error> for Fault {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(answer) = error.as_db_error() else {
            let reason = chain(&error);
            return if let Some(reason) = unsafe_because(&error) {
                Self::Refused(tls::refused(reason))
            } else if is_local(&error) {
                Self::Refused(Error::Database { reason })
            } else {
                Self::Lost(reason)
            };
        };
        let reason = match answer.detail() {
            Some(detail) => format!("{} ({detail})", answer.message()),
            None => answer.message().to_owned(),
        };
        let code = answer.code();
        if code.code() == FULL
            && let Some(full) = answer.detail().and_then(|detail| serde_json::from_str(detail).ok())
        {
            return Self::Refused(Error::QueueFull(full));
        }
        Self::of_code(code.code(), reason)
    }
}

impl Fault {
    /// What a code of the server's means. A statement that was answered with one was not executed.
    fn of_code(code: &str, reason: String) -> Self {
        match code {
            "40001" | "40P01" | "26000" | "42P05" | "0A000" | "25P03" => Self::Again(reason),
            "23505" => Self::Duplicate(reason),
            "25006" => Self::Refused(Error::ReadOnly { reason }),
            "53100" => Self::Refused(Error::DiskFull { reason }),
            "55P03" | "57014" => Self::Refused(Error::Busy { reason }),
            "58030" => Self::Refused(Error::DiskFailed { reason, unknown: false }),
            // Too many, starting or stopping, and a database that takes no connections.
            "53300" | "57P03" | "55000" => Self::Away(reason),
            _ if code.starts_with("57P") || code.starts_with("08") => Self::Lost(reason),
            // It lacks memory or something else for now, an operator stands in the way, or what it stands on fails.
            _ if ["53", "57", "58"].iter().any(|class| code.starts_with(class)) => {
                Self::Lacking(format!("{reason} [{code}]"))
            }
            _ if reason.starts_with(ID_TAKEN) => Self::Refused(Error::IdTaken),
            _ => Self::Refused(Error::Database { reason: format!("{reason} [{code}]") }),
        }
    }
}

impl From<PoolError> for Fault {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into_away(),
            other => Self::Away(other.to_string()),
        }
    }
}

/// A fault while connecting: nothing was sent, whatever it was.
pub(crate) trait IntoAway {
    fn into_away(self) -> Fault;
}

impl IntoAway for tokio_postgres::Error {
    fn into_away(self) -> Fault {
        match Fault::from(self) {
            Fault::Lost(reason) | Fault::Again(reason) | Fault::Lacking(reason) => {
                Fault::Away(reason)
            }
            other => other,
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Again(reason) => Self::Busy { reason },
            Fault::Duplicate(reason) => Self::Database { reason },
            Fault::Lost(reason) => Self::Unavailable { reason, unknown: true },
            Fault::Away(reason) | Fault::Lacking(reason) => {
                Self::Unavailable { reason, unknown: false }
            }
            Fault::Refused(error) => error,
        }
    }
}

/// Whether a prepared statement was not where it was left: connections are shared behind our back.
pub(crate) fn is_shared_connection(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::INVALID_SQL_STATEMENT_NAME || *code == SqlState::DUPLICATE_PSTATEMENT
    })
}

/// Whether the driver failed before sending or after receiving: a value did not fit its type.
fn is_local(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("error serializing") || text.starts_with("error deserializing")
}

/// Why the server cannot be trusted, or does not speak TLS, if that is what ended it.
fn unsafe_because(error: &tokio_postgres::Error) -> Option<String> {
    let mut cause: Option<&dyn std::error::Error> = error.source();
    let found = std::iter::from_fn(|| {
        let this = cause?;
        cause = this.source();
        Some(this)
    });
    for cause in found {
        // The driver wraps what rustls says in an I/O error, which does not name it as its source.
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(rustls::Error::InvalidCertificate(why)) =
            inner.and_then(|inner| inner.downcast_ref())
        {
            return Some(certificate(why));
        }
        if cause.to_string() == "server does not support TLS" {
            return Some("the server does not speak TLS, which sslmode asks for".to_owned());
        }
    }
    None
}

fn certificate(why: &CertificateError) -> String {
    match why {
        // Another root may have the same name: then the signature is what does not fit.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is not signed by a trusted root; \
             name the file of the one that signed it: sslrootcert=FILE"
                .to_owned()
        }
        other => format!("the server's certificate is not accepted: {other}"),
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

/// Whether it is time to say that the database is away. All calls under way find that out, and one line is enough.
fn is_to_be_said() -> bool {
    static SAID: Mutex<Option<Instant>> = Mutex::new(None);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = said.is_none_or(|said| said.elapsed() >= SAY_EVERY);
    if is_due {
        *said = Some(Instant::now());
    }
    is_due
}

const SAY_EVERY: Duration = Duration::from_secs(5);
const CONFLICTS_MAX: u32 = 12;
/// A server that lacks something may lack it for this call alone: whoever sent it hears so before long, and may send
/// less.
const LACKING_MAX: Duration = Duration::from_millis(500);

/// Decides whether a call is tried again, and waits before it is.
#[derive(Debug)]
pub(crate) struct Tries {
    patience: Duration,
    conflicts: u32,
    pauses: u32,
    is_doubtful: bool,
    since: Option<Instant>,
}

impl Tries {
    /// For calls that may be sent again: what they wrote before, they recognise.
    pub fn resend() -> Self {
        Self::lasting(Duration::from_secs(10))
    }

    /// For what the clockwork does again in a second anyway: others wait for their turns behind it.
    pub fn brief() -> Self {
        Self::lasting(Duration::from_secs(1))
    }

    /// For reads.
    pub fn read() -> Self {
        Self::lasting(Duration::from_secs(2))
    }

    /// For calls that must not be sent again when nobody knows whether they took effect.
    pub fn once() -> Self {
        Self::lasting(Duration::ZERO)
    }

    fn lasting(patience: Duration) -> Self {
        Self { patience, conflicts: 0, pauses: 0, is_doubtful: false, since: None }
    }

    /// Whether a try before this one may have taken effect.
    pub fn was_lost(&self) -> bool {
        self.is_doubtful
    }

    /// Returns when it is time to try again, or fails for good.
    pub async fn again(&mut self, fault: Fault) -> Result<()> {
        let pause = match &fault {
            Fault::Again(_) | Fault::Duplicate(_) if self.conflicts < CONFLICTS_MAX => {
                self.conflicts += 1;
                Duration::from_micros(500) * 2_u32.pow(self.conflicts.min(8))
            }
            Fault::Lost(reason) | Fault::Away(reason) | Fault::Lacking(reason)
                if self.has_patience(&fault) =>
            {
                if self.pauses == 0 && is_to_be_said() {
                    let patience = self.patience_for(&fault);
                    tracing::warn!(reason, ?patience, "the database is away; trying again");
                }
                self.is_doubtful |= matches!(fault, Fault::Lost(_));
                self.pauses += 1;
                Duration::from_millis(5) * 2_u32.pow(self.pauses.min(7))
            }
            _ => return Err(self.last(fault)),
        };
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        Ok(())
    }

    fn patience_for(&self, fault: &Fault) -> Duration {
        match fault {
            Fault::Lacking(_) => self.patience.min(LACKING_MAX),
            _ => self.patience,
        }
    }

    fn has_patience(&mut self, fault: &Fault) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        let patience = self.patience_for(fault);
        patience > Duration::ZERO && since.elapsed() < patience
    }

    fn last(&self, fault: Fault) -> Error {
        match Error::from(fault) {
            Error::Unavailable { reason, unknown } => {
                Error::Unavailable { reason, unknown: unknown || self.was_lost() }
            }
            error => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_codes_become_ours() {
        for (code, expected, is_temporary, is_unknown) in [
            ("40P01", "store_busy", true, false),
            ("57014", "store_busy", true, false),
            ("25006", "store_read_only", false, false),
            ("53100", "store_disk_full", true, false),
            ("58030", "store_disk_failed", true, false),
            ("53000", "store_unavailable", true, false),
            ("53200", "store_unavailable", true, false),
            ("53300", "store_unavailable", true, false),
            ("53400", "store_unavailable", true, false),
            ("57000", "store_unavailable", true, false),
            ("57P01", "store_unavailable", true, true),
            ("57P03", "store_unavailable", true, false),
            ("57P04", "store_unavailable", true, true),
            ("58000", "store_unavailable", true, false),
            ("58P01", "store_unavailable", true, false),
            ("08006", "store_unavailable", true, true),
            ("42501", "store_refused", false, false),
            ("54000", "store_refused", false, false),
            ("XX000", "store_refused", false, false),
        ] {
            let error = Error::from(Fault::of_code(code, "no".to_owned()));
            assert_eq!(error.code(), expected, "{code}");
            assert_eq!(error.is_temporary(), is_temporary, "{code}");
            assert_eq!(error.is_unknown(), is_unknown, "{code}");
        }
    }
}
