//! Why a server did not do what it was asked.

use std::time::Duration;

use thiserror::Error;
use tidemill_core::problem::Problem;

/// How a sentence begins that is about the first job of a batch.
const FIRST: &str = "job 0: ";

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// It was refused before it was sent, or what came back says so in the engine's own words.
    #[error(transparent)]
    Engine(#[from] tidemill::Error),
    /// The server refused it, or failed; it says why.
    #[error("{}", problem.detail)]
    Refused {
        /// What the server said.
        problem: Box<Problem>,
        /// When to try again, if it said so.
        retry_after: Option<Duration>,
    },
    /// It cannot be said in HTTP, so nothing was sent.
    #[error("the request cannot be sent: {reason}; ask for less at once")]
    Unsendable {
        /// What is wrong with it.
        reason: String,
    },
    /// The server was not reached, or did not answer. It may have done what it was asked.
    #[error("the server {url} does not answer: {reason}; check that it runs, and the URL")]
    Unreachable {
        /// Where.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// What was answered is not what a Tidemill server answers.
    #[error(
        "the answer of {url} cannot be read: {reason}; is it a Tidemill server of this version?"
    )]
    Unreadable {
        /// Who.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The client cannot be made so.
    #[error("there can be no client for {url:?}: {reason}")]
    ClientInvalid {
        /// The server's URL.
        url: String,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    /// The stable code: the engine's own, where the server refused.
    pub fn code(&self) -> &str {
        match self {
            Self::Engine(error) => error.code(),
            Self::Refused { problem, .. } => &problem.code,
            Self::Unsendable { .. } => "request_unsendable",
            Self::Unreachable { .. } => "server_unreachable",
            Self::Unreadable { .. } => "answer_unreadable",
            Self::ClientInvalid { .. } => "client_invalid",
        }
    }

    /// Of a batch of one, the answer does not say which.
    pub(crate) fn of_one(mut self) -> Self {
        if let Self::Refused { problem, .. } = &mut self
            && problem.detail.starts_with(FIRST)
        {
            problem.detail.drain(..FIRST.len());
        }
        self
    }

    /// The status of the answer, if there was one that says why.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { problem, .. } => Some(problem.status),
            _ => None,
        }
    }

    /// Whether it may have been done all the same.
    pub fn is_unknown(&self) -> bool {
        match self {
            Self::Engine(tidemill::Error::Store(error)) => error.is_unknown(),
            Self::Refused { problem, .. } => problem.unknown,
            // Something was done, or somebody on the way has only said that it was not.
            Self::Unreachable { .. } | Self::Unreadable { .. } => true,
            Self::Engine(_) | Self::Unsendable { .. } | Self::ClientInvalid { .. } => false,
        }
    }

    /// Whether the same call may go well in a moment, with nobody doing anything about it.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Refused { problem, .. } => matches!(problem.status, 429 | 500..),
            Self::Unreachable { .. } => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_been_done_is_told_apart() {
        let refused = |rest: &str| {
            let text =
                format!(r#"{{"type":"t","title":"t","status":503,"detail":"d","code":"c"{rest}}}"#);
            let problem = serde_json::from_str(&text).map(Box::new).unwrap();
            Error::Refused { problem, retry_after: None }
        };
        let (url, reason) = (String::new(), String::new());
        assert!(refused(r#","unknown":true"#).is_unknown() && !refused("").is_unknown());
        assert!(Error::Unreadable { url: url.clone(), reason: reason.clone() }.is_unknown());
        assert!(Error::Unreachable { url, reason }.is_unknown());
        assert!(!Error::from(tidemill::Error::ReplayedOnly).is_unknown());
    }
}
