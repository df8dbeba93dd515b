//! Webhooks: kept, and told of jobs in the transaction that ends or parks them.

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};
use tidemill_core::Job;
use tidemill_core::alert::book::Book;
use tidemill_core::webhook::{Event, QUEUE, Told};
use uuid::Uuid;

use crate::error::Result;
use crate::sqlite::Sqlite;
use crate::sqlite::enqueue::enqueue;
use crate::sqlite::finish::End;
use crate::sqlite::rows::{count, time, time_at};
use crate::sqlite::writer::Turn;
use crate::webhook::{Kept, Webhooks, book_text, deliveries, read, read_book, texts};

#[async_trait]
impl Webhooks for Sqlite {
    async fn webhooks(&self) -> Result<Vec<Kept>> {
        self.read(list).await
    }

    async fn set_webhook(&self, kept: &Kept) -> Result<bool> {
        let kept = kept.clone();
        self.write(move |turn| set(turn, &kept)).await
    }

    async fn delete_webhook(&self, id: Uuid, version: u64) -> Result<bool> {
        let delete = include_str!("sql/delete_webhook.sql");
        self.write(move |turn| {
            let mut delete = turn.conn.prepare_cached(delete)?;
            Ok(delete.execute(params![id.as_bytes(), version as i64])? == 1)
        })
        .await
    }

    async fn alert_book(&self) -> Result<(u64, Book)> {
        self.read(book).await
    }

    async fn set_alert_book(&self, version: u64, book: &Book) -> Result<bool> {
        let (version, text) = (version as i64, book_text(book)?);
        let upsert = include_str!("sql/upsert_alert_book.sql");
        self.write(move |turn| {
            Ok(turn.conn.prepare_cached(upsert)?.execute(params![version, text])? == 1)
        })
        .await
    }
}

fn list(conn: &Connection) -> Result<Vec<Kept>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_webhooks.sql"))?;
    let mut rows = select.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(kept(row)?);
    }
    Ok(all)
}

fn book(conn: &Connection) -> Result<(u64, Book)> {
    let mut select = conn.prepare_cached(include_str!("sql/select_alert_book.sql"))?;
    let mut rows = select.query([])?;
    match rows.next()? {
        Some(row) => Ok((count::<i64>(row, 0)?, read_book(&row.get::<_, String>(1)?)?)),
        None => Ok((0, Book::default())),
    }
}

fn kept(row: &Row<'_>) -> Result<Kept> {
    let (webhook, secrets) = read(&row.get::<_, String>(2)?, &row.get::<_, String>(3)?)?;
    Ok(Kept {
        id: Uuid::from_bytes(row.get(0)?),
        name: row.get(1)?,
        webhook,
        secrets,
        version: count::<i64>(row, 4)?,
        created_at: time_at(row, 5)?,
        changed_at: time_at(row, 6)?,
    })
}

fn set(turn: &Turn<'_>, kept: &Kept) -> Result<bool> {
    let [webhook, secrets, _] = texts(kept)?;
    let mut upsert = turn.conn.prepare_cached(include_str!("sql/upsert_webhook.sql"))?;
    let (id, version) = (kept.id.as_bytes(), kept.version as i64);
    let changed = upsert.execute(params![id, kept.name, webhook, secrets, turn.now, version])?;
    Ok(changed == 1)
}

/// Writes the jobs that tell of this end.
pub(super) fn tell_end(turn: &mut Turn<'_>, job: &Job, end: &End<'_>) -> Result<()> {
    let Some(event) = Event::end_in(end.state) else { return Ok(()) };
    let End { attempt, output, error, .. } = *end;
    tell(turn, &Told { job, event, attempt, output, error, code: None, at: time(turn.now) })
}

/// Writes the jobs that tell of it.
pub(super) fn tell(turn: &mut Turn<'_>, told: &Told<'_>) -> Result<()> {
    if told.job.queue == QUEUE {
        return Ok(());
    }
    let deliveries = deliveries(&list(turn.conn)?, told);
    if !deliveries.is_empty() {
        enqueue(turn, &deliveries)?;
    }
    Ok(())
}
