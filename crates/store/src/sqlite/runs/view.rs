//! Runs as people see them.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::workflow::ObjectKey;
use tidemill_core::{JobId, Payload};
use uuid::Uuid;

use crate::error::Result;
use crate::run::{Beside, EntryRow, RunFilter, RunView, unwritten};
use crate::sqlite::rows::{count, job_id, time_at};

/// What only the store needs to know of a run.
pub(super) struct Box {
    pub mail: i64,
    pub wake_at: Option<i64>,
    pub unread_bytes: u64,
}

/// A run, if there is one.
pub(super) fn find(conn: &Connection, job: JobId) -> Result<Option<(RunView, Box)>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_run.sql"))?;
    let found = select.query_one([job.0.as_bytes()], |row| Ok((Read::of(row)?, boxed(row)?)));
    found.optional()?.map(|(read, row)| Ok((read.view()?, row))).transpose()
}

fn boxed(row: &Row<'_>) -> rusqlite::Result<Box> {
    Ok(Box { mail: row.get(7)?, wake_at: row.get(8)?, unread_bytes: count::<i64>(row, 12)? })
}

struct Read {
    view: RunView,
    waits: Option<String>,
    parked: Option<String>,
}

impl Read {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let view = RunView {
            job: job_id(row, 0)?,
            began_at: time_at(row, 1)?,
            version: row.get(2)?,
            waits: None,
            state: row.get::<_, Option<String>>(4)?.map(Payload::trusted),
            parked: None,
            paused: row.get(6)?,
            undone: row.get(9)?,
            journal_entries_max: row.get(10)?,
            signals_unread: count::<i64>(row, 11)?,
        };
        Ok(Self { view, waits: row.get(3)?, parked: row.get(5)? })
    }

    fn view(self) -> Result<RunView> {
        let waits = unwritten(self.waits.as_deref())?;
        Ok(RunView { waits, parked: unwritten(self.parked.as_deref())?, ..self.view })
    }
}

/// The journal of a run, and what else is kept of it.
pub(in crate::sqlite) fn journal(
    conn: &Connection,
    job: JobId,
) -> Result<(Vec<EntryRow>, Option<RunView>)> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_journal.sql"))?;
    let rows = select.query_map([job.0.as_bytes()], |row| {
        let number = count::<i64>(row, 0)? as u32;
        Ok(EntryRow { number, at: time_at(row, 1)?, entry: row.get(2)? })
    })?;
    let entries = rows.collect::<rusqlite::Result<_>>()?;
    Ok((entries, find(conn, job)?.map(|(view, _)| view)))
}

/// What stands beside an entry of a journal, with the entry.
pub(in crate::sqlite) fn value(
    conn: &Connection,
    job: JobId,
    number: u32,
) -> Result<Option<Beside>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_value.sql"))?;
    let place = params![job.0.as_bytes(), number];
    let beside =
        |row: &Row<'_>| Ok(Beside { value: Payload::trusted(row.get(0)?), entry: row.get(1)? });
    Ok(select.query_one(place, beside).optional()?)
}

/// What the object of this queue and key is.
pub(in crate::sqlite) fn object(
    conn: &Connection,
    queue: &str,
    key: ObjectKey<'_>,
) -> Result<Option<Payload>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_object.sql"))?;
    let found =
        select.query_one(params![queue, key.tenant, key.key], |row| row.get(0)).optional()?;
    Ok(found.map(Payload::trusted))
}

/// A page of runs, newest first.
pub(in crate::sqlite) fn list(conn: &Connection, filter: &RunFilter) -> Result<Vec<RunView>> {
    let before = filter.before.map_or(Uuid::max(), |id| id.0);
    let list = if filter.parked {
        include_str!("../sql/list_parked_runs.sql")
    } else {
        include_str!("../sql/list_runs.sql")
    };
    let mut select = conn.prepare_cached(list)?;
    let rows = select.query_map(
        params![before.as_bytes(), filter.page_rows() as i64, filter.kind, filter.unfinished],
        Read::of,
    )?;
    rows.map(|row| row?.view()).collect()
}

/// Whether what a run did is undone, or is still to be seen to.
pub(in crate::sqlite) fn is_undone(conn: &Connection, job: JobId) -> Result<bool> {
    Ok(conn.prepare_cached(include_str!("../sql/is_undone.sql"))?.exists([job.0.as_bytes()])?)
}

/// Forgets a run with its journal and its mail.
pub(in crate::sqlite) fn forget(conn: &Connection, job: JobId) -> Result<()> {
    let id = job.0.as_bytes();
    if conn.prepare_cached(include_str!("../sql/delete_run.sql"))?.execute([id])? > 0 {
        conn.prepare_cached(include_str!("../sql/delete_journal.sql"))?.execute([id])?;
        conn.prepare_cached(include_str!("../sql/delete_mail.sql"))?.execute([id])?;
        let mut forgive = conn.prepare_cached(include_str!("../sql/delete_debt.sql"))?;
        forgive.execute(params![id, None::<i64>])?;
        conn.prepare_cached(include_str!("../sql/delete_run_acts.sql"))?.execute([id])?;
    }
    Ok(())
}
