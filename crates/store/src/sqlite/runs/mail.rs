//! Mail of runs: signals, ends of children, and the waits they end.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{ChildEnd, Content, Mail, NEVER};
use tidemill_core::{Job, JobId, NewJob, Payload, State, Token};

use super::view::find;
use crate::error::{Error, Result};
use crate::request::Receipt;
use crate::run::{Reply, Room, Signal, SignalAnswer, written};
use crate::sqlite::bound::enqueue_bounded;
use crate::sqlite::cancel::run_now;
use crate::sqlite::finish::End;
use crate::sqlite::ready;
use crate::sqlite::rows::time_at;
use crate::sqlite::writer::Turn;
use crate::together;

/// The mail of a run after this number, at most so many pieces.
pub(in crate::sqlite) fn mail(
    conn: &Connection,
    job: JobId,
    after: i64,
    limit: usize,
) -> Result<Vec<Mail>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_mail.sql"))?;
    let rows = select.query_map(params![job.0.as_bytes(), after, limit as i64], |row| {
        Ok((row.get(0)?, time_at(row, 1)?, row.get::<_, String>(2)?))
    })?;
    rows.map(|row| {
        let (number, at, content) = row?;
        let content = serde_json::from_str(&content);
        let content = content.map_err(|e| Error::Database { reason: e.to_string() })?;
        Ok(Mail { number, at, content })
    })
    .collect()
}

/// What became of the message that was sent to a run under this id.
pub(in crate::sqlite) fn reply(conn: &Connection, job: JobId, sent: &str) -> Result<Reply> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_reply.sql"))?;
    let read = |row: &Row<'_>| Ok(Reply::of(row.get(0)?, row.get(1)?));
    let found = select.query_one(params![job.0.as_bytes(), sent], read).optional()?;
    Ok(found.unwrap_or(Reply::Unknown))
}

/// Puts signals into mailboxes; answers in their order.
pub(in crate::sqlite) fn signal(
    turn: &mut Turn<'_>,
    start: Option<&NewJob>,
    signals: &[Signal],
    room: Room,
) -> Result<(Option<Receipt>, Vec<SignalAnswer>)> {
    let mut receipt = None;
    if let Some(job) = start {
        let receipts = enqueue_bounded(turn, std::slice::from_ref(job))?;
        let mut receipts = receipts.map_err(Error::QueueFull)?;
        together::check(std::slice::from_ref(job), &receipts)?;
        receipt = receipts.pop();
    }
    let mut answers = Vec::with_capacity(signals.len());
    for Signal { to, name, payload, id } in signals {
        // It may be another one that stands for the job that was to start.
        let to = receipt.as_ref().map_or(*to, Receipt::id);
        let mut finished = turn.conn.prepare_cached(include_str!("../sql/is_finished.sql"))?;
        answers.push(if finished.exists([to.0.as_bytes()])? {
            SignalAnswer::Finished
        } else if ready::body(turn.conn, to)?.is_none() {
            SignalAnswer::Unknown
        } else {
            let content = Content::Signal { name: name.clone(), payload: payload.clone() };
            deliver(turn, to, id.as_deref(), &content, Some(room))?
        });
    }
    Ok((receipt, answers))
}

