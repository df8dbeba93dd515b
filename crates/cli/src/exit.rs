//! How a command ends: an exit code for scripts, a code and a sentence for whoever reads.
//!
//! Exit codes never change their meaning; `docs/cli.md` has the table. It refuses to guess: an
//! error of the library keeps its own stable code, and only its exit code is chosen here.

use std::process::ExitCode;

use serde::Serialize;
use tidemill_store::Error as StoreError;

/// The exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// The command worked, the work did not: a dead job, a finding, a stopped replay.
    Failed = 1,
    /// The command was not understood, or its input was refused.
    Usage = 2,
    /// There is no such thing.
    NotFound = 3,
    /// It is not in the state for that, or it is a duplicate.
    Conflict = 5,
    /// The store cannot be used now.
    Unavailable = 6,
    /// It did not happen in the time given.
    Timeout = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug, Serialize)]
pub struct Failure {
    #[serde(skip)]
    exit: Exit,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

/// What a command comes to.
pub type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// A failure with its exit code, its stable code and its sentence.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self { exit, code, message: message.into(), hint: None }
    }

    /// A command that was not understood.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// Its stable code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Its sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same, with what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same, saying where.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Says it on stderr, as one JSON document if asked; answers the exit code.
    pub fn report(&self, json: bool) -> Exit {
        if json {
            eprintln!("{}", serde_json::json!({ "error": self }));
            return self.exit;
        }
        let red = crate::output::Paint::stderr().red("error");
        eprintln!("{red}[{}]: {}", self.code, self.message);
        if let Some(hint) = &self.hint {
            eprintln!("{}: {hint}", crate::output::Paint::stderr().cyan("hint"));
        }
        self.exit
    }
}

impl From<tidemill::Error> for Failure {
    fn from(error: tidemill::Error) -> Self {
        use tidemill::Error as E;
        let (code, message) = (error.code(), error.to_string());
        match error {
            E::Store(error) => error.into(),
            E::JobUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill jobs list` shows the jobs that are kept"),
            E::RunUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill workflows list` shows the runs that are kept"),
            E::FlowUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill flows list` shows the flows that are kept"),
            E::PlanUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill dead plans` shows those that are kept"),
            E::StepUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill flows show` names its steps"),
            E::FlowNotNow { .. }
            | E::RunFinished { .. }
            | E::RunNotNow { .. }
            | E::UpdateRefused { .. }
            | E::JobNotNow { .. }
            | E::PlanExpired { .. }
            | E::PlanNotNow { .. }
            | E::JobChanged { .. }
            | E::ScheduleChanged { .. } => Self::new(Exit::Conflict, code, message),
            E::FlowWaitTimeout { .. } => Self::new(Exit::Timeout, code, message)
                .hint("`tidemill flows show` shows what it waits for"),
            E::ScheduleUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill schedules list` shows those there are"),
            E::LimitUnknown { .. } => {
                Self::new(Exit::NotFound, code, message).hint("`tidemill limits` lists them")
            }
            E::ScheduleOwned { .. } => {
                Self::new(Exit::Conflict, code, message).hint("--owner names the owner to act as")
            }
            E::WebhookUnknown { .. } => Self::new(Exit::NotFound, code, message),
            E::CredentialUnknown { .. } => Self::new(Exit::NotFound, code, message)
                .hint("`tidemill token list` shows those there are"),
            E::CredentialTaken { .. } | E::CredentialsTooMany { .. } => {
                Self::new(Exit::Conflict, code, message)
            }
            E::RandomUnavailable { .. } => Self::new(Exit::Unavailable, code, message),
            E::WaitTimeout { .. } => Self::new(Exit::Timeout, code, message)
                .hint("`tidemill queues` shows whether a worker knows its kind"),
            E::NotDone { .. } | E::OutputUnreadable { .. } => {
                Self::new(Exit::Failed, code, message)
            }
            _ => Self::new(Exit::Usage, code, message),
        }
    }
}

impl From<tidemill_core::Error> for Failure {
    fn from(error: tidemill_core::Error) -> Self {
        Self::new(Exit::Usage, error.code(), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = |exit| Self::new(exit, error.code(), error.to_string());
        match &error {
            StoreError::QueueFull(full) if full.fits_ever() => failure(Exit::Unavailable).hint(
                "`tidemill queues why` says what holds the queue; --depth-max raises its bound",
            ),
            StoreError::UrlUnknown { .. }
            | StoreError::QueueFull(_)
            | StoreError::KeysInvalid { .. }
            | StoreError::PayloadReserved
            | StoreError::SearchEncrypted => failure(Exit::Usage),
            StoreError::KeyMissing { .. } => failure(Exit::Unavailable)
                .hint("TIDEMILL_KEYS_FILE names a file with keys; `tidemill keys list` names them"),
            StoreError::SchemaOlder { .. } => {
                failure(Exit::Unavailable).hint("run `tidemill migrate` with the same --store")
            }
            StoreError::Unavailable { .. } => failure(Exit::Unavailable)
                .hint("check --store or TIDEMILL_STORE, and that the database runs"),
            _ => failure(Exit::Unavailable),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, "io", error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_library_get_their_documented_exit_code() {
        let id = tidemill::JobId::new();
        for (error, exit) in [
            (tidemill::Error::JobUnknown { id }, Exit::NotFound),
            (tidemill_core::Error::NameEmpty { what: "kind" }.into(), Exit::Usage),
            (StoreError::UrlUnknown { url: "x".into() }.into(), Exit::Usage),
            (StoreError::Busy { reason: String::new() }.into(), Exit::Unavailable),
        ] {
            assert_eq!(Failure::from(error).exit, exit);
        }
    }
}
