//! What flows wait for and no job's end does, a page of each at a time: steps that are opened bit by bit, jobs
//! that are called off, joins and flows that are late, flows whose time is over, and arrivals that nobody counted.

use rusqlite::{OptionalExtension, params};
use tidemill_core::flow::Arrival;
use tidemill_core::{FlowId, JobId};

use super::advance::{self, PAGE_JOBS};
use super::{act, carry_on, rows};
use crate::error::Result;
use crate::flow::{FlowAct, FlowAnswer};
use crate::sqlite::rows::job_id;
use crate::sqlite::writer::Turn;
use crate::sqlite::{cancel, sweep};

/// Flows that are looked at in one call.
const PAGE_FLOWS: i64 = 100;
/// Jobs that are called off, or forgotten, in one call.
const PAGE_ENDS: i64 = 1000;

/// Does a page of everything; `true` when there is more.
pub(in crate::sqlite) fn tend(turn: &mut Turn<'_>) -> Result<bool> {
    let arrived = flows(turn, include_str!("../sql/select_arrived.sql"), None)?;
    for flow in &arrived {
        let arrivals = take_arrivals(turn, *flow)?;
        advance::advance(turn, *flow, &arrivals)?;
    }
    let waiting = flows(turn, include_str!("../sql/select_flows_to_tend.sql"), None)?;
    let mut has_more = arrived.len().max(waiting.len()) as i64 == PAGE_FLOWS;
    for flow in waiting {
        has_more |= tend_one(turn, flow)?;
    }
    late(turn)?;
    has_more |= expire(turn)?;
    let now = Some(turn.now);
    for flow in flows(turn, include_str!("../sql/select_forgettable_flows.sql"), now)? {
        has_more |= forget(turn, flow)?;
    }
    Ok(has_more)
}

fn flows(turn: &Turn<'_>, sql: &str, now: Option<i64>) -> Result<Vec<FlowId>> {
    let mut select = turn.conn.prepare_cached(sql)?;
    let found = match now {
        Some(now) => select.query_map([now, PAGE_FLOWS], |row| rows::flow_id(row, 0))?.collect(),
        None => select.query_map([PAGE_FLOWS], |row| rows::flow_id(row, 0))?.collect(),
    };
    let found: rusqlite::Result<_> = found;
    Ok(found?)
}

/// Calls off a page of the flows whose time is over; `true`: there were some. Sagas at their point of no return may
/// stay: they are passed over, so that no other waits behind them.
fn expire(turn: &mut Turn<'_>) -> Result<bool> {
    let mut ended = 0;
    let mut last: Option<(FlowId, i64)> = None;
    loop {
        let mut select =
            turn.conn.prepare_cached(include_str!("../sql/select_expired_flows.sql"))?;
        let (id, at) = last.unzip();
        let behind = params![turn.now, PAGE_FLOWS, at, id.map(|id| *id.0.as_bytes())];
        let page = select.query_map(behind, |row| Ok((rows::flow_id(row, 0)?, row.get(1)?)))?;
        let page: Vec<(FlowId, i64)> = page.collect::<rusqlite::Result<_>>()?;
        drop(select);
        for (flow, _) in &page {
            let reason = "it did not finish within its deadline".to_owned();
            let answer = act::change(turn, *flow, &FlowAct::Cancel { reason })?;
            ended += i64::from(matches!(answer, FlowAnswer::Acted { .. }));
        }
        last = page.last().copied();
        if ended >= PAGE_FLOWS || (page.len() as i64) < PAGE_FLOWS {
            return Ok(ended > 0);
        }
    }
}

fn take_arrivals(turn: &Turn<'_>, flow: FlowId) -> Result<Vec<Arrival>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/take_arrivals.sql"))?;
    let arrivals = select.query_map([flow.0.as_bytes()], |row| {
        let ok = row.get::<_, i64>(1)?.max(0).unsigned_abs();
        Ok(Arrival { step: row.get(0)?, ok, failed: row.get(2)? })
    })?;
    let arrivals: Vec<Arrival> = arrivals.collect::<rusqlite::Result<_>>()?;
    let mut delete = turn.conn.prepare_cached(include_str!("../sql/delete_arrivals.sql"))?;
    delete.execute([flow.0.as_bytes()])?;
    Ok(arrivals)
}

