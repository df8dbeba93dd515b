//! Between rows and values: ids, times and bodies.
//!
//! Reading is lenient where a row cannot be refused any more: a time beyond the calendar is its
//! end, wishes that make no sense are left out, bytes that are not UTF-8 are replaced. Writing happened behind checks.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, ValueRef};
use tidemill_core::{Job, JobId, Options, Payload, Priority, WorkerId};
use uuid::Uuid;

use crate::options::read_options;

/// Microseconds as a time.
pub(super) fn time(micros: i64) -> Timestamp {
    let end = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(micros).unwrap_or(end)
}

pub(super) fn time_at(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(time)
}

pub(super) fn time_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(time))
}

pub(super) fn job_id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    Ok(JobId(Uuid::from_bytes(row.get(column)?)))
}

pub(super) fn job_id_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<JobId>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(|id| JobId(Uuid::from_bytes(id))))
}

pub(super) fn worker_id(row: &Row<'_>, column: usize) -> rusqlite::Result<WorkerId> {
    Ok(WorkerId(Uuid::from_bytes(row.get(column)?)))
}

pub(super) fn worker_id_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<WorkerId>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(|id| WorkerId(Uuid::from_bytes(id))))
}

/// A count, which a row keeps as an integer.
pub(super) fn count<T: FromSql + TryInto<u64>>(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<u64> {
    Ok(row.get::<_, T>(column)?.try_into().unwrap_or_default())
}

/// Text, whatever its bytes: SQLite does not look at them, and a claim must not fail for one job of many.
fn text_opt(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        _ => None,
    })
}

/// A body, and when it was first due.
#[derive(Debug)]
pub(super) struct Body {
    pub job: Job,
    pub run_at: i64,
}

impl Body {
    /// Reads the columns of `select_job.sql`.
    pub fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let options = text_opt(row, 8)?;
        let job = Job {
            id: job_id(row, 0)?,
            kind: row.get(1)?,
            queue: row.get(2)?,
            priority: Priority::of_band(row.get(3)?),
            tenant: row.get(4)?,
            key: row.get(5)?,
            unique_key: row.get(6)?,
            payload: Payload::trusted(text_opt(row, 7)?.unwrap_or_default()),
            options: options.as_deref().map_or_else(Options::default, read_options),
            created_at: time_at(row, 9)?,
        };
        Ok(Self { job, run_at: row.get(10)? })
    }
}

/// Options as they are kept: absent when all are at their defaults.
pub(super) fn write_options(options: &Options) -> Option<String> {
    if options.is_default() {
        return None;
    }
    // Plain data always has a JSON text.
    serde_json::to_string(options).ok()
}
