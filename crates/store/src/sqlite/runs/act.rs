//! What people do with runs: done in one turn of the writer, and kept with who did it and why.

use rusqlite::{Connection, params};
use tidemill_core::workflow::{Amend, Ending, NEVER};
use tidemill_core::{By, JobId};
use uuid::Uuid;

use super::fork::fork;
use super::view::{find, journal, value};
use crate::error::Result;
use crate::request::CancelAnswer;
use crate::run::{
    self, Act, Endings, FORGOTTEN, RunAct, RunActView, RunAnswer, RunOrder, act_of, allowed,
    entries, unwritten, written,
};
use crate::sqlite::cancel::{cancel, run_now};
use crate::sqlite::dead::revive;
use crate::sqlite::ready::{self, Waiting};
use crate::sqlite::rows::time_at;
use crate::sqlite::streams;
use crate::sqlite::writer::Turn;

/// Acts on a run.
pub(in crate::sqlite) fn change(
    turn: &mut Turn<'_>,
    job: JobId,
    order: &RunOrder,
) -> Result<RunAnswer> {
    let Some((before, _)) = find(turn.conn, job)? else { return Ok(RunAnswer::Unknown) };
    let mut endings = Endings::default();
    let may_act = match order.act {
        RunAct::Fork { .. } => true,
        RunAct::Amend(_) => !is_finished(turn.conn, job)? || is_dead(turn.conn, job)?,
        _ => !is_finished(turn.conn, job)?,
    };
    if !may_act {
        return Ok(RunAnswer::NotNow);
    }
    let answer = match &order.act {
        RunAct::Cancel => call_off(turn, job, order.reason())?,
        RunAct::Fork { to, into, instead } => fork(turn, job, (to, *into, *instead), order)?,
        RunAct::Pause => {
            update(turn, job, Some(true))?;
            put_off(turn, job)?;
            RunAnswer::Acted
        }
        RunAct::Unlock => {
            let mut unlock = turn.conn.prepare_cached(include_str!("../sql/unlock_run.sql"))?;
            if unlock.execute([job.0.as_bytes()])? == 0 {
                return Ok(RunAnswer::NotNow);
            }
            run_now(turn, job)?;
            RunAnswer::Acted
        }
        RunAct::Resume { journal_entries_max } => {
            if journal_entries_max.is_some() {
                let mut allow =
                    turn.conn.prepare_cached(include_str!("../sql/allow_journal.sql"))?;
                allow.execute(params![job.0.as_bytes(), journal_entries_max])?;
                endings = allowed(*journal_entries_max);
            }
            update(turn, job, Some(false))?;
            run_now(turn, job)?;
            RunAnswer::Acted
        }
        RunAct::Amend(amend) => {
            match amended(turn, job, amend, By::from(&order.by).because(order.why.as_str()))? {
                Ok(done) => {
                    endings = done;
                    RunAnswer::Acted
                }
                Err(answer) => answer,
            }
        }
    };
    if matches!(answer, RunAnswer::Acted | RunAnswer::Told) {
        keep(turn, job, &Act { endings, ..Act::of(order) })?;
        if let Some(said) = order.said(&before) {
            streams::say(turn, job, said)?;
        }
    }
    Ok(answer)
}

fn call_off(turn: &mut Turn<'_>, job: JobId, reason: &str) -> Result<RunAnswer> {
    let answers = cancel(turn, &[job], reason)?;
    Ok(match answers.first() {
        Some(CancelAnswer::Cancelled) => RunAnswer::Acted,
        Some(CancelAnswer::Requested) => RunAnswer::Told,
        Some(CancelAnswer::Finished) => RunAnswer::NotNow,
        Some(CancelAnswer::Unknown) | None => RunAnswer::Unknown,
    })
}

pub(super) fn is_finished(conn: &Connection, job: JobId) -> Result<bool> {
    let mut finished = conn.prepare_cached(include_str!("../sql/is_finished.sql"))?;
    Ok(finished.exists([job.0.as_bytes()])?)
}

/// Whether a run that has finished is dead, with nothing of it undone.
fn is_dead(conn: &Connection, job: JobId) -> Result<bool> {
    let mut dead = conn.prepare_cached(include_str!("../sql/is_dead_run.sql"))?;
    Ok(dead.exists([job.0.as_bytes()])?)
}

