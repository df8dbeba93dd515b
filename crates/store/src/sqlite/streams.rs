//! Streams: adding to them under a lease, and reading on.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::stream::{Progress, Said};
use tidemill_core::{JobId, WorkerId};
use uuid::Uuid;

use crate::error::Result;
use crate::sqlite::lease::Lease;
use crate::sqlite::rows::time;
use crate::sqlite::writer::Turn;
use crate::stream::{PAGE_BYTES, StreamAnswer, StreamItem, StreamPage, Written, progress};

/// Adds to streams; answers in the order of the items.
pub(super) fn append(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    items: &[StreamItem],
    bytes_max: u64,
) -> Result<Vec<StreamAnswer>> {
    items.iter().map(|item| append_one(turn, worker, item, bytes_max as i64)).collect()
}

fn append_one(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    item: &StreamItem,
    bytes_max: i64,
) -> Result<StreamAnswer> {
    let lease = Lease::find(turn.conn, item.token)?.filter(|lease| lease.worker == worker);
    if !lease.is_some_and(|lease| lease.jobs.iter().any(|held| held.id == item.job)) {
        return Ok(StreamAnswer::Stale);
    }
    let (id, sent) = (item.job.0.as_bytes(), item.sent.as_bytes());
    let mut end = turn.conn.prepare_cached(include_str!("sql/select_stream_end.sql"))?;
    let end = end.query_one([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let (last, before, last_sent): (i64, i64, Vec<u8>) = end.unwrap_or_default();
    if item.said.is_empty() || last_sent == sent {
        return Ok(StreamAnswer::Kept { last: last as u64 });
    }
    let written = Written::of(&item.said)?;
    let (bytes, size) = (before + written.bytes(), item.said.len() as i64);
    if bytes > bytes_max {
        return Ok(StreamAnswer::Full { bytes_left: (bytes_max - before).max(0) as u64 });
    }
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_stream.sql"))?;
    let Written { chunks, progress } = written;
    insert.execute(params![id, last + 1, last + size, bytes, turn.now, sent, progress, chunks])?;
    turn.news.streams.push(item.job);
    Ok(StreamAnswer::Kept { last: (last + size) as u64 })
}

/// Adds to the stream of a job what somebody has done with it.
pub(super) fn say(turn: &mut Turn<'_>, job: JobId, said: Said) -> Result<()> {
    let (id, sent, written) = (job.0.as_bytes(), Uuid::now_v7(), Written::of(&[said])?);
    let mut end = turn.conn.prepare_cached(include_str!("sql/select_stream_end.sql"))?;
    let end = end.query_one([id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (last, before): (i64, i64) = end.unwrap_or_default();
    let (next, bytes, sent) = (last + 1, before + written.bytes(), sent.as_bytes());
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_stream.sql"))?;
    let Written { chunks, progress } = written;
    insert.execute(params![id, next, next, bytes, turn.now, sent, progress, chunks])?;
    turn.news.streams.push(job);
    Ok(())
}

/// The chunks of these streams after these numbers.
pub(super) fn after(conn: &Connection, jobs: &[(JobId, u64)]) -> Result<Vec<StreamPage>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_stream.sql"))?;
    let mut pages = Vec::with_capacity(jobs.len());
    for (job, after) in jobs {
        let mut page = StreamPage::default();
        let mut rows = select.query(params![job.0.as_bytes(), *after as i64, PAGE_BYTES as i64])?;
        while let Some(row) = rows.next()? {
            let text: String = row.get(2)?;
            page.add(*after, (row.get(0)?, time(row.get(1)?), &text), row.get(3)?)?;
        }
        pages.push(page);
    }
    Ok(pages)
}

/// The last progress that a job told of.
pub(super) fn last_progress(conn: &Connection, job: JobId) -> Result<Option<Progress>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_progress.sql"))?;
    let text: Option<String> = select.query_one([job.0.as_bytes()], |row| row.get(0)).optional()?;
    Ok(progress(text.as_deref()))
}

/// Forgets the stream of a job.
pub(super) fn forget(conn: &Connection, job: JobId) -> Result<()> {
    conn.prepare_cached(include_str!("sql/delete_stream.sql"))?.execute([job.0.as_bytes()])?;
    Ok(())
}
