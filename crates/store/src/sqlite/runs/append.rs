//! Writes to journals, each only while its lease names the run.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::workflow::ObjectKey;
use tidemill_core::{Job, JobId, NewJob, Payload, WorkerId};

use super::mail::child_ended;
use crate::error::Result;
use crate::run::{Append, Renewal, RunWrites, Seal, for_after, heard, turned_away};
use crate::sqlite::cancel::cancel;
use crate::sqlite::enqueue::enqueue;
use crate::sqlite::lease::Lease;
use crate::sqlite::writer::Turn;

/// Why children are called off that nobody waits for.
const UNWANTED: &str = "its parent does not wait for it any more";

/// Writes to journals; answers in the order of the items.
pub(in crate::sqlite) fn append(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    items: &[Append],
) -> Result<Vec<bool>> {
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let lease = Lease::find(turn.conn, item.token)?.filter(|lease| lease.worker == worker);
        let holds = lease.is_some_and(|lease| lease.jobs.iter().any(|held| held.id == item.job));
        if holds {
            write(turn, item.job, &item.writes)?;
        }
        answers.push(holds);
    }
    Ok(answers)
}

/// Writes one entry unless a transaction of a caller has written under its number.
pub(in crate::sqlite) fn seal(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    item: &Append,
) -> Result<Seal> {
    let holds = append(turn, worker, std::slice::from_ref(item))? == [true];
    let Some((number, sealed)) = item.writes.entries.first() else { return Ok(Seal::Stale) };
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_entry.sql"))?;
    let place = params![item.job.0.as_bytes(), number];
    Ok(Seal::of(select.query_one(place, |row| row.get(0)).optional()?, sealed, holds))
}

/// Writes what a run, whose lease holds, wants written.
pub(in crate::sqlite) fn write(turn: &mut Turn<'_>, job: JobId, writes: &RunWrites) -> Result<()> {
    let (conn, now, id) = (turn.conn, turn.now, job.0.as_bytes());
    let RunWrites { begins, entries, forget, state, owes, children, cancel: unwanted, .. } = writes;
    if begins.is_some() || *owes || state.is_some() {
        let mut upsert = conn.prepare_cached(include_str!("../sql/upsert_run.sql"))?;
        upsert.execute(params![id, now, begins, owes, state.as_ref().map(Payload::as_str)])?;
    }
    let mut insert = conn.prepare_cached(include_str!("../sql/insert_entry.sql"))?;
    let mut hear = conn.prepare_cached(include_str!("../sql/hear_mail.sql"))?;
    for (number, entry) in entries {
        if insert.execute(params![id, number, now, entry])? > 0
            && let Some(mail) = heard(entry)
        {
            hear.execute(params![id, mail])?;
        }
    }
    let mut set = conn.prepare_cached(include_str!("../sql/set_value.sql"))?;
    for (number, value) in &writes.values {
        set.execute(params![id, number, value.as_str()])?;
    }
    let mut delete = conn.prepare_cached(include_str!("../sql/delete_entry.sql"))?;
    for number in forget {
        delete.execute(params![id, number])?;
    }
    if !children.is_empty() {
        start(turn, job, children)?;
    }
    cancel(turn, unwanted, UNWANTED)?;
    let mut answer = conn.prepare_cached(include_str!("../sql/answer_mail.sql"))?;
    for (number, ending) in &writes.answers {
        answer.execute(params![id, number, ending])?;
        turn.news.mail.insert(job);
    }
    if let Some(renewal) = &writes.renewal {
        renew(conn, id, renewal)?;
    }
    Ok(())
}

/// Starts children, and tells the run of those whose key another job holds.
fn start(turn: &mut Turn<'_>, run: JobId, children: &[NewJob]) -> Result<()> {
    let conn = turn.conn;
    let mut heard = conn.prepare_cached(include_str!("../sql/select_heard.sql"))?;
    let mut wanted = Vec::with_capacity(children.len());
    for child in children {
        // Sent again, one that was turned away the first time stays so.
        let may_be_heard = child.unique.is_some() && child.options.parent.is_some();
        if !may_be_heard || !heard.exists(params![run.0.as_bytes(), child.id.to_string()])? {
            wanted.push(child.clone());
        }
    }
    let mut receipts = enqueue(turn, &wanted)?;
    let mut called_off = conn.prepare_cached(include_str!("../sql/select_called_off.sql"))?;
    for (child, receipt) in wanted.iter().zip(&mut receipts) {
        let holder = receipt.id();
        if child.options.parent.is_none() || holder == child.id {
            continue;
        }
        if called_off.exists(params![holder.0.as_bytes(), run.to_string()])?
            && let Some(kept) = enqueue(turn, &[for_after(child)])?.pop()
        {
            *receipt = kept;
        }
    }
    for (parent, end) in turned_away(&wanted, &receipts) {
        child_ended(turn, parent, end)?;
    }
    Ok(())
}

/// Lets a run continue anew: with another payload, an empty journal, and the mail that nobody took.
fn renew(conn: &Connection, id: &[u8; 16], renewal: &Renewal) -> Result<()> {
    let Renewal { payload, version, taken } = renewal;
    conn.prepare_cached(include_str!("../sql/delete_journal.sql"))?.execute([id])?;
    let mut forget = conn.prepare_cached(include_str!("../sql/forget_mail.sql"))?;
    let mut take = conn.prepare_cached(include_str!("../sql/take_mail.sql"))?;
    for number in taken {
        if forget.execute(params![id, number])? == 0 {
            take.execute(params![id, number])?;
        }
    }
    let mut replace = conn.prepare_cached(include_str!("../sql/renew_job.sql"))?;
    replace.execute(params![id, payload.as_str()])?;
    let mut update = conn.prepare_cached(include_str!("../sql/renew_run.sql"))?;
    update.execute(params![id, version])?;
    Ok(())
}

/// Writes what the object of a job, whose lease holds, is from now on.
pub(in crate::sqlite) fn keep_object(turn: &Turn<'_>, job: &Job, writes: &RunWrites) -> Result<()> {
    let (Some(keep), Some(key)) = (&writes.object, ObjectKey::of(job)) else { return Ok(()) };
    if let Some(state) = keep.state() {
        let mut keep = turn.conn.prepare_cached(include_str!("../sql/upsert_object.sql"))?;
        keep.execute(params![job.queue, key.tenant, key.key, turn.now, state.as_str()])?;
    } else {
        let mut forget = turn.conn.prepare_cached(include_str!("../sql/delete_object.sql"))?;
        forget.execute(params![job.queue, key.tenant, key.key])?;
    }
    Ok(())
}
