//! Credentials: kept, found by their hashes, ended.
//!
//! There is one writer, so a name is looked at and taken in one turn. It refuses to guess at what it cannot
//! read: a row whose role or queues make no sense is an error, never a grant of everything.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tidemill_core::access::ENDED_KEPT_DAYS;
use tidemill_core::access::secret::SecretHash;
use tidemill_core::{CredentialId, Grant};
use uuid::Uuid;

use crate::credential::{
    Added, CredentialView, Credentials, Found, NewCredential, read_role, unreadable,
};
use crate::error::Result;
use crate::sqlite::Sqlite;
use crate::sqlite::rows::{time, time_at, time_opt};
use crate::sqlite::writer::{Durability, Turn};

#[async_trait]
impl Credentials for Sqlite {
    async fn add_credential(&self, new: NewCredential) -> Result<Added> {
        self.write(move |turn| add(turn, &new)).await
    }

    async fn find_credentials(&self, hashes: &[SecretHash]) -> Result<Vec<Found>> {
        let (now, hashes) = (time(self.now_us()), hashes.to_vec());
        self.read(move |conn| find(conn, now, &hashes)).await
    }

    async fn credentials(&self) -> Result<Vec<CredentialView>> {
        self.read(list).await
    }

    async fn revoke_credential(&self, id: CredentialId) -> Result<bool> {
        self.write(move |turn| revoke(turn, id)).await
    }

    async fn touch_credentials(&self, used: &[(CredentialId, Timestamp)]) -> Result<()> {
        let used = used.to_vec();
        self.writer.write(Durability::Lazy, move |turn| touch(turn, &used)).await
    }
}

fn add(turn: &Turn<'_>, new: &NewCredential) -> Result<Added> {
    let NewCredential { id, name, hash, grant, expires_in, live_max } = new;
    let (conn, now, id) = (turn.conn, turn.now, id.0.as_bytes());
    let kept = Duration::from_hours(24 * u64::from(ENDED_KEPT_DAYS));
    conn.prepare_cached(include_str!("sql/delete_ended_credentials.sql"))?.execute([
        now,
        now - micros(kept),
        *live_max as i64,
    ])?;
    let mut insert = conn.prepare_cached(include_str!("sql/insert_credential.sql"))?;
    let is_kept = insert.execute(params![
        now,
        id,
        name,
        hash.as_bytes(),
        grant.role.word(),
        serde_json::json!(grant.queues).to_string(),
        grant.tenant,
        expires_in.map(|span| now.saturating_add(micros(span))),
        *live_max as i64
    ])?;
    if is_kept == 1 {
        return Ok(Added::Kept);
    }
    let mut select = conn.prepare_cached(include_str!("sql/select_credential.sql"))?;
    Ok(select.query_one(params![now, id, name], |row| {
        Ok(match (row.get(0)?, row.get(1)?) {
            (true, _) => Added::Kept,
            (false, true) => Added::NameTaken,
            (false, false) => Added::TooMany,
        })
    })?)
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn find(conn: &Connection, now: Timestamp, hashes: &[SecretHash]) -> Result<Vec<Found>> {
    let mut select = conn.prepare_cached(include_str!("sql/find_credentials.sql"))?;
    let mut found = Vec::new();
    for hash in hashes {
        let mut rows = select.query([hash.as_bytes()])?;
        while let Some(row) = rows.next()? {
            let hash = SecretHash::of_bytes(row.get(9)?);
            found.push(Found { hash, view: view(row)?, now });
        }
    }
    Ok(found)
}

fn list(conn: &Connection) -> Result<Vec<CredentialView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_credentials.sql"))?;
    let mut rows = select.query([])?;
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        views.push(view(row)?);
    }
    Ok(views)
}

fn view(row: &Row<'_>) -> Result<CredentialView> {
    let (role, queues): (String, String) = (row.get(2)?, row.get(3)?);
    Ok(CredentialView {
        id: CredentialId(Uuid::from_bytes(row.get(0)?)),
        name: row.get(1)?,
        grant: Grant {
            role: read_role(&role)?,
            queues: serde_json::from_str(&queues).map_err(|error| unreadable(&error))?,
            tenant: row.get(4)?,
        },
        created_at: time_at(row, 5)?,
        expires_at: time_opt(row, 6)?,
        revoked_at: time_opt(row, 7)?,
        used_at: time_opt(row, 8)?,
    })
}

fn revoke(turn: &Turn<'_>, id: CredentialId) -> Result<bool> {
    let mut update = turn.conn.prepare_cached(include_str!("sql/revoke_credential.sql"))?;
    Ok(update.execute(params![turn.now, id.0.as_bytes()])? == 1)
}

fn touch(turn: &Turn<'_>, used: &[(CredentialId, Timestamp)]) -> Result<()> {
    let mut update = turn.conn.prepare_cached(include_str!("sql/touch_credentials.sql"))?;
    for (id, at) in used {
        update.execute(params![id.0.as_bytes(), at.as_microsecond()])?;
    }
    Ok(())
}