/// Changes the journal of a run that waits, or is dead with nothing undone, and lets it go on.
fn amended(
    turn: &mut Turn<'_>,
    job: JobId,
    amend: &Amend,
    by: By<'_>,
) -> Result<std::result::Result<Endings, RunAnswer>> {
    let (conn, now, id) = (turn.conn, turn.now, job.0.as_bytes());
    let is_dead = is_finished(conn, job)?;
    if !is_dead && waiting(conn, job)?.is_none() {
        return Ok(Err(RunAnswer::NotNow));
    }
    let mut amendment = match amend.decide(&entries(&journal(conn, job)?.0)?) {
        Ok(amendment) => amendment,
        Err(why) => return Ok(Err(RunAnswer::Refused(why))),
    };
    if is_dead && !revive(turn, job, by, None)? {
        return Ok(Err(RunAnswer::NotNow));
    }
    if let Some(Ending::Aside { number, .. }) = amendment.was {
        // What stands beside goes with its entry; who looks later finds it here.
        amendment.was = value(conn, job, number)?.map(|beside| Ending::Ok(beside.value));
    }
    if let Some(from) = amendment.cut {
        conn.prepare_cached(include_str!("../sql/cut_journal.sql"))?.execute(params![id, from])?;
        let mut delete = conn.prepare_cached(include_str!("../sql/delete_entry.sql"))?;
        for number in &amendment.dropped {
            delete.execute(params![id, number])?;
        }
        let mut unhear = conn.prepare_cached(include_str!("../sql/unhear_mail.sql"))?;
        for mail in &amendment.unheard {
            unhear.execute(params![id, mail])?;
        }
        cancel(turn, &amendment.orphans, FORGOTTEN)?;
    }
    let mut became = None;
    if let Some((number, entry)) = amendment.add {
        let mut insert = conn.prepare_cached(include_str!("../sql/insert_entry.sql"))?;
        insert.execute(params![id, number, now, written(&entry)?])?;
        became = run::became(entry);
    }
    // A pause lasts until somebody ends it.
    update(turn, job, None)?;
    if !find(conn, job)?.is_some_and(|(view, _)| view.paused) {
        run_now(turn, job)?;
    }
    Ok(Ok((amendment.was, became)))
}

/// Keeps an act.
pub(super) fn keep(turn: &Turn<'_>, job: JobId, act: &Act<'_>) -> Result<()> {
    let (was, became) = &act.endings;
    let (was, became) =
        (was.as_ref().map(written).transpose()?, became.as_ref().map(written).transpose()?);
    let Act { step, by, why, .. } = act;
    let (word, id, other) = (act.word.word(), job.0.as_bytes(), act.other);
    let other = other.as_ref().map(|other| other.0.as_bytes());
    let mut insert = turn.conn.prepare_cached(include_str!("../sql/insert_run_act.sql"))?;
    insert.execute(params![id, turn.now, word, step, by, why, was, became, other])?;
    Ok(())
}

fn update(turn: &Turn<'_>, job: JobId, is_paused: Option<bool>) -> Result<()> {
    let mut update = turn.conn.prepare_cached(include_str!("../sql/update_run.sql"))?;
    update.execute(params![job.0.as_bytes(), is_paused])?;
    Ok(())
}

/// Where a job waits for a slot or the clock, if it does.
fn waiting(conn: &Connection, job: JobId) -> Result<Option<(crate::sqlite::rows::Body, Waiting)>> {
    let Some(body) = ready::body(conn, job)? else { return Ok(None) };
    let found = ready::find(conn, &body, &ready::last_attempt(conn, job)?)?;
    Ok(found.map(|waiting| (body, waiting)))
}

/// Lets a job that waits wait for ever.
fn put_off(turn: &mut Turn<'_>, job: JobId) -> Result<()> {
    let Some((body, waiting)) = waiting(turn.conn, job)? else { return Ok(()) };
    ready::delete(turn, &body.job, waiting.run_at)?;
    let run_at = NEVER.as_microsecond();
    ready::insert(turn, &body.job, Waiting { run_at, ..waiting })?;
    ready::point(turn.conn, job, run_at)
}

/// What was done with a run from outside.
pub(in crate::sqlite) fn acts(conn: &Connection, job: JobId) -> Result<Vec<RunActView>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_run_acts.sql"))?;
    let mut rows = select.query([job.0.as_bytes()])?;
    let mut acts = Vec::new();
    while let Some(row) = rows.next()? {
        acts.push(RunActView {
            at: time_at(row, 0)?,
            act: act_of(&row.get::<_, String>(1)?)?,
            step: row.get(2)?,
            by: row.get(3)?,
            why: row.get(4)?,
            was: unwritten(row.get::<_, Option<String>>(5)?.as_deref())?,
            became: unwritten(row.get::<_, Option<String>>(6)?.as_deref())?,
            other: row.get::<_, Option<[u8; 16]>>(7)?.map(|id| JobId(Uuid::from_bytes(id))),
        });
    }
    Ok(acts)
}
