//! What is done with a whole flow: it begins, is called off, is tried again.

use rusqlite::{OptionalExtension, params};
use tidemill_core::FlowId;
use tidemill_core::flow::{FlowState, StepState};

use super::advance;
use crate::error::Result;
use crate::flow::{FlowAct, FlowAnswer};
use crate::sqlite::dead;
use crate::sqlite::rows::job_id;
use crate::sqlite::writer::Turn;

/// Lets a flow begin that was being built.
pub(in crate::sqlite) fn begin(turn: &mut Turn<'_>, id: FlowId) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    if board.flow.state != FlowState::Building {
        return Ok(FlowAnswer::Acted { jobs: 0 });
    }
    board.flow.state = FlowState::Running;
    advance::learn_all(turn, &mut board)?;
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
        FlowAct::Cancel { reason } => cancel(turn, id, reason),
        FlowAct::Retry { step, by } => retry(turn, id, step.as_deref(), by),
    }
}

/// Skips what waits, and notes that the rest is to be called off; that is done page by page.
fn cancel(turn: &mut Turn<'_>, id: FlowId, reason: &str) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    if board.flow.state.is_final() {
        let why = format!("it is {} already", board.flow.state.word());
        return Ok(FlowAnswer::NotNow { why });
    }
    advance::learn_all(turn, &mut board)?;
    board.call_off(reason);
    let skipped = board.steps().filter(|step| step.state == StepState::Skipped);
    let jobs = skipped.map(|step| step.jobs).sum();
    advance::carry_on(turn, &mut board)?;
    let (conn, flow) = (turn.conn, id.0.as_bytes());
    conn.prepare_cached(include_str!("../sql/call_off_flow.sql"))?.execute([flow])?;
    conn.prepare_cached(include_str!("../sql/set_flow_reason.sql"))?
        .execute(params![flow, reason])?;
    turn.news.tend = true;
    Ok(FlowAnswer::Acted { jobs })
}

/// Sends dead jobs on their way again; each tells the flow so.
fn retry(turn: &mut Turn<'_>, id: FlowId, step: Option<&str>, by: &str) -> Result<FlowAnswer> {
    if advance::board(turn, id)?.is_none() {
        return Ok(FlowAnswer::Unknown);
    }
    let flow = id.0.as_bytes();
    let mut number: Option<u32> = None;
    if let Some(step) = step {
        let mut select = turn.conn.prepare_cached(include_str!("../sql/select_step_number.sql"))?;
        number = select.query_one(params![flow, step], |row| row.get(0)).optional()?;
        if number.is_none() {
            return Ok(FlowAnswer::StepUnknown);
        }
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_dead_of_flow.sql"))?;
    let ids = select.query_map(params![flow, number, i64::MAX], |row| job_id(row, 0))?;
    let ids: Vec<_> = ids.collect::<rusqlite::Result<_>>()?;
    drop(select);
    let sent = dead::replay(turn, &ids, by, None)?;
    if sent.is_empty() {
        return Ok(FlowAnswer::NotNow { why: "none of its jobs is dead".to_owned() });
    }
    Ok(FlowAnswer::Acted { jobs: sent.len() as u64 })
}
