//! Webhooks, as they are kept. Who ends jobs tells them, in its own statement: `tidemill.tell_webhooks`. Runs are
//! parked rarely: who parks one reads the webhooks and decides by the rule itself.

use async_trait::async_trait;
use tidemill_core::NewJob;
use tidemill_core::alert::book::Book;
use tidemill_core::webhook::Told;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::Postgres;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::webhook::{Kept, Webhooks, book_text, deliveries, read, read_book, texts};

const LIST: Statement = sql!("select_webhooks");
const SET: Statement = sql!("upsert_webhook", TIMESTAMPTZ, UUID, TEXT, TEXT, TEXT, TEXT, INT8);
const DELETE: Statement = sql!("delete_webhook", UUID, INT8);
const TELL: Statement = sql!("tell_webhooks", TIMESTAMPTZ, UUID_ARRAY);
const BOOK: Statement = sql!("select_alert_book");
const SET_BOOK: Statement = sql!("upsert_alert_book", INT8, TEXT);

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

    async fn delete_webhook(&self, id: Uuid, version: u64) -> Result<bool> {
        let (db, version, mut tries) = (&self.shared.db, version as i64, Tries::once());
        loop {
            match db.query(&DELETE, &[&id, &version]).await {
                Ok(rows) => return Ok(!rows.is_empty()),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }

    async fn alert_book(&self) -> Result<(u64, Book)> {
        let rows = self.shared.db.read(&BOOK, &[]).await?;
        rows.first().map_or_else(|| Ok((0, Book::default())), book)
    }

    async fn set_alert_book(&self, version: u64, book: &Book) -> Result<bool> {
        let (db, version, text) = (&self.shared.db, version as i64, book_text(book)?);
        let mut tries = Tries::once();
        loop {
            match db.query(&SET_BOOK, &[&version, &text]).await {
                Ok(rows) => return Ok(!rows.is_empty()),
                Err(fault) => tries.again(fault).await?,
            }
        }
    }
}

/// The jobs that tell of these, by the webhooks as this transaction sees them.
pub(crate) async fn tell(conn: &Conn<'_>, told: &[Told<'_>]) -> Result<Vec<NewJob>, Fault> {
    if told.is_empty() {
        return Ok(Vec::new());
    }
    let all: Result<Vec<Kept>> = conn.query(&LIST, &[]).await?.iter().map(kept).collect();
    let all = all.map_err(Fault::Refused)?;
    Ok(told.iter().flat_map(|told| deliveries(&all, told)).collect())
}

/// Tells how these jobs have ended, where that is another end than the one of before; whether anybody is told.
pub(crate) async fn tell_ends(
    conn: &Conn<'_>,
    now: Option<At>,
    ids: &[Uuid],
) -> Result<bool, Fault> {
    Ok(!ids.is_empty() && !conn.query(&TELL, &[&now, &ids]).await?.is_empty())
}

fn book(row: &Row) -> Result<(u64, Book)> {
    Ok((row.get::<_, i64>(0) as u64, read_book(row.get(1))?))
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
