//! Runs as people see them, and what people do with them.

use jiff::Timestamp;
use tidemill_core::workflow::NEVER;
use tidemill_core::{JobId, Payload};
use uuid::Uuid;

use super::mail::locked;
use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Param, Statement, sql};
use crate::run::{EntryRow, RunAct, RunAnswer, RunFilter, RunView};
use crate::wake::Hint;

const JOURNAL: Statement = sql!("select_journal", UUID);
const RUNS: Statement = sql!("select_runs", UUID_ARRAY);
const LIST: Statement = sql!("list_runs", UUID, INT8, TEXT, BOOL, BOOL);
const DEBTS: Statement = sql!("select_debts", INT8);
const PAID: Statement = sql!("delete_debts", UUID_ARRAY, BOOL_ARRAY);
const PAUSE: Statement = sql!("update_run", UUID, BOOL);
const PUT_OFF: Statement = sql!("put_off", UUID, TIMESTAMPTZ);
const RUN_NOW: Statement = sql!("run_now", TIMESTAMPTZ, UUID);
const CUT: Statement = sql!("cut_journal", UUID, INT4);

/// The journal of a run, and what else is kept of it.
pub(crate) async fn journal(db: &Db, job: JobId) -> Result<(Vec<EntryRow>, Option<RunView>)> {
    let params: [Param<'_>; 1] = [&job.0];
    let (rows, run) = tokio::try_join!(db.read(&JOURNAL, &params), views(db, vec![job.0]))?;
    let read = |row: &tokio_postgres::Row| EntryRow {
        number: row.get::<_, i32>(0) as u32,
        at: row.get::<_, At>(1).0,
        entry: row.get(2),
    };
    Ok((rows.iter().map(read).collect(), run.into_iter().next()))
}

async fn views(db: &Db, jobs: Vec<Uuid>) -> Result<Vec<RunView>> {
    let rows = db.read(&RUNS, &[&jobs]).await?;
    rows.iter().map(view).collect()
}

fn view(row: &tokio_postgres::Row) -> Result<RunView> {
    let waits = row.get::<_, Option<&str>>(3).map(serde_json::from_str).transpose();
    Ok(RunView {
        job: JobId(row.get(0)),
        began_at: row.get::<_, At>(1).0,
        version: row.get(2),
        waits: waits.map_err(|e| Error::Database { reason: e.to_string() })?,
        state: row.get::<_, Option<String>>(4).map(Payload::trusted),
        parked: row.get(5),
        paused: row.get(6),
        undone: row.get(7),
    })
}

/// A page of runs, newest first.
pub(crate) async fn list(db: &Db, filter: &RunFilter) -> Result<Vec<RunView>> {
    let before = filter.before.map_or(Uuid::max(), |id| id.0);
    let rows = filter.page_rows() as i64;
    let (parked, unfinished) = (filter.parked, filter.unfinished);
    let found = db.read(&LIST, &[&before, &rows, &filter.kind, &parked, &unfinished]).await?;
    views(db, found.iter().map(|row| row.get(0)).collect()).await
}

/// Runs that owe something.
pub(crate) async fn debts(db: &Db, limit: usize) -> Result<Vec<JobId>> {
    let rows = db.read(&DEBTS, &[&(limit as i64)]).await?;
    Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
}

/// What these runs owed was seen to.
pub(crate) async fn paid(db: &Db, jobs: &[(JobId, bool)]) -> Result<()> {
    let (jobs, undone): (Vec<Uuid>, Vec<bool>) = jobs.iter().map(|(job, u)| (job.0, *u)).unzip();
    db.write(&PAID, &[&jobs, &undone]).await?;
    Ok(())
}

/// Acts on a run.
pub(crate) async fn change(shared: &Shared, job: JobId, act: &RunAct) -> Result<RunAnswer> {
    if journal(&shared.db, job).await?.1.is_none() {
        return Ok(RunAnswer::Unknown);
    }
    let mut tries = Tries::resend();
    let (answer, queue) = loop {
        let conn = shared.db.begin().await?;
        let acted = change_in(shared, &conn, job, act).await;
        match conn.end(acted).await {
            Ok(done) => break done,
            Err(fault) => tries.again(fault).await?,
        }
    };
    if let Some(queue) = queue {
        shared.hint(Hint::Ready { queue });
    }
    Ok(answer)
}

async fn change_in(
    shared: &Shared,
    conn: &Conn<'_>,
    job: JobId,
    act: &RunAct,
) -> Result<(RunAnswer, Option<String>), Fault> {
    let now = shared.db.manual_now();
    locked(conn, now, &[job.0]).await?;
    let paused = *act == RunAct::Pause;
    if let RunAct::Reset { from } = act {
        // Only what waits can be taken back: out of its sheaf, no claim gets it before this is committed.
        let waits = put_off(conn, job, NEVER).await?.is_some();
        if !waits {
            return Ok((RunAnswer::NotNow, None));
        }
        conn.query(&CUT, &[&job.0, &(*from as i32)]).await?;
    }
    conn.query(&PAUSE, &[&job.0, &paused]).await?;
    if paused {
        put_off(conn, job, NEVER).await?;
        return Ok((RunAnswer::Acted, None));
    }
    let rows = conn.query(&RUN_NOW, &[&now, &job.0]).await?;
    Ok((RunAnswer::Acted, rows.first().and_then(|row| row.get(0))))
}

async fn put_off(conn: &Conn<'_>, job: JobId, until: Timestamp) -> Result<Option<String>, Fault> {
    let rows = conn.query(&PUT_OFF, &[&job.0, &At(until)]).await?;
    Ok(rows.first().and_then(|row| row.get(0)))
}