/// Puts a piece of mail into the box of a run, once, if there is room or room is no question, and wakes the run if it
/// waited for it.
fn deliver(
    turn: &mut Turn<'_>,
    to: JobId,
    sent: Option<&str>,
    content: &Content,
    room: Option<Room>,
) -> Result<SignalAnswer> {
    let (conn, now, id) = (turn.conn, turn.now, to.0.as_bytes());
    let content = serde_json::to_string(content);
    let content = content.map_err(|e| Error::Database { reason: e.to_string() })?;
    let found = find(conn, to)?;
    let bytes = content.len() as u64;
    let is_over = room.is_some_and(|room| {
        let (unread, unread_bytes) =
            found.as_ref().map_or((0, 0), |(view, row)| (view.signals_unread, row.unread_bytes));
        unread + 1 > room.signals_max || unread_bytes + bytes > room.bytes_max
    });
    if is_over {
        let mut has = conn.prepare_cached(include_str!("../sql/has_mail.sql"))?;
        let is_there = has.exists(params![id, sent])?;
        return Ok(if is_there { SignalAnswer::Kept } else { SignalAnswer::Full });
    }
    let waits = found.is_some_and(|(_, row)| row.wake_at.is_some());
    // Ends of children take no room: they are as many as the run has started.
    let bytes = room.map(|_| bytes as i64);
    conn.prepare_cached(include_str!("../sql/upsert_run.sql"))?.execute(params![
        id,
        now,
        None::<&str>,
        false,
        None::<&str>
    ])?;
    let mut insert = conn.prepare_cached(include_str!("../sql/insert_mail.sql"))?;
    if insert.execute(params![id, now, sent, content, bytes])? == 0 {
        return Ok(SignalAnswer::Kept);
    }
    let mut count = conn.prepare_cached(include_str!("../sql/count_mail.sql"))?;
    let wakes: bool = count.query_one(params![id, bytes], |row| row.get(0))?;
    if waits && wakes {
        run_now(turn, to)?;
    }
    turn.news.mail.insert(to);
    Ok(SignalAnswer::Kept)
}

/// What follows for runs from a job that ended: its parent hears of it, and its debts are noted.
pub(in crate::sqlite) fn ended(turn: &mut Turn<'_>, job: &Job, end: &End<'_>) -> Result<()> {
    if let Some(parent) = job.options.parent {
        let output = end.output.map(|output| Payload::trusted(output.to_owned()));
        let error = end.error.map(str::to_owned);
        child_ended(turn, parent, ChildEnd { id: job.id, state: end.state, output, error })?;
    }
    if end.state != State::Done {
        let mut note = turn.conn.prepare_cached(include_str!("../sql/insert_debt.sql"))?;
        turn.news.debts |= note.execute([job.id.0.as_bytes()])? > 0;
    }
    Ok(())
}

/// Tells a run of the end of a child, if the run is there.
pub(super) fn child_ended(turn: &mut Turn<'_>, parent: JobId, end: ChildEnd) -> Result<()> {
    if ready::body(turn.conn, parent)?.is_some() {
        deliver(turn, parent, None, &Content::Child(end), None)?;
    }
    Ok(())
}

/// Notes what a run waits for; answers when it goes on by itself: at once, if what wakes it has come meanwhile.
pub(in crate::sqlite) fn wait(
    turn: &mut Turn<'_>,
    job: JobId,
    token: Token,
    waiting: &Waiting,
) -> Result<i64> {
    let (conn, id) = (turn.conn, job.0.as_bytes());
    conn.prepare_cached(include_str!("../sql/upsert_run.sql"))?.execute(params![
        id,
        turn.now,
        None::<&str>,
        false,
        None::<&str>
    ])?;
    let found = find(conn, job)?;
    let (is_paused, mail) = found.map_or((false, 0), |(view, row)| (view.paused, row.mail));
    let due = match waiting.wake_at() {
        _ if is_paused || waiting.parked.is_some() => NEVER.as_microsecond(),
        Some(number) if number <= mail => turn.now,
        _ => waiting.waits.until.unwrap_or(NEVER).as_microsecond(),
    };
    let wake_at = waiting.wake_at().filter(|number| *number > mail);
    let waits = serde_json::to_string(&waiting.waits).ok();
    let mut update = conn.prepare_cached(include_str!("../sql/update_waits.sql"))?;
    let parked = waiting.parked.as_ref().map(written).transpose()?;
    update.execute(params![id, wake_at, waits, parked, token.0])?;
    let mut forget = conn.prepare_cached(include_str!("../sql/delete_waited.sql"))?;
    forget.execute(params![id, token.0])?;
    Ok(due.max(turn.now))
}
