//! Writes jobs: bodies and the rows by which they wait.
//!
//! A job without a unique key needs two inserts. One with a key goes through the view that plain
//! SQL uses, so that the policies for duplicates exist once. Refuses nothing: jobs were checked
//! before they came here, and one that is sent again under its id is answered as the first time.

use rusqlite::{Connection, params};
use tidemill_core::{JobId, NewJob};

use crate::error::Result;
use crate::request::Receipt;
use crate::sqlite::adapter;
use crate::sqlite::rows::{time, write_options};
use crate::sqlite::writer::Turn;

/// Writes jobs; answers in their order.
pub(super) fn enqueue(turn: &mut Turn<'_>, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
    let receipts = if jobs.iter().all(|job| job.unique.is_none()) {
        write(turn.conn, turn.now, jobs)?
    } else if jobs.len() == 1 {
        adapter::enqueue(turn.conn, Some(turn.now), jobs)?
    } else {
        // Keyed and plain jobs take turns as they came: their order is their age.
        let mut receipts = Vec::with_capacity(jobs.len());
        for run in jobs.chunk_by(|a, b| a.unique.is_some() == b.unique.is_some()) {
            receipts.extend(match run.first().and_then(|job| job.unique.as_ref()) {
                None => write(turn.conn, turn.now, run)?,
                Some(_) => adapter::enqueue(turn.conn, Some(turn.now), run)?,
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

/// Writes jobs that have no unique key.
fn write(conn: &Connection, now: i64, jobs: &[NewJob]) -> Result<Vec<Receipt>> {
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
            insert_ready
                .execute(params![job.queue, band, job.tenant, run_at, id, job.kind, 0, 0])?;
        }
        receipts.push(Receipt::Enqueued { id: job.id });
    }
    Ok(receipts)
}

/// When a job is due, in microseconds.
pub(super) fn due(job: &NewJob, now: i64) -> i64 {
    job.due.resolve(time(now)).as_microsecond()
}
