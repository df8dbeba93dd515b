//! The row by which a job waits, and how it is found again.
//!
//! A job's ready row is named by its queue, band, tenant, due time and id. The first three stand in the body; the due
//! time is where its latest attempt says that it goes on (`moved_at`, `next_at`), or else the body's `run_at`, or else
//! when its step of a flow was opened. So waiting jobs need no second index, and a finished or running one has no row
//! at that place.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::{Job, JobId, NewJob, Token, WorkerId};

use crate::error::Result;
use crate::sqlite::rows::{Body, worker_id_opt};
use crate::sqlite::writer::Turn;

/// A job that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting {
    pub run_at: i64,
    pub spent: u16,
    pub lost: u16,
}

/// What the attempts of a job say.
#[derive(Debug, Default)]
pub(super) struct LastAttempt {
    pub token: Option<Token>,
    pub worker: Option<WorkerId>,
    pub next_at: Option<i64>,
    pub error: Option<String>,
}

pub(super) fn body(conn: &Connection, id: JobId) -> Result<Option<Body>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_job.sql"))?;
    Ok(select.query_one([id.0.as_bytes()], Body::of_row).optional()?)
}

pub(super) fn last_attempt(conn: &Connection, id: JobId) -> Result<LastAttempt> {
    let mut select = conn.prepare_cached(include_str!("sql/last_attempt.sql"))?;
    let found = select.query_one([id.0.as_bytes()], |row| {
        Ok(LastAttempt {
            token: Some(Token(row.get(0)?)),
            worker: worker_id_opt(row, 1)?,
            next_at: row.get(2)?,
            error: row.get(3)?,
        })
    });
    Ok(found.optional()?.unwrap_or_default())
}

/// Where a job waits, if it does.
pub(super) fn find(conn: &Connection, body: &Body, last: &LastAttempt) -> Result<Option<Waiting>> {
    let Some(run_at) = place(conn, body, last)? else { return Ok(None) };
    let Job { id, queue, priority, tenant, .. } = &body.job;
    let mut select = conn.prepare_cached(include_str!("sql/select_ready.sql"))?;
    let place = params![queue, priority.band(), tenant, run_at, id.0.as_bytes()];
    let found = select
        .query_one(place, |row| Ok(Waiting { run_at, spent: row.get(0)?, lost: row.get(1)? }));
    Ok(found.optional()?)
}

/// Where the ready row of a job stands, if it has one.
fn place(conn: &Connection, body: &Body, last: &LastAttempt) -> Result<Option<i64>> {
    let of_step = body.job.options.flow.as_ref().filter(|_| body.run_at == 0);
    let (Some(step), None) = (of_step, last.next_at) else {
        return Ok(Some(last.next_at.unwrap_or(body.run_at)));
    };
    let mut select = conn.prepare_cached(include_str!("sql/select_step_start.sql"))?;
    let start = select.query_one(params![step.id.0.as_bytes(), step.step], |row| row.get(0));
    Ok(start.optional()?.flatten())
}

/// The gate that holds a job which waits at this place, if one does.
pub(super) fn gate(conn: &Connection, job: &Job, run_at: i64) -> Result<Option<String>> {
    let Job { id, queue, priority, tenant, .. } = job;
    let mut select = conn.prepare_cached(include_str!("sql/select_ready_gate.sql"))?;
    let place = params![queue, priority.band(), tenant, run_at, id.0.as_bytes()];
    Ok(select.query_one(place, |row| row.get(0)).optional()?)
}

pub(super) fn insert(turn: &mut Turn<'_>, job: &Job, waiting: Waiting) -> Result<()> {
    let Job { id, kind, queue, priority, tenant, key, .. } = job;
    let Waiting { run_at, spent, lost } = waiting;
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_ready.sql"))?;
    let (band, id) = (priority.band(), id.0.as_bytes());
    insert.execute(params![queue, band, tenant, run_at, id, kind, key, spent, lost])?;
    turn.depths.came(queue, tenant.as_deref(), 1);
    Ok(())
}

/// A job that was just written waits for a slot.
pub(super) fn insert_new(turn: &mut Turn<'_>, job: &NewJob) -> Result<()> {
    let NewJob { id, kind, queue, priority, tenant, key, .. } = job;
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_ready.sql"))?;
    let (band, id) = (priority.band(), id.0.as_bytes());
    insert.execute(params![queue, band, tenant, turn.now, id, kind, key, 0, 0])?;
    turn.depths.came(queue, tenant.as_deref(), 1);
    turn.news.ready(queue);
    Ok(())
}

pub(super) fn delete(turn: &mut Turn<'_>, job: &Job, run_at: i64) -> Result<()> {
    let Job { id, queue, priority, tenant, .. } = job;
    let mut delete = turn.conn.prepare_cached(include_str!("sql/delete_waiting.sql"))?;
    let deleted =
        delete.execute(params![queue, priority.band(), tenant, run_at, id.0.as_bytes()])?;
    turn.depths.went(queue, tenant.as_deref(), deleted);
    Ok(())
}

/// Makes the pointer to a job's ready row point at `run_at`.
pub(super) fn point(conn: &Connection, id: JobId, run_at: i64) -> Result<()> {
    let mut attempt = conn.prepare_cached(include_str!("sql/point_attempt.sql"))?;
    if attempt.execute(params![id.0.as_bytes(), run_at])? == 0 {
        point_job(conn, id, run_at)?;
    }
    Ok(())
}

/// The same, whether it has attempts or not; 0: its step has not let it go.
pub(super) fn point_job(conn: &Connection, id: JobId, run_at: i64) -> Result<()> {
    let mut job = conn.prepare_cached(include_str!("sql/point_job.sql"))?;
    job.execute(params![id.0.as_bytes(), run_at])?;
    Ok(())
}
