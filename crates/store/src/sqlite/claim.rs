//! Takes due jobs under a lease.
//!
//! Whoever deletes a ready row has the job: in SQLite there is one writer at a time, so no lock and
//! no second look is needed. Refuses workers that are not registered, and leaves jobs of kinds that
//! the worker does not know where they are.

use std::sync::Arc;

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, params};
use tidemill_core::{JobId, Priority};

use crate::error::Result;
use crate::request::{Claim, ClaimRequest, ClaimedJob, Lane};
use crate::sqlite::lease::{Held, Lease};
use crate::sqlite::rows::{Body, job_id, time};
use crate::sqlite::workers;
use crate::sqlite::writer::Turn;

/// A ready row that was taken.
struct Taken {
    run_at: i64,
    held: Held,
}

/// Takes what the request wishes, in order of lane, due time and age.
pub(super) fn claim(turn: &mut Turn<'_>, ask: &ClaimRequest) -> Result<Claim> {
    let (conn, now) = (turn.conn, turn.now);
    let mut claim = Claim { token: None, now: time(now), jobs: Vec::new(), next_due: None };
    if !workers::is_registered(conn, ask.worker)? {
        return Ok(claim);
    }
    let taken = take_all(conn, now, ask)?;
    if !taken.is_empty() {
        let held: Vec<_> = taken.iter().map(|taken| taken.held).collect();
        claim.token = Some(Lease::insert(conn, ask.worker, now, &held)?);
        claim.jobs = bodies(conn, &taken)?;
    }
    if taken.len() < ask.jobs_max {
        claim.next_due = next_due(conn, now, &ask.lanes)?.map(time);
    }
    Ok(claim)
}

fn take_all(conn: &Connection, now: i64, ask: &ClaimRequest) -> Result<Vec<Taken>> {
    let kinds = ask.kinds.as_ref().map(|kinds| serde_json::json!(**kinds).to_string());
    let mut delete = conn.prepare_cached(include_str!("sql/delete_ready.sql"))?;
    let mut taken = Vec::new();
    for lane in &ask.lanes {
        let room = ask.jobs_max - taken.len();
        if room == 0 {
            break;
        }
        let due = due(conn, now, lane, kinds.as_deref(), room)?;
        take(&mut delete, lane, &due)?;
        taken.extend(due);
    }
    Ok(taken)
}

fn due(
    conn: &Connection,
    now: i64,
    lane: &Lane,
    kinds: Option<&str>,
    room: usize,
) -> Result<Vec<Taken>> {
    let Lane { queue, priority } = lane;
    let (band, room) = (priority.band(), room as i64);
    let found: rusqlite::Result<Vec<_>> = match kinds {
        None => conn
            .prepare_cached(include_str!("sql/select_due.sql"))?
            .query_map(params![queue, band, now, room], Taken::of_row)?
            .collect(),
        Some(kinds) => conn
            .prepare_cached(include_str!("sql/select_due_of_kinds.sql"))?
            .query_map(params![queue, band, now, room, kinds], Taken::of_row)?
            .collect(),
    };
    Ok(found?)
}

impl Taken {
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let held = Held { id: job_id(row, 1)?, spent: row.get(2)?, lost: row.get(3)? };
        Ok(Self { run_at: row.get(0)?, held })
    }
}

fn take(delete: &mut CachedStatement<'_>, lane: &Lane, due: &[Taken]) -> Result<()> {
    let Lane { queue, priority } = lane;
    let band: i16 = Priority::band(*priority);
    for Taken { run_at, held: Held { id: JobId(id), .. } } in due {
        delete.execute(params![queue, band, run_at, id.as_bytes()])?;
    }
    Ok(())
}

fn bodies(conn: &Connection, taken: &[Taken]) -> Result<Vec<ClaimedJob>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_job.sql"))?;
    let mut jobs = Vec::with_capacity(taken.len());
    for Taken { run_at, held } in taken {
        let body = select.query_one([held.id.0.as_bytes()], Body::of_row)?;
        jobs.push(ClaimedJob {
            job: Arc::new(body.job),
            attempt: held.spent.saturating_add(1),
            lost: held.lost,
            due_at: time(*run_at),
        });
    }
    Ok(jobs)
}

/// The alarm of a worker that got less than it asked for. It may ring for a kind it does not know,
/// once: finding its own would mean walking over all others.
fn next_due(conn: &Connection, now: i64, lanes: &[Lane]) -> Result<Option<i64>> {
    let mut select = conn.prepare_cached(include_str!("sql/next_due.sql"))?;
    let mut next = None;
    for Lane { queue, priority } in lanes {
        let due = select.query_one(params![queue, priority.band(), now], |row| row.get(0));
        let due: Option<i64> = due.optional()?;
        next = [next, due].into_iter().flatten().min();
    }
    Ok(next)
}