/// Opens the next page of each of a flow's steps, and calls off what is to be; `true`: there is more.
fn tend_one(turn: &mut Turn<'_>, flow: FlowId) -> Result<bool> {
    let has_more = open_page(turn, flow)?;
    let mut select =
        turn.conn.prepare_cached(include_str!("../sql/select_steps_to_call_off.sql"))?;
    let steps = select.query_map([flow.0.as_bytes()], |row| row.get(0))?;
    let steps: Vec<u32> = steps.collect::<rusqlite::Result<_>>()?;
    drop(select);
    for step in steps {
        call_off_step(turn, flow, step)?;
    }
    // What was called off is counted before anything else is decided: a step that is late may be one of these.
    carry_on(turn)?;
    if !has_more {
        let mut untend = turn.conn.prepare_cached(include_str!("../sql/untend_flow.sql"))?;
        untend.execute([flow.0.as_bytes()])?;
    }
    Ok(has_more)
}

fn open_page(turn: &mut Turn<'_>, flow: FlowId) -> Result<bool> {
    let Some(mut board) = advance::board(turn, flow)? else { return Ok(false) };
    if board.flow.at_once.is_some() {
        // As many as may be; as jobs of it end, others are let go.
        advance::carry_on(turn, &mut board)?;
        return Ok(false);
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_opening.sql"))?;
    let steps = select.query_map([flow.0.as_bytes()], |row| row.get(0))?;
    let steps: Vec<u32> = steps.collect::<rusqlite::Result<_>>()?;
    drop(select);
    for step in &steps {
        advance::learn_step(turn, &mut board, *step)?;
        advance::open(turn, &mut board, *step, PAGE_JOBS)?;
    }
    if !steps.is_empty() {
        advance::carry_on(turn, &mut board)?;
    }
    Ok(board.wants_tending())
}

/// Calls off all jobs of a step that have not finished.
pub(super) fn call_off_step(turn: &mut Turn<'_>, flow: FlowId, step: u32) -> Result<()> {
    let mut after: Option<JobId> = None;
    loop {
        let sql = include_str!("../sql/select_unfinished_of_step.sql");
        let mut select = turn.conn.prepare_cached(sql)?;
        let last = after.as_ref().map(|id| id.0.as_bytes());
        let page = params![flow.0.as_bytes(), step, last, PAGE_ENDS];
        let ids = select.query_map(page, |row| job_id(row, 0))?;
        let ids: Vec<JobId> = ids.collect::<rusqlite::Result<_>>()?;
        drop(select);
        let Some(last) = ids.last() else { break };
        after = Some(*last);
        cancel::cancel(turn, &ids, "called off with its flow")?;
    }
    let mut done = turn.conn.prepare_cached(include_str!("../sql/called_off_step.sql"))?;
    done.execute(params![flow.0.as_bytes(), step])?;
    Ok(())
}

/// Decides joins that have waited for as long as they may.
fn late(turn: &mut Turn<'_>) -> Result<()> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_late_steps.sql"))?;
    let any = params![turn.now, PAGE_FLOWS, None::<[u8; 16]>, None::<u32>];
    let late = select.query_map(any, |row| Ok((rows::flow_id(row, 0)?, row.get(1)?)))?;
    let late: Vec<(FlowId, u32)> = late.collect::<rusqlite::Result<_>>()?;
    for (flow, step) in late {
        // One that was decided before it may have told it something, or have decided it.
        let this = params![turn.now, 1, flow.0.as_bytes(), step];
        let left = select.query_one(this, |row| row.get::<_, i64>(2)).optional()?;
        let (Some(left), Some(mut board)) = (left, advance::board(turn, flow)?) else { continue };
        advance::learn_step(turn, &mut board, step)?;
        board.overdue(step, left.unsigned_abs());
        advance::carry_on(turn, &mut board)?;
    }
    Ok(())
}

/// Forgets a page of a flow's jobs and, with the last, the flow; `true`: there are more.
fn forget(turn: &mut Turn<'_>, flow: FlowId) -> Result<bool> {
    let id = flow.0.as_bytes();
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_jobs_of_flow.sql"))?;
    let ids = select.query_map(params![id, PAGE_ENDS], |row| job_id(row, 0))?;
    let ids: Vec<JobId> = ids.collect::<rusqlite::Result<_>>()?;
    drop(select);
    if !ids.is_empty() {
        sweep::purge(turn, &ids)?;
        return Ok(true);
    }
    for sql in [
        include_str!("../sql/delete_flow_steps.sql"),
        include_str!("../sql/delete_flow_edges.sql"),
        include_str!("../sql/delete_arrivals.sql"),
        include_str!("../sql/delete_parts.sql"),
        include_str!("../sql/delete_flow.sql"),
    ] {
        turn.conn.prepare_cached(sql)?.execute([id])?;
    }
    Ok(false)
}
