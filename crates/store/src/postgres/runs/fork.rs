//! Forks of runs: a new job with the beginning of another one's journal, written in one transaction.

use tidemill_core::JobId;
use tidemill_core::workflow::{ActWord, Entry, Forked};
use uuid::Uuid;

use super::act::{Came, keep};
use super::mail::locked;
use super::view::entry_row;
use crate::postgres::body::body;
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, cancel, settle};
use crate::run::{Act, RunAnswer, RunOrder, forked, written};

const JOURNAL: Statement = sql!("select_journal", UUID);
const IS_UNDONE: Statement = sql!("is_undone", UUID);
const BODIES: Statement = sql!("select_bodies", UUID_ARRAY);
const COPY: Statement =
    sql!("copy_journal", TIMESTAMPTZ, UUID, UUID, INT4, INT4_ARRAY, TEXT_ARRAY, INT4_ARRAY);

/// Lets a new run go on from a step of this one.
pub(super) async fn fork(
    shared: &Shared,
    conn: &Conn<'_>,
    job: JobId,
    (to, into, instead): (&str, JobId, bool),
    order: &RunOrder,
) -> Result<Came, Fault> {
    let now = shared.db.manual_now();
    let is_undone = !conn.query(&IS_UNDONE, &[&job.0]).await?.is_empty();
    let mut called_off = Vec::new();
    if instead {
        // First, since it locks the flow of the run: flows come before runs.
        called_off.push(cancel::cancel_in(shared, conn, &[job], order.reason()).await?);
    }
    // What it continues anew with is written under this lock.
    locked(conn, now, &[job.0]).await?;
    let rows: Vec<_> = conn.query(&JOURNAL, &[&job.0]).await?.iter().map(entry_row).collect();
    let forked = match forked(&rows, to, (instead, is_undone)).map_err(Fault::Refused)? {
        Ok(forked) => forked,
        Err(why) => return Ok(RunAnswer::Refused(why).into()),
    };
    let bodies = conn.query(&BODIES, &[&[job.0].as_slice()]).await?;
    let Some(row) = bodies.first() else { return Ok(RunAnswer::Unknown.into()) };
    let new = forked.job(&body(row, 0), into);
    settle::follow_up(shared, conn, &[&new]).await?;
    let Forked { until, changed, dropped, .. } = forked;
    let (numbers, entries): (Vec<i32>, Vec<Entry>) =
        changed.into_iter().map(|(number, entry)| (number as i32, entry)).unzip();
    let texts: Vec<String> =
        entries.iter().map(written).collect::<crate::error::Result<_>>().map_err(Fault::Refused)?;
    let dropped: Vec<i32> = dropped.into_iter().map(|number| number as i32).collect();
    let until = until as i32;
    conn.query(&COPY, &[&now, &job.0, &into.0, &until, &numbers, &texts, &dropped]).await?;
    let act = Act { word: ActWord::Copied, other: Some(job), ..Act::of(order) };
    keep(conn, now, (Uuid::now_v7(), into), &act).await?;
    Ok(Came { queue: Some(new.queue), called_off, ..RunAnswer::Acted.into() })
}
