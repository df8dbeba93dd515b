//! What is done with a whole flow: it begins, is called off, is tried again.

use rusqlite::{OptionalExtension, params};
use tidemill_core::flow::{Arrival, FlowState};
use tidemill_core::webhook::{Event, Told};
use tidemill_core::{By, FlowId, Job, JobId, Payload};

use super::again::send_again;
use super::forget::is_over;
use super::rerun::rerun;
use super::{advance, carry_on, saga, tend};
use crate::error::Result;
use crate::flow::round::OUT_OF_TIME;
use crate::flow::{FORGOTTEN, FlowAct, FlowAnswer, NONE_DEAD};
use crate::full::Full;
use crate::sqlite::rows::{count, job_id, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{bound, dead, ready, webhooks};

/// Lets a flow begin that was being built. A queue that has no room for what is first in it is an answer.
pub(in crate::sqlite) fn begin_if_room(
    turn: &mut Turn<'_>,
    id: FlowId,
) -> Result<Result<FlowAnswer, Full>> {
    let board = advance::board(turn, id)?;
    if let Some(mut board) = board.filter(|board| board.flow.state == FlowState::Building) {
        advance::learn_all(turn, &mut board)?;
        // One that could never work is told so, and not to wait for room.
        if let Some(answer) = FlowAnswer::of_begin(&board) {
            return Ok(Ok(answer));
        }
        let at_once = board.flow.at_once.map_or(u64::MAX, u64::from);
        let mut select = turn.conn.prepare_cached(include_str!("../sql/count_first.sql"))?;
        let first = select.query_map([id.0.as_bytes()], |row| {
            Ok((row.get(0)?, at_once.min(count::<i64>(row, 1)?)))
        })?;
        let first = first.collect::<rusqlite::Result<_>>()?;
        drop(select);
        if let Some(full) = bound::lacking(turn, &first)? {
            return Ok(Err(full));
        }
    }
    begin(turn, id).map(Ok)
}

/// Lets a flow begin that was being built, or was just written.
pub(in crate::sqlite) fn begin(turn: &mut Turn<'_>, id: FlowId) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    advance::learn_all(turn, &mut board)?;
    if let Some(answer) = FlowAnswer::of_begin(&board) {
        return Ok(answer);
    }
    // What may wait only for so long does so from now on.
    let mut renew = turn.conn.prepare_cached(include_str!("../sql/renew_steps.sql"))?;
    renew.execute(params![turn.now, id.0.as_bytes(), None::<u32>])?;
    drop(renew);
    board.flow.state = FlowState::Running;
    board.begin();
    advance::carry_on(turn, &mut board)?;
    Ok(FlowAnswer::Acted { jobs: board.flow.jobs_open })
}

/// Acts on a flow.
pub(in crate::sqlite) fn change(
    turn: &mut Turn<'_>,
    id: FlowId,
    act: &FlowAct,
) -> Result<FlowAnswer> {
    match act {
        FlowAct::Retry { .. } | FlowAct::Rerun { .. } | FlowAct::Resolve { .. }
            if is_over(turn, id)? =>
        {
            Ok(FlowAnswer::NotNow { why: FORGOTTEN.to_owned() })
        }
        FlowAct::Cancel { reason } => cancel(turn, id, reason),
        FlowAct::Discard { reason } => discard(turn, id, reason),
        FlowAct::Retry { step, by, why } => {
            retry(turn, id, step.as_deref(), By { who: by, why: why.as_deref() })
        }
        FlowAct::Rerun { step } => rerun(turn, id, step),
        FlowAct::Resolve { step, output, by, why } => {
            resolve(turn, id, step, output.as_ref(), by, why)
        }
    }
}

/// Skips what waits, and notes that the rest is to be called off; that is done page by page. Answers how many jobs had
/// not ended.
fn cancel(turn: &mut Turn<'_>, id: FlowId, reason: &str) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    advance::learn_all(turn, &mut board)?;
    let jobs = board.jobs_left();
    let is_told = match board.pivot_under_way().map(|pivot| pivot.number) {
        Some(pivot) => {
            tend::call_off_step(turn, id, pivot)?;
            carry_on(turn)?;
            let Some(told) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
            board = told;
            advance::learn_all(turn, &mut board)?;
            true
        }
        None => false,
    };
    if let Some(why) = board.call_off_whole(reason, is_told) {
        return Ok(FlowAnswer::NotNow { why });
    }
    let (conn, flow) = (turn.conn, id.0.as_bytes());
    // First: nothing is let go any more of what is to be called off.
    conn.prepare_cached(include_str!("../sql/call_off_flow.sql"))?.execute([flow])?;
    conn.prepare_cached(include_str!("../sql/set_flow_reason.sql"))?
        .execute(params![flow, reason])?;
    advance::carry_on(turn, &mut board)?;
    turn.news.tend = true;
    Ok(FlowAnswer::Acted { jobs })
}

/// Calls a flow off, if it has not ended in time and still may be.
pub(super) fn expire(turn: &mut Turn<'_>, id: FlowId) -> Result<FlowAnswer> {
    let mut late = turn.conn.prepare_cached(include_str!("../sql/is_expired_flow.sql"))?;
    if !late.exists(params![turn.now, id.0.as_bytes()])? {
        return Ok(FlowAnswer::Unknown);
    }
    drop(late);
    cancel(turn, id, OUT_OF_TIME)
}

/// Calls off what has not begun.
fn discard(turn: &mut Turn<'_>, id: FlowId, reason: &str) -> Result<FlowAnswer> {
    if let Some(mut board) = advance::board(turn, id)? {
        advance::learn_all(turn, &mut board)?;
        if let Some(answer) = FlowAnswer::of_discard(&board) {
            return Ok(answer);
        }
    }
    cancel(turn, id, reason)
}

/// Sends dead jobs on their way again, and what was called off of a step that is named; each tells the flow so. If
/// the step that is named ended well, or was called off before it ran, the flow goes on there.
fn retry(turn: &mut Turn<'_>, id: FlowId, step: Option<&str>, by: By<'_>) -> Result<FlowAnswer> {
    if let Some(step) = step
        && let Some(mut board) = advance::board(turn, id)?
    {
        advance::learn_all(turn, &mut board)?;
        if let Some(step) = board.called_off_at(step) {
            saga::bury_called_off(turn, id, step, false)?;
        }
    }
    let ids = match dead_of(turn, id, step)? {
        Ok(ids) => ids,
        Err(answer) => return Ok(answer),
    };
    let flow = advance::board(turn, id)?.map(|board| board.flow.state);
    if flow == Some(FlowState::Stuck) && by.why.is_none() {
        return Ok(FlowAnswer::WhyMissing);
    }
    let jobs = send_again(turn, id, &ids, by)?;
    if jobs > 0 {
        return Ok(FlowAnswer::Acted { jobs });
    }
    Ok(match step.map(|step| go_on(turn, id, step)).transpose()?.flatten() {
        Some(jobs) => FlowAnswer::Acted { jobs },
        None => FlowAnswer::NotNow { why: NONE_DEAD.to_owned() },
    })
}

/// Goes on where nothing but a call-off stopped a flow; answers how many jobs wait again.
fn go_on(turn: &mut Turn<'_>, id: FlowId, step: &str) -> Result<Option<u64>> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(None) };
    advance::learn_all(turn, &mut board)?;
    let jobs = board.go_on(step);
    if jobs.is_some() {
        advance::carry_on(turn, &mut board)?;
    }
    Ok(jobs)
}

/// Lets dead jobs of a step count as done, and tells the flow.
fn resolve(
    turn: &mut Turn<'_>,
    id: FlowId,
    step: &str,
    output: Option<&Payload>,
    by: &str,
    why: &str,
) -> Result<FlowAnswer> {
    let ids = match dead_of(turn, id, Some(step))? {
        Ok(ids) => ids,
        Err(answer) => return Ok(answer),
    };
    let Some((_, number)) = ids.iter().find_map(|id| member(turn, *id).transpose()).transpose()?
    else {
        return Ok(FlowAnswer::NotNow { why: "none of its jobs is dead".to_owned() });
    };
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    advance::learn_all(turn, &mut board)?;
    if let Some(why) = board.may_not_resolve(number) {
        return Ok(FlowAnswer::NotNow { why });
    }
    let mut jobs = 0;
    for dead in ids {
        // One after the other: there may be very many, and each may be large.
        let Some((job, step)) = member(turn, dead)? else { continue };
        // First, while it is dead: those who stand in line behind it go on.
        dead::note(turn, &[job.id], by, &format!("marked done: {why}"), None, Some(true))?;
        let (conn, output) = (turn.conn, output.map(Payload::as_str));
        let mut update = conn.prepare_cached(include_str!("../sql/resolve_dead.sql"))?;
        let row = params![job.id.0.as_bytes(), output];
        let attempt = update.query_one(row, |row| row.get(0)).optional()?;
        let (event, output, at) = (Event::Done, output.or(Some("null")), time(turn.now));
        if let Some(attempt) = attempt {
            webhooks::tell(
                turn,
                &Told { job: &job, event, attempt, output, error: None, code: None, at },
            )?;
        }
        turn.news.arrive(id, Arrival { step, ok: 1, failed: -1 });
        jobs += 1;
    }
    Ok(FlowAnswer::Acted { jobs })
}

/// A job of a flow, with the number of its step.
fn member(turn: &Turn<'_>, id: JobId) -> Result<Option<(Job, u32)>> {
    let job = ready::body(turn.conn, id)?.map(|body| body.job);
    let step = job.as_ref().and_then(|job| Some(job.options.flow.as_ref()?.step));
    Ok(job.zip(step))
}

/// The dead jobs of a flow, or of one of its steps; or why there can be none.
fn dead_of(
    turn: &Turn<'_>,
    id: FlowId,
    step: Option<&str>,
) -> Result<std::result::Result<Vec<JobId>, FlowAnswer>> {
    if advance::board(turn, id)?.is_none() {
        return Ok(Err(FlowAnswer::Unknown));
    }
    let flow = id.0.as_bytes();
    let mut number: Option<u32> = None;
    if let Some(step) = step {
        let mut select = turn.conn.prepare_cached(include_str!("../sql/select_step_number.sql"))?;
        number = select.query_one(params![flow, step], |row| row.get(0)).optional()?;
        if number.is_none() {
            return Ok(Err(FlowAnswer::StepUnknown));
        }
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_dead_of_flow.sql"))?;
    let ids = select.query_map(params![flow, number, i64::MAX], |row| job_id(row, 0))?;
    Ok(Ok(ids.collect::<rusqlite::Result<_>>()?))
}
