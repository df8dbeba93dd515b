//! What runs owe that ended otherwise than well.
//!
//! Any number of processes see to one debt at once, and one of them may be late: by then it is paid, and its run may
//! have gone on, and owe anew. So nothing is done without looking, in the same turn, whether the debt is still there.

use rusqlite::{Connection, params};
use tidemill_core::JobId;

use crate::error::Result;
use crate::run::Debt;
use crate::sqlite::cancel::cancel;
use crate::sqlite::rows::job_id;
use crate::sqlite::writer::Turn;

/// Debts after one.
pub(in crate::sqlite) fn debts(
    conn: &Connection,
    after: Option<Debt>,
    limit: usize,
) -> Result<Vec<Debt>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_debts.sql"))?;
    let after = after.map_or(0, |debt| debt.number);
    let rows = select.query_map((after, limit as i64), |row| {
        Ok(Debt { job: job_id(row, 0)?, number: row.get(1)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Those of these jobs that are children of this run.
pub(in crate::sqlite) fn children(
    conn: &Connection,
    run: JobId,
    mut named: Vec<JobId>,
) -> Result<Vec<JobId>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_children.sql"))?;
    let mut found = Ok(());
    let parent = run.to_string();
    named.retain(|id| {
        let is_child = select.exists(params![id.0.as_bytes(), parent]);
        is_child.unwrap_or_else(|error| {
            found = Err(error);
            false
        })
    });
    Ok(found.map(|()| named)?)
}

/// What this run did is undone from now on, unless its debt was paid.
pub(in crate::sqlite) fn undo(turn: &Turn<'_>, debt: Debt) -> Result<bool> {
    let mut undo = turn.conn.prepare_cached(include_str!("../sql/undo_run.sql"))?;
    Ok(undo.execute(params![debt.job.0.as_bytes(), debt.number])? > 0)
}

/// Calls the children of a run off and takes its debt away, unless that was done.
pub(in crate::sqlite) fn pay(
    turn: &mut Turn<'_>,
    debt: Debt,
    orphans: &[JobId],
    reason: &str,
) -> Result<bool> {
    let mut delete = turn.conn.prepare_cached(include_str!("../sql/delete_debt.sql"))?;
    let is_ours = delete.execute(params![debt.job.0.as_bytes(), debt.number])? > 0;
    if is_ours {
        cancel(turn, orphans, reason)?;
    }
    Ok(is_ours)
}
