//! Calls jobs off, and calls waiting ones early.
//!
//! A waiting job ends here and now. A running one is noted on its lease: its handler is told with
//! the next beat, and whatever it answers, it does not run again.

use rusqlite::params;
use tidemill_core::{JobId, State};

use crate::error::Result;
use crate::request::CancelAnswer;
use crate::sqlite::finish::{End, finish};
use crate::sqlite::lease::Lease;
use crate::sqlite::ready::{self, Waiting};
use crate::sqlite::writer::Turn;

/// Calls jobs off; answers in their order.
pub(super) fn cancel(
    turn: &mut Turn<'_>,
    ids: &[JobId],
    reason: &str,
) -> Result<Vec<CancelAnswer>> {
    ids.iter().map(|id| cancel_one(turn, *id, reason)).collect()
}

fn cancel_one(turn: &mut Turn<'_>, id: JobId, reason: &str) -> Result<CancelAnswer> {
    let conn = turn.conn;
    let mut finished = conn.prepare_cached(include_str!("sql/is_finished.sql"))?;
    if finished.exists([id.0.as_bytes()])? {
        return Ok(CancelAnswer::Finished);
    }
    let Some(body) = ready::body(conn, id)? else { return Ok(CancelAnswer::Unknown) };
    let end = |spent, lost| End {
        state: State::Cancelled,
        attempt: spent,
        lost,
        lease: None,
        output: None,
        error: Some(reason),
    };
    if let Some(waiting) = ready::find(conn, &body, &ready::last_attempt(conn, id)?)? {
        ready::delete(turn, &body.job, waiting.run_at)?;
        finish(turn, &body.job, &end(waiting.spent, waiting.lost))?;
        return Ok(CancelAnswer::Cancelled);
    }
    if let Some((lease, _)) = Lease::holding(conn, id)? {
        let mut insert = conn.prepare_cached(include_str!("sql/insert_cancel.sql"))?;
        if insert.execute(params![lease.token.0, id.0.as_bytes(), reason])? == 1 {
            let mut mark = conn.prepare_cached(include_str!("sql/mark_lease_cancelled.sql"))?;
            mark.execute([lease.token.0])?;
        }
        turn.news.called_off.insert(lease.worker);
        return Ok(CancelAnswer::Requested);
    }
    // Neither finished, waiting nor running: it is kept for after another one, or its step is not opened.
    if let Some(place) = &body.job.options.flow {
        let mut hold = conn.prepare_cached(include_str!("sql/hold_places.sql"))?;
        hold.execute(params![place.id.0.as_bytes(), place.step, id.0.as_bytes()])?;
    }
    conn.prepare_cached(include_str!("sql/forget_next.sql"))?.execute([id.0.as_bytes()])?;
    finish(turn, &body.job, &end(0, 0))?;
    Ok(CancelAnswer::Cancelled)
}

/// Makes a job that waits for the clock due now.
pub(super) fn run_now(turn: &mut Turn<'_>, id: JobId) -> Result<bool> {
    let (conn, now) = (turn.conn, turn.now);
    let Some(body) = ready::body(conn, id)? else { return Ok(false) };
    let found = ready::find(conn, &body, &ready::last_attempt(conn, id)?)?;
    let Some(waiting) = found.filter(|waiting| waiting.run_at > now) else { return Ok(false) };
    ready::delete(turn, &body.job, waiting.run_at)?;
    ready::insert(turn, &body.job, Waiting { run_at: now, ..waiting })?;
    ready::point(conn, id, now)?;
    turn.news.ready(&body.job.queue);
    Ok(true)
}
