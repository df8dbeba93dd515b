//! The record of who did what: written down, completed, read, forgotten.

use std::time::Duration;

use async_trait::async_trait;
use tidemill_core::audit::{is_refusal, refused_max};
use tidemill_core::{AuditId, CredentialId};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::audit::{AuditEnd, AuditFilter, AuditView, Audits, NewAudit};
use crate::error::Result;
use crate::postgres::Postgres;
use crate::postgres::batch::delay_us;
use crate::postgres::statement::{At, Param, Statement, sql};

const BEGIN: Statement =
    sql!("insert_audit", TIMESTAMPTZ, UUID, TEXT, UUID, TEXT, TEXT, TEXT, TEXT);
const END: Statement = sql!("end_audit", TIMESTAMPTZ, UUID, TEXT, TEXT, TEXT, TEXT, BOOL);
const LIST: Statement =
    sql!("select_audit", UUID, TEXT, TEXT, TEXT, TIMESTAMPTZ, TIMESTAMPTZ, INT8);
const FORGET: Statement = sql!("delete_audit", TIMESTAMPTZ, INT8, INT8, INT8, INT8);

/// So many are forgotten in one turn.
const FORGET_ROWS: i64 = 2000;

// Each of these, sent again, comes to the same, so all may be sent as reads are.
#[async_trait]
impl Audits for Postgres {
    async fn begin_audit(&self, new: NewAudit) -> Result<()> {
        let db = &self.shared.db;
        let NewAudit { id, who, credential, act, target_kind, target, detail } = &new;
        let (now, credential) = (db.manual_now(), credential.map(|id| id.0));
        let params: [Param<'_>; 8] =
            [&now, &id.0, who, &credential, act, target_kind, target, detail];
        db.read(&BEGIN, &params).await?;
        Ok(())
    }

    async fn end_audit(&self, id: AuditId, end: AuditEnd) -> Result<()> {
        let db = &self.shared.db;
        let AuditEnd { result, target, detail } = &end;
        let (kind, target) = target.as_ref().map(|(kind, target)| (kind, target)).unzip();
        let (now, is_refused) = (db.manual_now(), is_refusal(result));
        let params: [Param<'_>; 7] = [&now, &id.0, result, &kind, &target, detail, &is_refused];
        db.read(&END, &params).await?;
        Ok(())
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        let AuditFilter { who, act, target, since, until, before, limit } = filter;
        let (since, until, before) = (since.map(At), until.map(At), before.map(|id| id.0));
        let limit = *limit as i64;
        let params: [Param<'_>; 7] = [&before, who, act, target, &since, &until, &limit];
        Ok(self.shared.db.read(&LIST, &params).await?.iter().map(view).collect())
    }

    async fn forget_audit(&self, kept: Duration, rows_max: usize) -> Result<bool> {
        let db = &self.shared.db;
        let (others, refused) = (rows_max as i64, refused_max(rows_max) as i64);
        let params: [Param<'_>; 5] =
            [&db.manual_now(), &delay_us(kept), &others, &refused, &FORGET_ROWS];
        let rows = db.read(&FORGET, &params).await?;
        Ok(rows.first().is_some_and(|row| row.get::<_, i64>(0) == FORGET_ROWS))
    }
}

fn view(row: &Row) -> AuditView {
    AuditView {
        id: AuditId(row.get(0)),
        at: row.get::<_, At>(1).0,
        who: row.get(2),
        credential: row.get::<_, Option<Uuid>>(3).map(CredentialId),
        act: row.get(4),
        target_kind: row.get(5),
        target: row.get(6),
        detail: row.get(7),
        ended_at: row.get::<_, Option<At>>(8).map(|at| at.0),
        result: row.get(9),
    }
}
