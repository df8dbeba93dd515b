//! Lets jobs die that wait past their deadlines.
//!
//! The reader finds whether there is anything to look at, so that the writer is troubled only then.

use rusqlite::{Connection, params};
use tidemill_core::job::deadline::Deadlines;
use tidemill_core::{JobId, RuleBook, State};

use crate::error::Result;
use crate::late::{self, Bounded, LATER_JOBS_MAX, LOOKS_MAX, Look, Stand};
use crate::request::Expired;
use crate::sqlite::finish::{End, finish};
use crate::sqlite::query::has_begun;
use crate::sqlite::ready;
use crate::sqlite::rows::{job_id, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{dead, queues};

/// Jobs that the rules of their queues make late, if a book has such; `None` when there is nothing to look at.
pub(super) fn find(
    conn: &Connection,
    book: Option<&RuleBook>,
    now: i64,
) -> Result<Option<Vec<JobId>>> {
    let mut late = Vec::new();
    if let Some(book) = book {
        for bounded in late::bounded(book, queues::names(conn)?, time(now)) {
            late.extend(late_in(conn, &bounded)?);
        }
    }
    let has_rows = !due(conn, now, 1)?.is_empty();
    Ok((has_rows || !late.is_empty()).then_some(late))
}

fn late_in(conn: &Connection, bounded: &Bounded) -> Result<Vec<JobId>> {
    let us = |at: Option<jiff::Timestamp>| at.map(jiff::Timestamp::as_microsecond);
    let Bounded { queue, start, finish, due } = bounded;
    let mut select = conn.prepare_cached(include_str!("sql/select_late.sql"))?;
    let (start, finish, due) = (us(*start), us(*finish), us(*due));
    let late = params![queue, start, finish, LOOKS_MAX as i64, due, LATER_JOBS_MAX];
    let late = select.query_map(late, |row| job_id(row, 0))?;
    Ok(late.collect::<rusqlite::Result<_>>()?)
}

/// When, and whose.
fn due(conn: &Connection, now: i64, limit: usize) -> Result<Vec<(i64, JobId)>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_deadlines.sql"))?;
    let due = select.query_map([now, limit as i64], |row| Ok((row.get(0)?, job_id(row, 1)?)))?;
    Ok(due.collect::<rusqlite::Result<_>>()?)
}

/// Looks at what is to be looked at by now, and at these.
pub(super) fn expire(turn: &mut Turn<'_>, book: &RuleBook, late: &[JobId]) -> Result<Expired> {
    let conn = turn.conn;
    let due = due(conn, turn.now, LOOKS_MAX)?;
    let (is_full, mut expired) = (due.len() == LOOKS_MAX, Expired::default());
    for (at, id) in due {
        let look = look(turn, book, id)?;
        expired.jobs += u64::from(matches!(look, Look::Dies(_)));
        conn.prepare_cached(include_str!("sql/delete_deadline.sql"))?
            .execute(params![at, id.0.as_bytes()])?;
        if let Look::Again(at) = look {
            conn.prepare_cached(include_str!("sql/insert_deadline.sql"))?
                .execute(params![at.as_microsecond(), id.0.as_bytes()])?;
        }
    }
    for id in late {
        expired.jobs += u64::from(matches!(look(turn, book, *id)?, Look::Dies(_)));
    }
    expired.more = is_full || late.len() >= LOOKS_MAX && expired.jobs > 0;
    Ok(expired)
}

/// Looks at a job, which is dead if it is late.
fn look(turn: &mut Turn<'_>, book: &RuleBook, id: JobId) -> Result<Look> {
    let (conn, now) = (turn.conn, time(turn.now));
    let Some(body) = ready::body(conn, id)? else { return Ok(Look::Over) };
    let job = &body.job;
    let mut finished = conn.prepare_cached(include_str!("sql/is_finished.sql"))?;
    if finished.exists([id.0.as_bytes()])? {
        return Ok(Look::Over);
    }
    let waiting = ready::find(conn, &body, &ready::last_attempt(conn, id)?)?;
    let stand = match &waiting {
        Some(waiting) => Stand::Waits {
            due_at: time(waiting.run_at),
            has_begun: waiting.spent > 0 || has_begun(conn, id)?,
        },
        None => Stand::Elsewhere,
    };
    let look = Look::at(Deadlines::of(job, book.of(&job.queue)), &job.kind, &stand, now);
    if let (Look::Dies(failure), Some(waiting)) = (&look, waiting) {
        ready::delete(turn, job, waiting.run_at)?;
        let end = End {
            state: State::Dead,
            attempt: waiting.spent,
            lost: waiting.lost,
            lease: None,
            output: None,
            error: Some(&failure.message),
        };
        finish(turn, job, &end)?;
        dead::bury(turn, job, failure, waiting.spent)?;
    }
    Ok(look)
}
