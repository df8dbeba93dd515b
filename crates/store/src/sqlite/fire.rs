//! Fires slots: the step to the next slot, the jobs and the history, in one transaction.
//!
//! Jobs go in as any others do. Refuses to fire what was computed of another version, what another
//! node has fired, and what has not come yet by the store's clock.

use rusqlite::{OptionalExtension, Row, params};
use tidemill_core::JobId;
use tidemill_core::schedule::Overlap;

use crate::error::Result;
use crate::request::Receipt;
use crate::schedule::{
    CALLED_OFF, FireAnswer, FireRequest, Fired, HISTORY_MAX, LastJob, SlotJobs, What,
};
use crate::sqlite::cancel;
use crate::sqlite::enqueue::enqueue;
use crate::sqlite::rows::job_id_opt;
use crate::sqlite::writer::Turn;

/// Fires slots, or does nothing.
pub(super) fn fire(turn: &mut Turn<'_>, ask: &FireRequest) -> Result<FireAnswer> {
    let Some(LastJob(mut last_job)) = begin(turn, ask)? else { return Ok(FireAnswer::Changed) };
    if let Some(missed) = ask.missed {
        let last = (missed.last > missed.first).then_some(missed.last.as_microsecond());
        turn.conn.prepare_cached(include_str!("sql/insert_fire.sql"))?.execute(params![
            turn.now,
            ask.name,
            missed.first.as_microsecond(),
            last,
            missed.slots as i64,
            What::Missed.number(),
            ask.how.number(),
            None::<&[u8]>,
            0
        ])?;
    }
    let mut answers = Vec::with_capacity(ask.slots.len());
    for slot in &ask.slots {
        let fired = fire_slot(turn, ask, slot, last_job)?;
        if fired.what == What::Fired && ask.how.minds_overlap() {
            last_job = fired.job;
        }
        write(turn, ask, &fired)?;
        answers.push(fired);
    }
    end(turn, ask, last_job)?;
    Ok(FireAnswer::Done(answers))
}

/// Steps to the next slot, if it is to be; answers the last job. `None`: it is not as it was.
fn begin(turn: &Turn<'_>, ask: &FireRequest) -> Result<Option<LastJob>> {
    let last_job = |row: &Row<'_>| job_id_opt(row, 0).map(LastJob);
    let Some(step) = ask.advance else {
        let mut lock = turn.conn.prepare_cached(include_str!("sql/lock_schedule.sql"))?;
        return Ok(lock.query_one(params![ask.name, ask.version], last_job).optional()?);
    };
    let (from, to) = (step.from.as_microsecond(), step.to.map(jiff::Timestamp::as_microsecond));
    let mut advance = turn.conn.prepare_cached(include_str!("sql/advance_schedule.sql"))?;
    let step = params![turn.now, ask.name, ask.version, from, to];
    Ok(advance.query_one(step, last_job).optional()?)
}

fn fire_slot(
    turn: &mut Turn<'_>,
    ask: &FireRequest,
    slot: &SlotJobs,
    last_job: Option<JobId>,
) -> Result<Fired> {
    let nothing = |what| Fired { slot: slot.slot, what, job: None, jobs: 0 };
    if ask.how.is_once() {
        let mut fired = turn.conn.prepare_cached(include_str!("sql/select_fired.sql"))?;
        if fired.exists(params![ask.name, slot.slot.as_microsecond()])? {
            return Ok(nothing(What::Known));
        }
    }
    if let Some(last) = last_job.filter(|_| ask.how.minds_overlap()) {
        let mut unfinished = turn.conn.prepare_cached(include_str!("sql/is_unfinished.sql"))?;
        match ask.overlap {
            Overlap::Skip if unfinished.exists([last.0.as_bytes()])? => {
                return Ok(Fired { job: Some(last), ..nothing(What::Skipped) });
            }
            Overlap::CancelPrevious => {
                cancel::cancel(turn, &[last], CALLED_OFF)?;
            }
            Overlap::Allow | Overlap::Skip | Overlap::QueueOne => {}
        }
    }
    let receipts = enqueue(turn, &slot.jobs)?;
    let jobs = receipts.iter().filter(|receipt| receipt.is_new()).count() as u32;
    let job = receipts.first().and_then(Receipt::known);
    Ok(Fired { slot: slot.slot, what: What::of(&receipts, slot, ask.overlap), job, jobs })
}

fn write(turn: &Turn<'_>, ask: &FireRequest, fired: &Fired) -> Result<()> {
    if fired.what == What::Known {
        return Ok(());
    }
    turn.conn.prepare_cached(include_str!("sql/insert_fire.sql"))?.execute(params![
        turn.now,
        ask.name,
        fired.slot.as_microsecond(),
        None::<i64>,
        1,
        fired.what.number(),
        ask.how.number(),
        fired.job.as_ref().map(|job| job.0.as_bytes()),
        fired.jobs
    ])?;
    Ok(())
}

fn end(turn: &Turn<'_>, ask: &FireRequest, last_job: Option<JobId>) -> Result<()> {
    let conn = turn.conn;
    let last_slot = ask.last_slot().map(jiff::Timestamp::as_microsecond);
    let last_job = last_job.as_ref().map(|job| job.0.as_bytes());
    let mut point = conn.prepare_cached(include_str!("sql/point_schedule.sql"))?;
    point.execute(params![ask.name, last_slot, last_job])?;
    conn.prepare_cached(include_str!("sql/point_forgotten.sql"))?
        .execute(params![ask.name, HISTORY_MAX as i64])?;
    let mut trim = conn.prepare_cached(include_str!("sql/trim_fires.sql"))?;
    trim.execute(params![ask.name, HISTORY_MAX as i64])?;
    Ok(())
}
