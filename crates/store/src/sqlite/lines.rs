//! Lines: jobs of one queue, tenant and key that run one at a time, in the order of their enqueue.
//!
//! What happens in a line is written down once, in the triggers that plain SQL uses as well; here it
//! is called. Refuses nothing: a job that is in no line leaves none.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::{Job, JobId, OnDead, State};

use crate::error::Result;
use crate::sqlite::ready;
use crate::sqlite::rows::{count, job_id};
use crate::sqlite::writer::Turn;
use crate::view::LineView;

/// A job waits for a slot or the clock, or for its turn in its line.
pub(super) fn start(turn: &mut Turn<'_>, job: &Job) -> Result<()> {
    let mut start = turn.conn.prepare_cached(include_str!("sql/start.sql"))?;
    start.execute(params![job.id.0.as_bytes(), turn.now])?;
    turn.news.ready(&job.queue);
    Ok(())
}

/// A job has ended: it leaves its line, unless it is dead and blocks those behind it.
pub(super) fn end(turn: &mut Turn<'_>, job: &Job, state: State) -> Result<()> {
    let blocks = state == State::Dead && job.options.ordered == Some(OnDead::Block);
    if job.line().is_none() || blocks {
        return Ok(());
    }
    leave(turn, job)
}

/// A dead letter is given up: it lets those behind it pass.
pub(super) fn let_pass(turn: &mut Turn<'_>, id: JobId) -> Result<()> {
    let Some(body) = ready::body(turn.conn, id)? else { return Ok(()) };
    let mut outcome = turn.conn.prepare_cached(include_str!("sql/select_outcome.sql"))?;
    let state: Option<i16> = outcome.query_one([id.0.as_bytes()], |row| row.get(0)).optional()?;
    if body.job.line().is_none() || state != Some(State::Dead.number()) {
        return Ok(());
    }
    leave(turn, &body.job)
}

fn leave(turn: &mut Turn<'_>, job: &Job) -> Result<()> {
    let mut leave = turn.conn.prepare_cached(include_str!("sql/leave_line.sql"))?;
    leave.execute(params![job.id.0.as_bytes(), turn.now])?;
    turn.news.ready(&job.queue);
    Ok(())
}

/// The place of a job that waits in a line.
pub(super) fn place(conn: &Connection, id: JobId) -> Result<Option<LineView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_line.sql"))?;
    let place = select.query_one([id.0.as_bytes()], |row| {
        Ok(LineView {
            key: row.get(0)?,
            ahead: count::<i64>(row, 1)?,
            head: job_id(row, 2)?,
            dead: row.get(3)?,
        })
    });
    Ok(place.optional()?)
}
