//! Runs as people see them.

use tidemill_core::workflow::ObjectKey;
use tidemill_core::{JobId, Payload};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::Db;
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::run::{Beside, EntryRow, RunFilter, RunView, unwritten};

const JOURNAL: Statement = sql!("select_journal", UUID);
const VALUE: Statement = sql!("select_value", UUID, INT4);
const OBJECT: Statement = sql!("select_object", TEXT, TEXT, TEXT);
const RUNS: Statement = sql!("select_runs", UUID_ARRAY);
const LIST: Statement = sql!("list_runs", UUID, INT8, TEXT, BOOL);
const PARKED: Statement = sql!("list_parked_runs", UUID, INT8, TEXT, BOOL);

/// The journal of a run, and what else is kept of it.
pub(crate) async fn journal(db: &Db, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)> {
    let params: [Param<'_>; 1] = [&job.0];
    let (rows, run) = tokio::try_join!(db.read(&JOURNAL, &params), views(db, vec![job.0]))?;
    Ok((rows.iter().map(entry_row).collect(), run.into_iter().next()))
}

pub(super) fn entry_row(row: &Row) -> EntryRow {
    EntryRow { number: row.get::<_, i32>(0) as u32, at: row.get::<_, At>(1).0, entry: row.get(2) }
}

pub(super) async fn views(db: &Db, jobs: Vec<Uuid>) -> Result<Vec<RunView>> {
    let rows = db.read(&RUNS, &[&jobs]).await?;
    rows.iter().map(view).collect()
}

fn view(row: &Row) -> Result<RunView> {
    Ok(RunView {
        job: JobId(row.get(0)),
        began_at: row.get::<_, At>(1).0,
        version: row.get(2),
        waits: unwritten(row.get(3))?,
        state: row.get::<_, Option<String>>(4).map(Payload::trusted),
        parked: unwritten(row.get(5))?,
        paused: row.get(6),
        undone: row.get(7),
        journal_entries_max: row.get::<_, Option<i32>>(8).map(|entries| entries as u32),
        signals_unread: row.get::<_, i64>(9).max(0) as u64,
    })
}

/// What stands beside an entry of a journal, with the entry.
pub(crate) async fn value(db: &Db, job: JobId, number: u32) -> Result<Option<Beside>> {
    let rows = db.read(&VALUE, &[&job.0, &(number as i32)]).await?;
    let beside = |row: &Row| Beside { value: Payload::trusted(row.get(0)), entry: row.get(1) };
    Ok(rows.first().map(beside))
}

/// What the object of this queue and key is.
pub(crate) async fn object(db: &Db, queue: &str, key: ObjectKey<'_>) -> Result<Option<Payload>> {
    let rows = db.read(&OBJECT, &[&queue, &key.tenant, &key.key]).await?;
    Ok(rows.first().map(|row| Payload::trusted(row.get(0))))
}

/// A page of runs, newest first.
pub(crate) async fn list(db: &Db, filter: &RunFilter) -> Result<Vec<RunView>> {
    let before = filter.before.map_or(Uuid::max(), |id| id.0);
    let rows = filter.page_rows() as i64;
    let list = if filter.parked { &PARKED } else { &LIST };
    let found = db.read(list, &[&before, &rows, &filter.kind, &filter.unfinished]).await?;
    views(db, found.iter().map(|row| row.get(0)).collect()).await
}
