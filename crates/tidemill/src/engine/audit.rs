//! The record of who did what: the acts of operators and admins, not the flow of jobs.
//!
//! Whoever serves people (a server, the command line) begins an act here before it does it, and ends it with what
//! became of it. The verbs of the library do not write it by themselves: a program that has the store is trusted with
//! everything, and knows by itself who its callers are.

use tidemill_core::AuditId;
use tidemill_core::audit::cut;
use tidemill_store::audit::{AuditEnd, AuditFilter, AuditView, NewAudit};

use crate::engine::Tidemill;
use crate::error::Result;

/// The record of a store; see [`Tidemill::audit`].
#[derive(Debug, Clone)]
pub struct Audit<'a>(&'a Tidemill);

impl Tidemill {
    /// The record of who did what.
    pub fn audit(&self) -> Audit<'_> {
        Audit(self)
    }
}

impl Audit<'_> {
    /// Writes down an act that is about to be done: when this answers, it is durable. Do nothing when it fails.
    pub async fn begin(&self, new: NewAudit) -> Result<()> {
        let NewAudit { id, who, credential, act, target_kind, target, detail } = new;
        let (target, detail) = (cut(&target), cut(&detail));
        let new = NewAudit { id, who, credential, act, target_kind, target, detail };
        Ok(self.0.0.store.begin_audit(new).await?)
    }

    /// Completes it with what became of it.
    pub async fn end(&self, id: AuditId, end: AuditEnd) -> Result<()> {
        let target = end.target.map(|(kind, target)| (kind, cut(&target)));
        let end = AuditEnd { target, detail: cut(&end.detail), ..end };
        Ok(self.0.0.store.end_audit(id, end).await?)
    }

    /// Acts, newest first.
    pub async fn list(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        Ok(self.0.0.store.audit(filter).await?)
    }
}
