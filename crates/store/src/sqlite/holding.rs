//! Leases as those see them who did not make them.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};
use tidemill_core::{JobId, Token, WorkerId};

use crate::error::{Error, Result};
use crate::lease::{LeaseView, Leases};
use crate::request::ClaimedJob;
use crate::sqlite::Sqlite;
use crate::sqlite::lease::Lease;
use crate::sqlite::ready;
use crate::sqlite::rows::time_at;

#[async_trait]
impl Leases for Sqlite {
    async fn held(
        &self,
        worker: WorkerId,
        asked: &[(Token, JobId)],
    ) -> Result<Vec<Option<ClaimedJob>>> {
        let asked = asked.to_vec();
        self.read(move |conn| {
            asked.into_iter().map(|(token, id)| held(conn, worker, token, id)).collect()
        })
        .await
    }

    async fn leases(&self, worker: WorkerId) -> Result<Vec<LeaseView>> {
        self.read(move |conn| {
            let mut select =
                conn.prepare_cached(include_str!("sql/select_leases_of_worker.sql"))?;
            let leases = select.query_map([worker.0.as_bytes()], |row| {
                let Lease { token, jobs, .. } = Lease::of_row(row)?;
                let jobs = jobs.iter().map(|held| held.id).collect();
                Ok(LeaseView { token, claimed_at: time_at(row, 4)?, jobs })
            })?;
            Ok(leases.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }
}

fn held(
    conn: &Connection,
    worker: WorkerId,
    token: Token,
    id: JobId,
) -> Result<Option<ClaimedJob>> {
    let Some(body) = ready::body(conn, id)? else { return Ok(None) };
    let lease = Lease::find(conn, token)?;
    if lease.as_ref().is_some_and(|lease| lease.worker != worker) {
        return Ok(None);
    }
    let held = lease.and_then(|mut lease| lease.take(id));
    let gates = if held.is_some() { gates(conn, token)? } else { Vec::new() };
    Ok(Some(ClaimedJob {
        attempt: held.map_or(0, |held| held.spent.saturating_add(1)),
        lost: held.map_or(0, |held| held.lost),
        due_at: body.job.created_at,
        job: Arc::new(body.job),
        gates,
        has_run: false,
    }))
}

/// The gates that jobs of a claim are inside of.
fn gates(conn: &Connection, token: Token) -> Result<Vec<Arc<str>>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_lease_gates.sql"))?;
    let names = select.query_one([token.0], |row| row.get::<_, Option<String>>(0)).optional()?;
    let Some(names) = names.flatten() else { return Ok(Vec::new()) };
    let names: Vec<String> =
        serde_json::from_str(&names).map_err(|e| Error::Database { reason: e.to_string() })?;
    Ok(names.into_iter().map(Into::into).collect())
}
