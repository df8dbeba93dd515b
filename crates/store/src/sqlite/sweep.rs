//! Forgets what is over: finished jobs, and unique keys whose period has passed.
//!
//! The result of a job whose key is still held stays, without its payload, because a duplicate may
//! still ask for it. Refuses to forget a job that is not finished, also one that was revived since.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::retention::Finished;
use tidemill_core::{JobId, State};

use crate::error::Result;
use crate::sqlite::rows::{job_id, time_at};
use crate::sqlite::writer::Turn;
use crate::sqlite::{lines, runs, streams};

const KEYS_MAX: i64 = 1000;
/// Only its result is left, for those who join it by its key.
pub(super) const ONLY_RESULT: i64 = 2;

/// A page of finished jobs, oldest first.
pub(super) fn finished_after(
    conn: &Connection,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Finished>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_finished.sql"))?;
    let after = after.as_ref().map(|id| id.0.as_bytes());
    let page = select.query_map(params![after, limit as i64], finished)?;
    Ok(page.collect::<rusqlite::Result<_>>()?)
}

fn finished(row: &Row<'_>) -> rusqlite::Result<Finished> {
    Ok(Finished {
        id: job_id(row, 0)?,
        queue: row.get(1)?,
        state: State::of_number(row.get(2)?).unwrap_or(State::Done),
        finished_at: time_at(row, 3)?,
        retain_ms: row.get::<_, Option<i64>>(4)?.and_then(|ms| u64::try_from(ms).ok()),
        dead_bytes: row.get::<_, i64>(5)?.unsigned_abs(),
    })
}

/// Forgets finished jobs; answers how many.
pub(super) fn purge(turn: &mut Turn<'_>, ids: &[JobId]) -> Result<u64> {
    let conn = turn.conn;
    let mut expired = conn.prepare_cached(include_str!("sql/delete_expired_keys.sql"))?;
    expired.execute([turn.now, KEYS_MAX])?;
    let mut purged = 0;
    for id in ids {
        purged += u64::from(purge_one(turn, *id)?);
    }
    Ok(purged)
}

fn purge_one(turn: &mut Turn<'_>, job: JobId) -> Result<bool> {
    let (conn, id) = (turn.conn, job.0.as_bytes());
    let mut select = conn.prepare_cached(include_str!("sql/select_purgeable.sql"))?;
    let found =
        select.query_one(params![id, turn.now], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    let Some((keyed, is_held, state)) = found.optional()? else { return Ok(false) };
    let (keyed, is_held, state): (i64, bool, i16) = (keyed, is_held, state);
    if state == State::Dead.number() {
        lines::let_pass(turn, job)?;
    }
    if is_held && keyed == ONLY_RESULT {
        return Ok(false);
    }
    if is_held {
        conn.prepare_cached(include_str!("sql/strip_job.sql"))?.execute([id])?;
        conn.prepare_cached(include_str!("sql/strip_outcome.sql"))?.execute([id])?;
    } else {
        conn.prepare_cached(include_str!("sql/delete_job.sql"))?.execute([id])?;
        conn.prepare_cached(include_str!("sql/delete_outcome.sql"))?.execute([id])?;
    }
    conn.prepare_cached(include_str!("sql/delete_attempts.sql"))?.execute([id])?;
    conn.prepare_cached(include_str!("sql/delete_dead.sql"))?.execute([id])?;
    conn.prepare_cached(include_str!("sql/delete_notes.sql"))?.execute([id])?;
    runs::forget(conn, job)?;
    streams::forget(conn, job)?;
    Ok(true)
}
