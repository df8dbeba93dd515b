//! What stands in a queue: what is due, what waits for the clock, for its line, or to be woken, and who is busy.
//!
//! Asked by people, while a million may wait: nothing is counted further than it is told.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::Priority;
use tidemill_core::why::{COUNTED_MAX, LINES_MAX};

use crate::error::Result;
use crate::sqlite::lease::Lease;
use crate::sqlite::rows::{count, job_id_opt, time_opt};
use crate::view::Crowd;

pub(super) fn look(conn: &Connection, now: i64, queue: &str) -> Result<Crowd> {
    let most = COUNTED_MAX as i64;
    let mut crowd = Crowd::default();
    let mut select = conn.prepare_cached(include_str!("sql/select_crowd.sql"))?;
    let mut bands = select.query(params![now, queue, most])?;
    while let Some(row) = bands.next()? {
        crowd.due += count::<i64>(row, 0)?;
        crowd.later += count::<i64>(row, 1)?;
        crowd.asleep += count::<i64>(row, 2)?;
        for column in 3..6 {
            let next_at = time_opt(row, column)?;
            crowd.next_at = [crowd.next_at, next_at].into_iter().flatten().min();
            crowd.last_at = crowd.last_at.max(time_opt(row, column + 3)?);
        }
    }
    let mut kinds = conn.prepare_cached(include_str!("sql/select_waiting_kinds.sql"))?;
    for band in Priority::ALL {
        let kinds = kinds.query_map(params![queue, band.band(), most], |row| row.get(0))?;
        crowd.kinds.extend(kinds.collect::<rusqlite::Result<Vec<String>>>()?);
    }
    let mut lines = conn.prepare_cached(include_str!("sql/select_stuck_lines.sql"))?;
    (crowd.lined, crowd.stuck, crowd.stuck_line) =
        lines.query_one(params![queue, most, LINES_MAX], |row| {
            let line = row.get::<_, Option<String>>(2)?.zip(job_id_opt(row, 3)?);
            Ok((count::<i64>(row, 0)?, count::<i64>(row, 1)?, line))
        })?;
    crowd.held = held(conn)?;
    Ok(crowd)
}

/// How many jobs each worker holds, by queue.
fn held(conn: &Connection) -> Result<Vec<(tidemill_core::WorkerId, String, u64)>> {
    let mut queue_of = conn.prepare_cached(include_str!("sql/select_queue_of_job.sql"))?;
    let mut held = BTreeMap::new();
    for lease in Lease::all(conn)? {
        for job in &lease.jobs {
            let queue: Option<String> =
                queue_of.query_one([job.id.0.as_bytes()], |row| row.get(0)).optional()?;
            *held.entry((lease.worker, queue.unwrap_or_default())).or_insert(0) += 1;
        }
    }
    Ok(held.into_iter().map(|((worker, queue), jobs)| (worker, queue, jobs)).collect())
}
