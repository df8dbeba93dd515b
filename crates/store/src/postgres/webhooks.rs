//! Webhooks, as they are kept. Who ends jobs tells them, in its own statement: `tidemill.tell_webhooks`.

use async_trait::async_trait;
use tokio_postgres::Row;

use crate::error::Result;
use crate::postgres::Postgres;
use crate::postgres::error::Tries;
use crate::postgres::statement::{At, Statement, sql};
use crate::webhook::{Kept, Webhooks, read, texts};

const LIST: Statement = sql!("select_webhooks");
const SET: Statement = sql!("upsert_webhook", TIMESTAMPTZ, UUID, TEXT, TEXT, TEXT, TEXT, INT8);
const DELETE: Statement = sql!("delete_webhook", TEXT);

#[async_trait]
impl Webhooks for Postgres {
    async fn webhooks(&self) -> Result<Vec<Kept>> {
        self.shared.db.read(&LIST, &[]).await?.iter().map(kept).collect()
    }

    async fn set_webhook(&self, kept: &Kept) -> Result<bool> {
        let [webhook, secrets, options] = texts(kept)?;
        let (db, version, mut tries) = (&self.shared.db, kept.version as i64, Tries::once());
        let now = db.manual_now();
        loop {
            let columns: [crate::postgres::statement::Param<'_>; 7] =
                [&now, &kept.id, &kept.name, &webhook, &secrets, &options, &version];
            match db.query(&SET, &columns).await {
                Ok(rows) => return Ok(!rows.is_empty()),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn delete_webhook(&self, name: &str) -> Result<bool> {
        let (db, mut tries) = (&self.shared.db, Tries::once());
        loop {
            match db.query(&DELETE, &[&name]).await {
                Ok(rows) => return Ok(!rows.is_empty()),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }
}

fn kept(row: &Row) -> Result<Kept> {
    let (webhook, secrets) = read(row.get(2), row.get(3))?;
    Ok(Kept {
        id: row.get(0),
        name: row.get(1),
        webhook,
        secrets,
        version: row.get::<_, i64>(4) as u64,
        created_at: row.get::<_, At>(5).0,
        changed_at: row.get::<_, At>(6).0,
    })
}
