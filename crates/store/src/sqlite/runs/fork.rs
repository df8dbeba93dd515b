//! Forks of runs: a new job with the beginning of another one's journal, written in one turn of the writer.

use rusqlite::params;
use tidemill_core::JobId;
use tidemill_core::workflow::{ActWord, Forked};

use super::act::{is_finished, keep};
use super::view::{is_undone, journal};
use crate::error::Result;
use crate::run::{Act, RunAnswer, RunOrder, RunView, forked, written};
use crate::sqlite::cancel::cancel;
use crate::sqlite::enqueue::enqueue;
use crate::sqlite::ready;
use crate::sqlite::writer::Turn;

/// Lets a new run go on from a step of this one.
pub(super) fn fork(
    turn: &mut Turn<'_>,
    job: JobId,
    (to, into, instead): (&str, JobId, bool),
    order: &RunOrder,
) -> Result<RunAnswer> {
    let (rows, view) = journal(turn.conn, job)?;
    let forked = match forked(&rows, to, (instead, is_undone(turn.conn, job)?))? {
        Ok(forked) => forked,
        Err(why) => return Ok(RunAnswer::Refused(why)),
    };
    let (Some(body), Some(view)) = (ready::body(turn.conn, job)?, view) else {
        return Ok(RunAnswer::Unknown);
    };
    if instead && !is_finished(turn.conn, job)? {
        cancel(turn, &[job], order.reason())?;
    }
    enqueue(turn, &[forked.job(&body.job, into)])?;
    copy(turn, job, into, &view, &forked)?;
    let act = Act { word: ActWord::Copied, other: Some(job), ..Act::of(order) };
    keep(turn, into, &act)?;
    Ok(RunAnswer::Acted)
}

fn copy(turn: &Turn<'_>, from: JobId, into: JobId, of: &RunView, forked: &Forked) -> Result<()> {
    let (conn, from, into) = (turn.conn, from.0.as_bytes(), into.0.as_bytes());
    let begun = params![into, turn.now, of.version, false, None::<&str>];
    conn.prepare_cached(include_str!("../sql/upsert_run.sql"))?.execute(begun)?;
    let mut allow = conn.prepare_cached(include_str!("../sql/allow_journal.sql"))?;
    allow.execute(params![into, of.journal_entries_max])?;
    let mut copy = conn.prepare_cached(include_str!("../sql/copy_journal.sql"))?;
    copy.execute(params![from, into, forked.until])?;
    let mut delete = conn.prepare_cached(include_str!("../sql/delete_entry.sql"))?;
    for number in &forked.dropped {
        delete.execute(params![into, number])?;
    }
    let mut set = conn.prepare_cached(include_str!("../sql/set_entry.sql"))?;
    for (number, entry) in &forked.changed {
        set.execute(params![into, number, written(entry)?])?;
    }
    Ok(())
}
