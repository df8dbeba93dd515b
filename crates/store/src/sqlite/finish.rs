//! The end of a job: its outcome is written, its unique key is let go, its line goes on, and webhooks hear of it.
//!
//! Settling, cancelling and rescuing all end jobs here, in their own transaction. Refuses to end a
//! job twice: the outcome's key would be there already, and the whole call fails.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::flow::Arrival;
use tidemill_core::schedule::schedule_of_key;
use tidemill_core::{Job, JobId, State, Token, WorkerId};

use crate::error::Result;
use crate::sqlite::rows::{job_id, job_id_opt};
use crate::sqlite::writer::Turn;
use crate::sqlite::{lines, ready, runs, webhooks};

/// How a job ended.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub state: State,
    /// Attempts spent.
    pub attempt: u16,
    pub lost: u16,
    /// Who settled it. `None` when the store ended it: then no settle of it may count as done.
    pub lease: Option<(Token, WorkerId)>,
    pub output: Option<&'a str>,
    pub error: Option<&'a str>,
}

/// Writes the outcome of a job and lets go of its unique key and its line.
pub(super) fn finish(turn: &mut Turn<'_>, job: &Job, end: &End<'_>) -> Result<()> {
    let (token, worker) = end.lease.unzip();
    let place = job.options.flow.as_ref();
    turn.conn.prepare_cached(include_str!("sql/insert_outcome.sql"))?.execute(params![
        job.id.0.as_bytes(),
        job.queue,
        end.state.number(),
        end.attempt,
        end.lost,
        token.map(|token| token.0),
        worker.as_ref().map(|worker| worker.0.as_bytes()),
        turn.now,
        job.options.kept_ms(),
        job.unique_key.is_some(),
        end.output,
        end.error,
        place.map(|place| place.id.0.as_bytes()),
        place.map(|place| place.step)
    ])?;
    turn.news.finished.push(job.id);
    if let Some(place) = place {
        let is_done = end.state == State::Done;
        let (ok, failed) = (u64::from(is_done), i64::from(!is_done));
        turn.news.arrive(place.id, Arrival { step: place.step, ok, failed });
    }
    if let Some(key) = &job.unique_key {
        let_go(turn, job.id, key)?;
    }
    lines::end(turn, job, end.state)?;
    webhooks::tell_end(turn, job, end)?;
    runs::ended(turn, job, end)
}

/// Lets go of a key: whoever is kept for afterwards has it now and may start; else a key that is
/// held only while unfinished is free.
fn let_go(turn: &mut Turn<'_>, id: JobId, key: &str) -> Result<()> {
    let conn = turn.conn;
    let mut select = conn.prepare_cached(include_str!("sql/select_unique_key.sql"))?;
    let held = select.query_one([key], |row| Ok((job_id(row, 0)?, job_id_opt(row, 1)?)));
    let Some((holder, next)) = held.optional()? else { return Ok(()) };
    if holder != id {
        return Ok(());
    }
    if let Some(next) = next {
        conn.prepare_cached(include_str!("sql/pass_unique_key.sql"))?.execute([key])?;
        let body = ready::body(conn, next)?;
        return body.map_or(Ok(()), |body| lines::start(turn, &body.job));
    }
    conn.prepare_cached(include_str!("sql/release_unique_key.sql"))?.execute([key])?;
    Ok(())
}

/// Whether a job may not run now, because another of its schedule has not finished and they exclude each other.
pub(super) fn is_excluded(conn: &Connection, job: &Job) -> Result<bool> {
    let key = job.unique_key.as_deref().filter(|key| schedule_of_key(key).is_some());
    let Some(key) = key else { return Ok(false) };
    let mut select = conn.prepare_cached(include_str!("sql/select_unique_key.sql"))?;
    let holder = select.query_one([key], |row| job_id(row, 0)).optional()?;
    Ok(holder.is_some_and(|holder| holder != job.id))
}

/// Takes the key of a job that runs anew, unless another job has it by now.
pub(super) fn take_back(conn: &Connection, job: &Job) -> Result<()> {
    if let Some(key) = &job.unique_key {
        let mut insert = conn.prepare_cached(include_str!("sql/retake_unique_key.sql"))?;
        insert.execute(params![key, job.id.0.as_bytes()])?;
    }
    Ok(())
}
