//! Credentials: kept, found by their hashes, ended.
//!
//! Adding one locks the table against others that add, so that a name is looked at and taken by one alone;
//! reading goes on beside it. It refuses to guess at what it cannot read: a row whose role makes no sense is
//! an error, never a grant.

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::access::ENDED_KEPT_DAYS;
use tidemill_core::access::secret::SecretHash;
use tidemill_core::{CredentialId, Grant};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::credential::{
    Added, CredentialView, Credentials, Found, NewCredential, read_role, unreadable,
};
use crate::error::Result;
use crate::postgres::Postgres;
use crate::postgres::batch::delay_us;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};

const LOCK: Statement = sql!("lock_credentials");
const FORGET: Statement = sql!("delete_ended_credentials", TIMESTAMPTZ, INT8, INT8);
const ADD: Statement =
    sql!("insert_credential", TIMESTAMPTZ, UUID, TEXT, BYTEA, TEXT, TEXT_ARRAY, TEXT, INT8, INT8);
const FIND: Statement = sql!("find_credentials", TIMESTAMPTZ, BYTEA_ARRAY);
const LIST: Statement = sql!("select_credentials");
const REVOKE: Statement = sql!("revoke_credential", TIMESTAMPTZ, UUID);
const TOUCH: Statement = sql!("touch_credentials", UUID_ARRAY, TIMESTAMPTZ_ARRAY);

const DAY_US: i64 = 86_400_000_000;

#[async_trait]
impl Credentials for Postgres {
    async fn add_credential(&self, new: NewCredential) -> Result<Added> {
        let (db, mut tries) = (&self.shared.db, Tries::resend());
        loop {
            match add_once(db, &new).await {
                Ok(added) => return Ok(added),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn find_credentials(&self, hashes: &[SecretHash]) -> Result<Vec<Found>> {
        let db = &self.shared.db;
        let bytes: Vec<&[u8]> = hashes.iter().map(|hash| &hash.as_bytes()[..]).collect();
        let rows = db.read(&FIND, &[&db.manual_now(), &bytes]).await?;
        rows.iter().map(found).collect()
    }

    async fn credentials(&self) -> Result<Vec<CredentialView>> {
        self.shared.db.read(&LIST, &[]).await?.iter().map(view).collect()
    }

    async fn revoke_credential(&self, id: CredentialId) -> Result<bool> {
        // Sent again it changes nothing, so it may be sent as a read is.
        let db = &self.shared.db;
        Ok(!db.read(&REVOKE, &[&db.manual_now(), &id.0]).await?.is_empty())
    }

    async fn touch_credentials(&self, used: &[(CredentialId, Timestamp)]) -> Result<()> {
        let (ids, times): (Vec<Uuid>, Vec<At>) =
            used.iter().map(|(id, at)| (id.0, At(*at))).unzip();
        self.shared.db.read(&TOUCH, &[&ids, &times]).await?;
        Ok(())
    }
}

async fn add_once(db: &Db, new: &NewCredential) -> Result<Added, Fault> {
    let conn = db.begin().await?;
    let added = add(&conn, db.manual_now(), new).await;
    conn.end(added).await
}

async fn add(conn: &Conn<'_>, now: Option<At>, new: &NewCredential) -> Result<Added, Fault> {
    let NewCredential { id, name, hash, grant, expires_in, live_max } = new;
    let (role, expires_us) = (grant.role.word(), expires_in.map(delay_us));
    let (hash, max) = (&hash.as_bytes()[..], *live_max as i64);
    conn.query(&LOCK, &[]).await?;
    conn.query(&FORGET, &[&now, &(i64::from(ENDED_KEPT_DAYS) * DAY_US), &max]).await?;
    let columns: [Param<'_>; 9] =
        [&now, &id.0, name, &hash, &role, &grant.queues, &grant.tenant, &expires_us, &max];
    let rows = conn.query(&ADD, &columns).await?;
    let answer = rows.first().map(|row| (row.get(0), row.get(1)));
    Ok(match answer {
        Some((true, _)) => Added::Kept,
        Some((false, true)) => Added::NameTaken,
        _ => Added::TooMany,
    })
}

fn found(row: &Row) -> Result<Found> {
    let hash: [u8; 32] =
        row.get::<_, &[u8]>(9).try_into().map_err(|_| unreadable(&"its hash is no hash"))?;
    Ok(Found { hash: SecretHash::of_bytes(hash), view: view(row)?, now: row.get::<_, At>(10).0 })
}

fn view(row: &Row) -> Result<CredentialView> {
    let time = |column: usize| row.get::<_, Option<At>>(column).map(|at| at.0);
    Ok(CredentialView {
        id: CredentialId(row.get(0)),
        name: row.get(1),
        grant: Grant { role: read_role(row.get(2))?, queues: row.get(3), tenant: row.get(4) },
        created_at: row.get::<_, At>(5).0,
        expires_at: time(6),
        revoked_at: time(7),
        used_at: time(8),
    })
}
