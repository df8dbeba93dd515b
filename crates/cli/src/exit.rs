//! How a command ends: an exit code for scripts, a code and a sentence for whoever reads.
//!
//! Exit codes never change their meaning; `docs/cli.md` has the table. It refuses to guess: an
//! error of the library keeps its own stable code, and only its exit code is chosen here.

use std::borrow::Cow;
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
    /// A server does not know who asks, or they may not.
    Refused = 4,
    /// It is not in the state for that, or it is a duplicate.
    Conflict = 5,
    /// The store or the server cannot be used now, or a queue is full: later it may.
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
    code: Cow<'static, str>,
    message: String,
    hint: Option<String>,
}

/// What a command comes to.
pub type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    /// A failure with its exit code, its stable code and its sentence.
    pub fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self { exit, code: code.into(), message: message.into(), hint: None }
    }

    /// An error that has a code already, which decides the rest.
    fn of(code: String, message: String) -> Self {
        let (exit, hint) = known(&code);
        Self { exit, code: code.into(), message, hint: hint.map(str::to_owned) }
    }

    /// A command that was not understood.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// Its stable code.
    pub fn code(&self) -> &str {
        &self.code
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
        eprintln!("{red}[{}]: {}", self.code, crate::output::harmless(&self.message));
        if let Some(hint) = &self.hint {
            eprintln!("{}: {hint}", crate::output::Paint::stderr().cyan("hint"));
        }
        self.exit
    }
}

/// The exit code of an error, by its own stable code; and what to do next.
fn known(code: &str) -> (Exit, Option<&'static str>) {
    match code {
        "job_unknown" => {
            (Exit::NotFound, Some("`tidemill jobs list` shows the jobs that are kept"))
        }
        "run_unknown" => {
            (Exit::NotFound, Some("`tidemill workflows list` shows the runs that are kept"))
        }
        "flow_unknown" => {
            (Exit::NotFound, Some("`tidemill flows list` shows the flows that are kept"))
        }
        "plan_unknown" => (Exit::NotFound, Some("`tidemill dead plans` shows those that are kept")),
        "step_unknown" => (Exit::NotFound, Some("`tidemill flows show` names its steps")),
        "schedule_unknown" => {
            (Exit::NotFound, Some("`tidemill schedules list` shows those there are"))
        }
        "limit_unknown" => (Exit::NotFound, Some("`tidemill limits` lists them")),
        "credential_unknown" => {
            (Exit::NotFound, Some("`tidemill token list` shows those there are"))
        }
        "webhook_unknown" | "object_unknown" => (Exit::NotFound, None),
        "flow_not_now"
        | "idempotency_key_reused"
        | "run_finished"
        | "run_not_now"
        | "schedule_overlap"
        | "update_refused"
        | "job_not_now"
        | "plan_expired"
        | "plan_not_now"
        | "job_changed"
        | "schedule_changed"
        | "credential_taken"
        | "credentials_too_many" => (Exit::Conflict, None),
        "schedule_owned" => (Exit::Conflict, Some("--owner names the owner to act as")),
        "flow_wait_timeout" => {
            (Exit::Timeout, Some("`tidemill flows show` shows what it waits for"))
        }
        "wait_timeout" => {
            (Exit::Timeout, Some("`tidemill queues` shows whether a worker knows its kind"))
        }
        "mailbox_full" => (
            Exit::Unavailable,
            Some("`tidemill workflows show` shows what the run waits for instead"),
        ),
        "job_not_done" | "output_unreadable" => (Exit::Failed, None),
        "schema_older" => (Exit::Unavailable, Some("run `tidemill migrate` with the same --store")),
        "store_unavailable" => {
            (Exit::Unavailable, Some("check --store or TIDEMILL_STORE, and that the database runs"))
        }
        "encryption_key_missing" => (
            Exit::Unavailable,
            Some("TIDEMILL_KEYS_FILE names a file with keys; `tidemill keys list` names them"),
        ),
        "encryption_off" => (
            Exit::Usage,
            Some("TIDEMILL_KEYS_FILE names a file with keys; `tidemill keys --help` says more"),
        ),
        "server_unreachable" | "answer_unreadable" => {
            (Exit::Unavailable, Some("check --server or TIDEMILL_SERVER, and that it runs"))
        }
        "random_unavailable" | "schema_newer" | "sqlite_too_old" | "rules_outdated"
        | "store_refused" | "store_busy" | "store_disk_full" | "store_disk_failed"
        | "store_read_only" | "store_tls_refused" | "ciphertext_invalid" | "streams_too_many"
        | "not_ready" | "internal" => (Exit::Unavailable, None),
        "credential_missing" | "credential_refused" => {
            (Exit::Refused, Some("TIDEMILL_TOKEN or --token-file has the secret of a credential"))
        }
        "role_refused" | "queue_refused" | "tenant_refused" => (Exit::Refused, None),
        _ => (Exit::Usage, None),
    }
}

/// A queue that is full has room later, or never for so much.
fn full(message: String, has_room_later: bool) -> Failure {
    if !has_room_later {
        return Failure::new(Exit::Usage, "queue_full", message);
    }
    Failure::new(Exit::Unavailable, "queue_full", message)
        .hint("`tidemill queues why` says what holds the queue; --depth-max raises its bound")
}

impl From<tidemill::Error> for Failure {
    fn from(error: tidemill::Error) -> Self {
        match error {
            tidemill::Error::Store(error) => error.into(),
            error => Self::of(error.code().to_owned(), error.to_string()),
        }
    }
}

impl From<tidemill_client::Error> for Failure {
    fn from(error: tidemill_client::Error) -> Self {
        let (code, message) = (error.code().to_owned(), error.to_string());
        match error {
            tidemill_client::Error::Engine(error) => error.into(),
            tidemill_client::Error::Refused { retry_after, .. } if code == "queue_full" => {
                full(message, retry_after.is_some())
            }
            _ => Self::of(code, message),
        }
    }
}

impl From<tidemill_core::Error> for Failure {
    fn from(error: tidemill_core::Error) -> Self {
        Self::of(error.code().to_owned(), error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::QueueFull(queue) => full(error.to_string(), queue.fits_ever()),
            _ => Self::of(error.code().to_owned(), error.to_string()),
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
