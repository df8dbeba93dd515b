//! Writes jobs: bodies and the rows by which they wait.
//!
//! A job without a unique key and outside of lines needs two inserts. Any other goes through the view
//! that plain SQL uses, so that the policies for duplicates and the rules of lines exist once.
//! Refuses nothing (bounds are judged in `bound.rs`): jobs were checked before they came here, and one
//! that is sent again under its id is answered as the first time.

use rusqlite::params;
use tidemill_core::{JobId, NewJob};

use crate::error::Result;
use crate::request::Receipt;
use crate::sqlite::adapter;
use crate::sqlite::rows::{time, write_options};
use crate::sqlite::writer::Turn;

/// Writes jobs; answers in their order.
pub(super) fn enqueue(turn: &mut Turn<'_>, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    let receipts = if jobs.iter().all(is_plain) {
        write(turn, jobs)?
    } else if jobs.len() == 1 {
        adapter::enqueue(turn.conn, Some(turn.now), jobs, false)?
    } else {
        // They take turns as they came: their order is their age.
        let mut receipts = Vec::with_capacity(jobs.len());
        for run in jobs.chunk_by(|a, b| is_plain(a) == is_plain(b)) {
            receipts.extend(if run.iter().all(is_plain) {
                write(turn, run)?
            } else {
                adapter::enqueue(turn.conn, Some(turn.now), run, false)?
            });
        }
        receipts
    };
    for (job, receipt) in jobs.iter().zip(&receipts) {
        if matches!(receipt, Receipt::Enqueued { .. } | Receipt::Replaced { .. }) {
            turn.news.ready(&job.queue);
        }
    }
    Ok(receipts)
}

/// Nothing but its own row decides what becomes of it.
pub(super) fn is_plain(job: &NewJob) -> bool {
    job.unique.is_none() && job.line().is_none()
}

/// Writes jobs that have no unique key and are in no line.
fn write(turn: &mut Turn<'_>, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    let (conn, now) = (turn.conn, turn.now);
    let mut insert_job = conn.prepare_cached(include_str!("sql/insert_job.sql"))?;
    let mut insert_ready = conn.prepare_cached(include_str!("sql/insert_ready.sql"))?;
    let mut receipts = Vec::with_capacity(jobs.len());
    for job in jobs {
        let JobId(id) = job.id;
        let (id, band, run_at) = (id.as_bytes(), job.priority.band(), due(job, now));
        let written = insert_job.execute(params![
            id,
            job.kind,
            job.queue,
            band,
            job.tenant,
            job.key,
            run_at,
            job.payload.as_str(),
            write_options(&job.options),
            now
        ])?;
        if written == 1 {
            let NewJob { queue, tenant, kind, key, .. } = job;
            insert_ready.execute(params![queue, band, tenant, run_at, id, kind, key, 0, 0])?;
            turn.depths.came(queue, tenant.as_deref(), 1);
        }
        receipts.push(Receipt::Enqueued { id: job.id });
    }
    Ok(receipts)
}

/// When a job is due, in microseconds.
pub(super) fn due(job: &NewJob, now: i64) -> i64 {
    job.due.resolve(time(now)).as_microsecond()
}
