//! The record of who did what: written down, completed, read, forgotten.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Row, params};
use tidemill_core::audit::{is_refusal, refused_max};
use tidemill_core::{AuditId, CredentialId};
use uuid::Uuid;

use crate::audit::{AuditEnd, AuditFilter, AuditView, Audits, NewAudit};
use crate::error::Result;
use crate::sqlite::Sqlite;
use crate::sqlite::rows::{time_at, time_opt};

/// So many are forgotten in one turn.
const FORGET_ROWS: usize = 2000;

#[async_trait]
impl Audits for Sqlite {
    async fn begin_audit(&self, new: NewAudit) -> Result<()> {
        self.write(move |turn| {
            let NewAudit { id, who, credential, act, target_kind, target, detail } = &new;
            let credential = credential.as_ref().map(|id| id.0.as_bytes());
            let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_audit.sql"))?;
            let id = id.0.as_bytes();
            let now = turn.now;
            insert.execute(params![id, now, who, credential, act, target_kind, target, detail])?;
            Ok(())
        })
        .await
    }

    async fn end_audit(&self, id: AuditId, end: AuditEnd) -> Result<()> {
        self.write(move |turn| {
            let AuditEnd { result, target, detail } = &end;
            let (kind, target) = target.as_ref().map(|(kind, target)| (kind, target)).unzip();
            let mut update = turn.conn.prepare_cached(include_str!("sql/end_audit.sql"))?;
            let (id, is_refused) = (id.0.as_bytes(), is_refusal(result));
            update.execute(params![id, turn.now, result, kind, target, detail, is_refused])?;
            Ok(())
        })
        .await
    }

    async fn audit(&self, filter: &AuditFilter) -> Result<Vec<AuditView>> {
        let filter = filter.clone();
        self.read(move |conn| {
            let mut select = conn.prepare_cached(include_str!("sql/select_audit.sql"))?;
            let values = params![
                filter.before.as_ref().map(|id| id.0.as_bytes()),
                filter.who,
                filter.act,
                filter.target,
                filter.since.map(Timestamp::as_microsecond),
                filter.until.map(Timestamp::as_microsecond),
                filter.limit as i64
            ];
            Ok(select.query_map(values, view)?.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn forget_audit(&self, kept: Duration, rows_max: usize) -> Result<bool> {
        let kept_us = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
        self.write(move |turn| {
            let mut delete = turn.conn.prepare_cached(include_str!("sql/delete_audit.sql"))?;
            let oldest = turn.now.saturating_sub(kept_us);
            let (others, refused) = (rows_max as i64, refused_max(rows_max) as i64);
            let gone = delete.execute([oldest, others, refused, FORGET_ROWS as i64])?;
            Ok(gone == FORGET_ROWS)
        })
        .await
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<AuditView> {
    let credential: Option<[u8; 16]> = row.get(3)?;
    Ok(AuditView {
        id: AuditId(Uuid::from_bytes(row.get(0)?)),
        at: time_at(row, 1)?,
        who: row.get(2)?,
        credential: credential.map(|bytes| CredentialId(Uuid::from_bytes(bytes))),
        act: row.get(4)?,
        target_kind: row.get(5)?,
        target: row.get(6)?,
        detail: row.get(7)?,
        ended_at: time_opt(row, 8)?,
        result: row.get(9)?,
    })
}
