//! What has nothing to encrypt, or is asked for as it is kept; and leases, which bring jobs back.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::access::secret::SecretHash;
use tidemill_core::alert::book::Book;
use tidemill_core::{AuditId, CredentialId, JobId, PlanId, Token, WorkerId};

use super::{Encrypted, passed_on};
use crate::audit::{AuditEnd, AuditFilter, AuditView, Audits, NewAudit};
use crate::credential::{Added, CredentialView, Credentials, Found, NewCredential};
use crate::error::Result;
use crate::lease::{LeaseView, Leases};
use crate::measure::{Figure, FlowCount, Measured, Passed, Way};
use crate::nul::{self, Texts as _};
use crate::plan::{NewPlan, PlanStep, PlanView, Planned, Plans};
use crate::request::ClaimedJob;
use crate::value::{Place, RowKey, Texts, ValueRow, Values};
use crate::webhook::{Kept, Webhooks};

passed_on! {
    Leases {
        async fn held(
            &self,
            worker: WorkerId,
            asked: &[(Token, JobId)],
        ) -> Result<Vec<Option<ClaimedJob>>> {
            let mut held = self.inner.held(worker, asked).await?;
            held.iter_mut().flatten().try_for_each(|claimed| self.keys.show_claimed(claimed))?;
            Ok(held)
        }
    }
    async fn leases(&self, worker: WorkerId) -> Result<Vec<LeaseView>>;
}

passed_on! {
    Credentials {}
    async fn add_credential(&self, new: NewCredential) -> Result<Added>;
    async fn find_credentials(&self, hashes: &[SecretHash]) -> Result<Vec<Found>>;
    async fn credentials(&self) -> Result<Vec<CredentialView>>;
    async fn revoke_credential(&self, id: CredentialId) -> Result<bool>;
    async fn touch_credentials(&self, used: &[(CredentialId, Timestamp)]) -> Result<()>;
}

passed_on! {
    Measured {
        fn way(&self) -> Way {
            self.inner.way()
        }
    }
    async fn figures(&self) -> Result<Vec<Figure>>;
    async fn passed(&self) -> Result<Vec<Passed>>;
    async fn count_flows(&self) -> Result<Vec<FlowCount>>;
}

passed_on! {
    Audits {
        async fn begin_audit(&self, new: NewAudit) -> Result<()> {
            new.check_nul()?;
            self.inner.begin_audit(new).await
        }

        async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
            filter.check_nul()?;
            self.inner.audit(filter).await
        }
    }
    async fn end_audit(&self, id: AuditId, end: AuditEnd) -> Result<()>;
    async fn forget_audit(&self, kept: Duration, rows_max: usize) -> Result<bool>;
}

passed_on! {
    Plans {
        async fn add_plan(&self, new: NewPlan) -> Result<Planned> {
            new.check_nul()?;
            self.check_search(&new.filter)?;
            self.inner.add_plan(new).await
        }

        async fn apply_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
            nul::check("name", [by])?;
            self.inner.apply_plan(id, by, batch).await
        }

        async fn undo_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
            nul::check("name", [by])?;
            self.inner.undo_plan(id, by, batch).await
        }
    }
    async fn plan(&self, id: PlanId) -> Result<Option<PlanView>>;
    async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>>;
    async fn forget_plans(&self, plans_max: usize) -> Result<bool>;
}

passed_on! {
    Values {}
    async fn values(&self, place: Place, after: Option<&RowKey>, limit: usize) -> Result<Vec<ValueRow>>;
    async fn replace_values(&self, place: Place, rows: Vec<(ValueRow, Texts)>) -> Result<u64>;
}

passed_on! {
    Webhooks {}
    async fn webhooks(&self) -> Result<Vec<Kept>>;
    async fn set_webhook(&self, kept: &Kept) -> Result<bool>;
    async fn delete_webhook(&self, id: uuid::Uuid, version: u64) -> Result<bool>;
    async fn alert_book(&self) -> Result<(u64, Book)>;
    async fn set_alert_book(&self, version: u64, book: &Book) -> Result<bool>;
}
