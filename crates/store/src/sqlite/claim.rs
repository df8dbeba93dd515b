//! Takes due jobs under a lease.
//!
//! Whoever deletes a ready row has the job: in SQLite there is one writer at a time, so no lock and
//! no second look is needed. Refuses workers that are not registered, and leaves jobs of kinds that
//! the worker does not know where they are.

use std::ops::RangeInclusive;
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
    let taken = take_all(turn, ask)?;
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

fn take_all(turn: &mut Turn<'_>, ask: &ClaimRequest) -> Result<Vec<Taken>> {
    let (conn, now) = (turn.conn, turn.now);
    let words = ask.kinds.as_ref().map(|kinds| serde_json::json!(**kinds).to_string());
    let mut delete = conn.prepare_cached(include_str!("sql/delete_ready.sql"))?;
    let mut taken = Vec::new();
    for lane in &ask.lanes {
        let room = ask.jobs_max - taken.len();
        if room == 0 {
            break;
        }
        let due = match ask.kinds.as_ref().zip(words.as_deref()) {
            None => due(conn, now, lane, room)?,
            Some((kinds, words)) => {
                let from = turn.marks.begin(now, lane, kinds);
                let due = due_of_kinds(conn, from..=now, lane, words, room)?;
                let last = due.get(room - 1).map(|last| last.run_at);
                turn.marks.seen(lane, kinds, last.unwrap_or(now));
                due
            }
        };
        take(&mut delete, lane, &due)?;
        taken.extend(due);
    }
    Ok(taken)
}

fn due(conn: &Connection, now: i64, lane: &Lane, room: usize) -> Result<Vec<Taken>> {
    let Lane { queue, priority } = lane;
    let mut select = conn.prepare_cached(include_str!("sql/select_due.sql"))?;
    let due = select.query_map(params![queue, priority.band(), now, room as i64], Taken::of_row)?;
    Ok(due.collect::<rusqlite::Result<_>>()?)
}

fn due_of_kinds(
    conn: &Connection,
    times: RangeInclusive<i64>,
    lane: &Lane,
    kinds: &str,
    room: usize,
) -> Result<Vec<Taken>> {
    let (Lane { queue, priority }, (from, now)) = (lane, times.into_inner());
    let mut select = conn.prepare_cached(include_str!("sql/select_due_of_kinds.sql"))?;
    let asked = params![queue, priority.band(), now, room as i64, kinds, from];
    let due = select.query_map(asked, Taken::of_row)?;
    Ok(due.collect::<rusqlite::Result<_>>()?)
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

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;
    use tidemill_core::{Clock, NewJob, Payload, WorkerId};

    use super::*;
    use crate::request::WorkerCard;
    use crate::sqlite::adapter;
    use crate::sqlite::marks::Marks;
    use crate::sqlite::migrate::migrate;
    use crate::sqlite::news::News;
    use crate::sqlite::open::{self, Place};

    #[test]
    fn unknown_kinds_at_the_head_are_walked_over_once() -> Result<()> {
        let conn = open::writer(&Place::Memory)?;
        migrate(&conn, true)?;
        let (worker, start) = (WorkerId::new(), Clock::default().now().as_microsecond());
        let (mut news, mut marks) = (News::default(), Marks::default());
        let mut turn = Turn { conn: &conn, now: start, news: &mut news, marks: &mut marks };
        let (queues, kinds) = (vec!["default".to_owned()], vec!["mine".to_owned()]);
        let name = "w".to_owned();
        let card = WorkerCard { id: worker, name, queues, kinds: kinds.clone(), slots: 1 };
        workers::register(&turn, &card)?;
        let job = |kind| NewJob::new(kind, Payload::null());
        let others: Vec<_> = (0..1000).map(|_| job("other")).collect();
        adapter::enqueue(&conn, Some(start), &others)?;
        let lanes = vec![Lane { queue: "default".into(), priority: Priority::Normal }];
        let ask = ClaimRequest { worker, lanes, kinds: Some(Arc::new(kinds)), jobs_max: 1 };
        let mut steps = |after_us| -> Result<(usize, i32)> {
            turn.now = start + after_us;
            let taken = claim(&mut turn, &ask)?.jobs.len();
            let select = conn.prepare_cached(include_str!("sql/select_due_of_kinds.sql"))?;
            Ok((taken, select.reset_status(StatementStatus::VmStep)))
        };
        let (taken, walk) = steps(6_000_000)?;
        assert!(taken == 0 && walk > 1000, "{walk} steps over all the others");
        adapter::enqueue(&conn, Some(start + 6_500_000), &[job("mine"), job("mine")])?;
        for _ in 0..2 {
            let (taken, walk) = steps(7_000_000)?;
            assert!(taken == 1 && walk < 300, "{walk} steps straight to it");
        }
        Ok(())
    }
}
