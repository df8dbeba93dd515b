//! What the engine asks of a store about the record of who did what, and what it is answered.
//!
//! An act is written down before it is done and completed afterwards, so that none can be done without a trace; one
//! without a result was under way when its process, or the store, went away.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::{AuditId, CredentialId};

use crate::error::Result;

/// An act that is about to be done. Sent again under the same id, it is the same.
#[derive(Debug, Clone)]
pub struct NewAudit {
    /// Names it for ever.
    pub id: AuditId,
    /// Who does it: the name of a credential, `anonymous`, or `cli:` and a user.
    pub who: String,
    /// The credential that was shown.
    pub credential: Option<CredentialId>,
    /// What is done: the name of an operation, or of a command.
    pub act: String,
    /// What kind of thing it is done to.
    pub target_kind: String,
    /// Which one; empty where there is no one.
    pub target: String,
    /// More, in a few words.
    pub detail: String,
}

/// What became of an act.
#[derive(Debug, Clone, Default)]
pub struct AuditEnd {
    /// `ok`, or the code of the refusal.
    pub result: String,
    /// What it was done to, if that was not known before.
    pub target: Option<(String, String)>,
    /// More, in a few words.
    pub detail: String,
}

/// Which acts are meant. Every condition given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Done by this one.
    pub who: Option<String>,
    /// This act.
    pub act: Option<String>,
    /// Done to this one.
    pub target: Option<String>,
    /// At this moment or later.
    pub since: Option<Timestamp>,
    /// Before this moment.
    pub until: Option<Timestamp>,
    /// Before this one: the last of the page before.
    pub before: Option<AuditId>,
    /// At most so many.
    pub limit: usize,
}

/// An act, as it was written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditView {
    /// Names it.
    pub id: AuditId,
    /// When it was begun.
    pub at: Timestamp,
    /// Who did it: the name of a credential, `anonymous`, or `cli:` and a user.
    pub who: String,
    /// The credential that was shown.
    pub credential: Option<CredentialId>,
    /// What was done: the name of an operation, or of a command.
    pub act: String,
    /// What kind of thing it was done to.
    pub target_kind: String,
    /// Which one; empty where there is no one.
    pub target: String,
    /// More, in a few words; never a payload.
    pub detail: String,
    /// When it had ended.
    pub ended_at: Option<Timestamp>,
    /// `ok`, or the code of the refusal. None: it is under way, or nobody could say what became of it.
    pub result: Option<String>,
}

/// Memory of acts.
#[async_trait]
pub trait Audits {
    /// Writes down an act that is about to be done. It is durable when this answers.
    async fn begin_audit(&self, new: NewAudit) -> Result<()>;

    /// Completes an act; one that has a result keeps it.
    async fn end_audit(&self, id: AuditId, end: AuditEnd) -> Result<()>;

    /// A page of acts, newest first.
    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>>;

    /// Forgets acts older than `kept`, and all but the newest `rows_max`, a piece at a time. `true`: there is more.
    /// Those that were refused are counted by themselves, with a share beside (`core/audit.rs`).
    async fn forget_audit(&self, kept: Duration, rows_max: usize) -> Result<bool>;
}
