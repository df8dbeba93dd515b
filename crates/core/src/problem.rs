//! A problem document (RFC 9457): how a server says why a request was not done.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::id::JobId;

/// Why a request was not done, as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// Names the problem: `urn:tidemill:` and the code.
    #[serde(rename = "type")]
    pub uri: String,
    /// The status in words.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What happened, with which value, and what to do.
    pub detail: String,
    /// The stable code; `docs/errors` has a page for each.
    pub code: String,
    /// The job it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Which one of a batch, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// Whether it may have been done all the same: an answer of the database was lost, or the server failed on the way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// Under which id the log has more, of an error that is the server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Uuid>,
}
