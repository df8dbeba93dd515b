//! Carries flows on: what has ended is counted, joins are decided, steps are opened, in the turn's transaction.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, params};
use tidemill_core::flow::{Arrival, Board, Changes, Edge, FlowState, StepRow};
use tidemill_core::{Due, FlowId, JobId, Payload};

use super::write::millis;
use super::{rows, saga};
use crate::error::Result;
use crate::sqlite::rows::{Body, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{lines, ready};

/// A step with more jobs than this is opened bit by bit, off the path of whoever ended the one before it.
pub(super) const OPEN_AT_ONCE_MAX: u64 = 1000;
/// Jobs that are let go in one transaction.
pub(super) const PAGE_JOBS: u64 = 10_000;

/// Counts what has ended of a flow, and carries it on.
pub(super) fn advance(turn: &mut Turn<'_>, id: FlowId, arrivals: &[Arrival]) -> Result<()> {
    let Some(mut board) = board(turn, id)? else { return Ok(()) };
    if board.flow.saga || arrivals.iter().any(|arrival| arrival.failed < 0) {
        learn_all(turn, &mut board)?;
    } else {
        for arrival in arrivals {
            learn_ahead(turn, &mut board, arrival.step)?;
        }
    }
    board.arrive(arrivals);
    carry_on(turn, &mut board)
}

/// A board of this flow, if it is there.
pub(super) fn board(turn: &Turn<'_>, id: FlowId) -> Result<Option<Board>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/lock_flows.sql"))?;
    Ok(select.query_one([id.0.as_bytes()], rows::flow).optional()?.map(Board::new))
}

/// Puts all steps and edges of the flow on its board.
pub(super) fn learn_all(turn: &Turn<'_>, board: &mut Board) -> Result<()> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_steps.sql"))?;
    let all = params![board.flow.id.0.as_bytes(), None::<u32>];
    let steps: Vec<StepRow> =
        select.query_map(all, rows::step)?.collect::<rusqlite::Result<_>>()?;
    let mut leaving: BTreeMap<u32, Vec<Edge>> =
        steps.iter().map(|step| (step.number, Vec::new())).collect();
    board.learn_steps(steps);
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_edges.sql"))?;
    for edge in select.query_map([board.flow.id.0.as_bytes()], rows::edge)? {
        let edge = edge?;
        leaving.entry(edge.from).or_default().push(edge);
    }
    for (from, edges) in leaving {
        learn_edges(turn, board, from, edges)?;
    }
    Ok(())
}

pub(super) fn learn_step(turn: &Turn<'_>, board: &mut Board, number: u32) -> Result<()> {
    if board.step(number).is_some() {
        return Ok(());
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_steps.sql"))?;
    let found = select.query_one(params![board.flow.id.0.as_bytes(), number], rows::step);
    board.learn_steps(found.optional()?);
    Ok(())
}

/// Puts a step on the board, with those that come after it.
fn learn_ahead(turn: &Turn<'_>, board: &mut Board, number: u32) -> Result<()> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_ahead.sql"))?;
    let ahead = select.query_map(params![board.flow.id.0.as_bytes(), number], |row| {
        Ok((rows::step(row)?, rows::edge_ahead(row)?))
    })?;
    let mut edges = Vec::new();
    for row in ahead {
        let (step, edge) = row?;
        board.learn_steps([step]);
        edges.extend(edge);
    }
    learn_edges(turn, board, number, edges)
}

/// Tells the edges that leave a step, with what their expressions judge.
fn learn_edges(turn: &Turn<'_>, board: &mut Board, from: u32, edges: Vec<Edge>) -> Result<()> {
    let flow = *board.flow.id.0.as_bytes();
    if edges.iter().any(|edge| edge.when.is_some())
        && board.step(from).is_some_and(|step| step.jobs == 1)
    {
        let mut output =
            turn.conn.prepare_cached(include_str!("../sql/select_step_outputs.sql"))?;
        let found: Option<Option<String>> =
            output.query_one(params![flow, from], |row| row.get(0)).optional()?;
        if let Some(output) = found.flatten() {
            let output = turn.keys.decrypt(&output, None)?.into_owned();
            board.learn_output(from, Payload::trusted(output));
        }
    }
    board.learn_edges(from, edges);
    Ok(())
}

/// Decides all that can be decided, and writes it.
pub(super) fn carry_on(turn: &mut Turn<'_>, board: &mut Board) -> Result<()> {
    loop {
        loop {
            let missing = board.missing();
            if missing.is_empty() {
                break;
            }
            for from in missing {
                learn_ahead(turn, board, from)?;
            }
        }
        let changes = board.take_changes();
        if !changes.call_off.is_empty() {
            // What is called off is found by where steps stand: one that had ended may be open again.
            write_steps(turn, board)?;
        }
        write_changes(turn, board, &changes)?;
        let opened = open_some(turn, board, &changes)?;
        if !opened && !saga::go_on(turn, board)? {
            break;
        }
    }
    write_steps(turn, board)?;
    write_flow(turn, board)
}

/// Lets jobs go, as far as may be done at once; `false`: there was nothing to let go.
fn open_some(turn: &mut Turn<'_>, board: &mut Board, changes: &Changes) -> Result<bool> {
    let Some(at_once) = board.flow.at_once else {
        let is_small =
            |step: &&u32| board.step(**step).is_some_and(|step| step.jobs <= OPEN_AT_ONCE_MAX);
        let small: Vec<u32> = changes.open.iter().filter(is_small).copied().collect();
        for step in &small {
            open_whole(turn, board, *step)?;
        }
        return Ok(!small.is_empty());
    };
    let room = u64::from(at_once).saturating_sub(board.flow.jobs_open);
    if room == 0 {
        return Ok(false);
    }
    // It is asked for those that are being opened.
    write_steps(turn, board)?;
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_opening.sql"))?;
    let next: Option<u32> =
        select.query_map([board.flow.id.0.as_bytes()], |row| row.get(0))?.next().transpose()?;
    let Some(next) = next else { return Ok(false) };
    learn_step(turn, board, next)?;
    open(turn, board, next, room.min(PAGE_JOBS))?;
    Ok(true)
}

/// Lets all jobs of a step go, by one statement if none of them has to wait or has ended.
fn open_whole(turn: &mut Turn<'_>, board: &mut Board, step: u32) -> Result<()> {
    if board.step(step).is_none_or(|step| step.slow || step.left < step.jobs) {
        return open(turn, board, step, PAGE_JOBS);
    }
    board.flow.jobs_open += let_go_whole(turn, board.flow.id, step)?;
    board.opened(step);
    Ok(())
}

/// Lets all jobs of a step go by one statement; answers how many.
pub(super) fn let_go_whole(turn: &mut Turn<'_>, flow: FlowId, step: u32) -> Result<u64> {
    let mut insert = turn.conn.prepare_cached(include_str!("../sql/insert_ready_of_step.sql"))?;
    let mut inserted = insert.query(params![flow.0.as_bytes(), step, turn.now])?;
    let mut number = 0;
    while let Some(row) = inserted.next()? {
        let (queue, tenant) = (text(row, 0)?, text(row, 1)?);
        turn.depths.came(queue, Some(tenant).filter(|tenant| !tenant.is_empty()), 1);
        turn.news.ready(queue);
        number += 1;
    }
    Ok(number)
}

fn text<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<&'a str> {
    Ok(row.get_ref(column)?.as_str()?)
}

/// Lets the next jobs of a step go, one by one.
pub(super) fn open(turn: &mut Turn<'_>, board: &mut Board, step: u32, room: u64) -> Result<()> {
    let flow = *board.flow.id.0.as_bytes();
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_to_open.sql"))?;
    let bodies = select.query_map(params![flow, step, millis(room)], Body::of_row)?;
    let bodies: Vec<Body> = bodies.collect::<rusqlite::Result<_>>()?;
    drop(select);
    for body in &bodies {
        let_go(turn, body)?;
        board.flow.jobs_open += 1;
    }
    let is_all = match bodies.last().map(|body| body.job.id) {
        Some(JobId(last)) => {
            let mut set = turn.conn.prepare_cached(include_str!("../sql/set_opened.sql"))?;
            set.query_one(params![flow, step, last.as_bytes()], |row| row.get(0))?
        }
        None => true,
    };
    if is_all {
        board.opened(step);
    }
    Ok(())
}

/// A job may start, when its own time has come and it is its turn in its line.
fn let_go(turn: &mut Turn<'_>, body: &Body) -> Result<()> {
    // One that comes again has waited.
    let is_first = body.job.options.replayed_at.is_none();
    let place = body.job.options.flow.as_ref().filter(|_| is_first);
    let due = place.and_then(|place| place.due).unwrap_or(Due::Now);
    let run_at = due.resolve(time(turn.now)).as_microsecond();
    ready::point(turn.conn, body.job.id, run_at)?;
    ready::point_job(turn.conn, body.job.id, run_at)?;
    if body.job.line().is_some() {
        return lines::start(turn, &body.job);
    }
    ready::insert(turn, &body.job, ready::Waiting { run_at, spent: 0, lost: 0 })?;
    turn.news.ready(&body.job.queue);
    Ok(())
}

fn write_steps(turn: &Turn<'_>, board: &mut Board) -> Result<()> {
    let flow = *board.flow.id.0.as_bytes();
    let mut update = turn.conn.prepare_cached(include_str!("../sql/update_steps.sql"))?;
    for step in board.take_touched() {
        update.execute(params![
            turn.now,
            flow,
            step.number,
            step.state.number(),
            millis(step.left),
            millis(step.ok),
            millis(step.failed),
            step.parents_left,
            step.came,
            millis(step.met),
            millis(step.missed),
            step.reason,
            step.alarms,
            step.lost.number(),
            step.refused
        ])?;
    }
    Ok(())
}

fn write_changes(turn: &Turn<'_>, board: &Board, changes: &Changes) -> Result<()> {
    let (conn, flow) = (turn.conn, *board.flow.id.0.as_bytes());
    for step in &changes.revive {
        let mut revive = conn.prepare_cached(include_str!("../sql/revive_steps.sql"))?;
        revive.execute(params![flow, step])?;
        let mut renew = conn.prepare_cached(include_str!("../sql/renew_steps.sql"))?;
        renew.execute(params![turn.now, flow, step])?;
    }
    for step in &changes.skip {
        let reason = board.step(*step).and_then(|step| step.reason.as_deref()).unwrap_or("");
        let mut skip = conn.prepare_cached(include_str!("../sql/skip_steps.sql"))?;
        skip.execute(params![flow, step, turn.now, reason])?;
    }
    for step in &changes.call_off {
        let mut call_off = conn.prepare_cached(include_str!("../sql/call_off_steps.sql"))?;
        call_off.execute(params![flow, step])?;
    }
    for step in &changes.stop {
        conn.prepare_cached(include_str!("../sql/stop_step.sql"))?.execute(params![flow, step])?;
    }
    for (from, to, held) in &changes.held {
        let mut update = conn.prepare_cached(include_str!("../sql/update_edges.sql"))?;
        update.execute(params![flow, from, to, held])?;
    }
    Ok(())
}

fn write_flow(turn: &mut Turn<'_>, board: &Board) -> Result<()> {
    if !board.is_flow_touched() {
        return Ok(());
    }
    let flow = &board.flow;
    let (is_over, tend) = (board.may_be_over(), board.wants_tending());
    write_state(turn, flow.id, flow.state, is_over, flow.jobs_open, tend)
}

/// Writes where a flow stands. If it may be over, all its steps are looked at.
pub(super) fn write_state(
    turn: &mut Turn<'_>,
    flow: FlowId,
    state: FlowState,
    may_be_over: bool,
    jobs_open: u64,
    tend: bool,
) -> Result<()> {
    let mut update = turn.conn.prepare_cached(include_str!("../sql/update_flows.sql"))?;
    let (id, state, jobs_open) = (flow.0.as_bytes(), state.number(), millis(jobs_open));
    let written = params![turn.now, id, state, may_be_over, jobs_open, tend];
    let state: i16 = update.query_one(written, |row| row.get(0))?;
    turn.news.tend |= tend;
    if FlowState::of_number(state).is_final() {
        turn.news.finished.push(JobId(flow.0));
    }
    Ok(())
}
