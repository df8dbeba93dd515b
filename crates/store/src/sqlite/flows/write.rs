//! Writes flows, all of one or nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::params;
use tidemill_core::flow::{Board, Changes, Edge, FlowState, Plan, PlannedJob, StepRow};
use tidemill_core::{FlowId, NewJob};

use super::{act, advance};
use crate::error::{Error, Result};
use crate::flow::Start;
use crate::full::Full;
use crate::run::Debt;
use crate::sqlite::rows::{time, write_options};
use crate::sqlite::writer::Turn;
use crate::sqlite::{bound, ready};

/// Writes a flow and, unless it is to be built further, lets it begin. A queue that has no room for it is an answer,
/// and nothing is written.
pub(in crate::sqlite) fn start(
    turn: &mut Turn<'_>,
    plan: &Plan,
    when: Start,
) -> Result<Result<bool, Full>> {
    if when == Start::IfRoom
        && let Some(full) = bound::lacking(turn, &plan.first_jobs())?
        && advance::board(turn, plan.id)?.is_none()
    {
        return Ok(Err(full));
    }
    start_anyhow(turn, plan, when).map(Ok)
}

fn start_anyhow(turn: &mut Turn<'_>, plan: &Plan, when: Start) -> Result<bool> {
    let (conn, now, flow) = (turn.conn, turn.now, plan.id.0.as_bytes());
    if let Start::Pays(Debt { job, number }) = when {
        let mut pay = conn.prepare_cached(include_str!("../sql/delete_debt.sql"))?;
        if pay.execute(params![job.0.as_bytes(), number])? == 0 {
            return Ok(false);
        }
    }
    let kept = |default: u64| millis(plan.options.retain_ms.unwrap_or(default));
    let begun = Begun::of(plan, when, time(now));
    let state = begun.as_ref().map_or(FlowState::Building, |begun| begun.board.flow.state);
    let written = conn.prepare_cached(include_str!("../sql/write_flow.sql"))?.execute(params![
        flow,
        plan.name,
        state.number(),
        plan.options.at_once,
        now,
        plan.options.finish_within_ms.map(millis),
        kept(plan.retention.finished_ms),
        kept(plan.retention.dead_ms),
        plan.options.saga
    ])?;
    if written == 0 {
        return Ok(false);
    }
    for step in &plan.steps {
        let step = begun.as_ref().and_then(|begun| begun.board.step(step.number)).unwrap_or(step);
        insert_step(turn, plan.id, step)?;
    }
    for edge in &plan.edges {
        insert_edge(turn, plan.id, edge)?;
    }
    let mut written = 0;
    for PlannedJob { step, job } in &plan.jobs {
        written += write_job(turn, plan.id, *step, job)?;
        if begun.as_ref().is_some_and(|begun| begun.open.contains(step)) {
            ready::insert_new(turn, job)?;
        }
    }
    if written != plan.jobs.len() as u64 {
        return Err(Error::IdTaken);
    }
    if when != Start::Later && begun.is_none() {
        act::begin(turn, plan.id)?;
    }
    Ok(true)
}

/// A flow that has begun before it is written, so that each row of it is written once.
struct Begun {
    board: Board,
    /// Steps that are open.
    open: BTreeSet<u32>,
}

impl Begun {
    /// Nothing, if more is to be done for its first steps than to let their jobs go.
    fn of(plan: &Plan, when: Start, now: Timestamp) -> Option<Self> {
        if when == Start::Later || plan.options.at_once.is_some() {
            return None;
        }
        let mut board = Board::of_plan(plan, now);
        board.begin();
        if !board.missing().is_empty() {
            return None;
        }
        let mut changes = board.take_changes();
        let open = std::mem::take(&mut changes.open);
        let is_plain = |step: &u32| {
            let row = board.step(*step);
            row.is_some_and(|row| !row.slow && row.jobs <= advance::OPEN_AT_ONCE_MAX)
        };
        if changes != Changes::default() || !open.iter().all(is_plain) {
            return None;
        }
        for step in &open {
            board.opened(*step);
        }
        let open = open.into_iter().collect();
        (!board.may_be_over()).then_some(Self { board, open })
    }
}

/// Writes a step.
pub(super) fn insert_step(turn: &Turn<'_>, flow: FlowId, step: &StepRow) -> Result<()> {
    let join = serde_json::to_string(&step.join).map_err(|e| unwritable(&e))?;
    let undo = step.undo.as_ref().map(serde_json::to_string).transpose();
    let undo = undo.map_err(|e| unwritable(&e))?;
    let late_at = step.join.within_ms.map(|ms| turn.now.saturating_add(micros(ms)));
    turn.conn.prepare_cached(include_str!("../sql/insert_step.sql"))?.execute(params![
        flow.0.as_bytes(),
        step.number,
        step.name,
        step.state.number(),
        millis(step.jobs),
        millis(step.left),
        millis(step.ok),
        millis(step.failed),
        join,
        step.parents_left,
        step.came,
        millis(step.met),
        millis(step.missed),
        step.reason,
        late_at,
        undo,
        step.undoes,
        step.pivot,
        step.grown,
        step.slow,
        step.early,
        turn.now,
        step.alarms,
        step.lost.number(),
        step.refused,
        step.guarded
    ])?;
    Ok(())
}

/// Writes an edge.
pub(super) fn insert_edge(turn: &Turn<'_>, flow: FlowId, edge: &Edge) -> Result<()> {
    let mut insert = turn.conn.prepare_cached(include_str!("../sql/insert_edge.sql"))?;
    let Edge { from, to, on, when, .. } = edge;
    insert.execute(params![flow.0.as_bytes(), from, to, on.number(), when])?;
    Ok(())
}

pub(super) fn write_job(turn: &Turn<'_>, flow: FlowId, step: u32, job: &NewJob) -> Result<u64> {
    let mut insert = turn.conn.prepare_cached(include_str!("../sql/write_flow_jobs.sql"))?;
    let written = insert.execute(params![
        job.id.0.as_bytes(),
        job.kind,
        job.queue,
        job.priority.band(),
        job.tenant,
        job.key,
        job.payload.as_str(),
        write_options(&job.options),
        turn.now,
        flow.0.as_bytes(),
        step
    ])?;
    Ok(written as u64)
}

pub(super) fn millis(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn micros(ms: u64) -> i64 {
    millis(ms.saturating_mul(1000))
}

fn unwritable(error: &serde_json::Error) -> Error {
    Error::Database { reason: format!("the flow cannot be written as JSON: {error}") }
}
