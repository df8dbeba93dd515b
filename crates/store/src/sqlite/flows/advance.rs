//! Carries flows on: what has ended is counted, joins are decided, steps are opened, in the turn's transaction.

use rusqlite::{OptionalExtension, params};
use tidemill_core::flow::{Arrival, Board, Changes, FlowState, StepRow};
use tidemill_core::{Due, FlowId, JobId, Payload};

use super::write::millis;
use super::{rows, saga};
use crate::error::Result;
use crate::sqlite::rows::{Body, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{lines, ready};

/// A step with more jobs than this is opened bit by bit, off the path of whoever ended the one before it.
const OPEN_AT_ONCE_MAX: u64 = 1000;
/// Jobs that are let go in one transaction.
pub(super) const PAGE_JOBS: u64 = 10_000;

/// Counts what has ended of a flow, and carries it on.
pub(in crate::sqlite) fn advance(turn: &mut Turn<'_>, id: FlowId) -> Result<()> {
    let conn = turn.conn;
    let mut select = conn.prepare_cached(include_str!("../sql/take_arrivals.sql"))?;
    let arrivals = select.query_map([id.0.as_bytes()], |row| {
        let ok = row.get::<_, i64>(1)?.max(0).unsigned_abs();
        Ok(Arrival { step: row.get(0)?, ok, failed: row.get(2)? })
    })?;
    let arrivals: Vec<Arrival> = arrivals.collect::<rusqlite::Result<_>>()?;
    if arrivals.is_empty() {
        return Ok(());
    }
    let mut delete = conn.prepare_cached(include_str!("../sql/delete_arrivals.sql"))?;
    delete.execute([id.0.as_bytes()])?;
    let Some(mut board) = board(turn, id)? else { return Ok(()) };
    if board.flow.saga || arrivals.iter().any(|arrival| arrival.failed < 0) {
        learn_all(turn, &mut board)?;
    }
    for arrival in &arrivals {
        learn_step(turn, &mut board, arrival.step)?;
    }
    board.arrive(&arrivals);
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
    let numbers: Vec<u32> = steps.iter().map(|step| step.number).collect();
    board.learn_steps(steps);
    numbers.into_iter().try_for_each(|number| learn_edges(turn, board, number))
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

/// Tells the edges that leave a step, with the steps they lead to and what their expressions judge.
fn learn_edges(turn: &Turn<'_>, board: &mut Board, from: u32) -> Result<()> {
    let flow = *board.flow.id.0.as_bytes();
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_edges.sql"))?;
    let edges = select.query_map(params![flow, from], rows::edge)?;
    let edges: Vec<_> = edges.collect::<rusqlite::Result<_>>()?;
    for edge in &edges {
        learn_step(turn, board, edge.to)?;
    }
    if edges.iter().any(|edge| edge.when.is_some())
        && board.step(from).is_some_and(|step| step.jobs == 1)
    {
        let mut output =
            turn.conn.prepare_cached(include_str!("../sql/select_step_outputs.sql"))?;
        let found: Option<Option<String>> =
            output.query_one(params![flow, from], |row| row.get(0)).optional()?;
        if let Some(output) = found.flatten() {
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
                learn_edges(turn, board, from)?;
            }
        }
        let changes = board.take_changes();
        write_steps(turn, board)?;
        write_changes(turn, board, &changes)?;
        let opened = open_some(turn, board, &changes)?;
        if !opened && !saga::go_on(turn, board)? {
            break;
        }
    }
    write_flow(turn, board)
}

/// Lets jobs go, as far as may be done at once; `false`: there was nothing to let go.
fn open_some(turn: &mut Turn<'_>, board: &mut Board, changes: &Changes) -> Result<bool> {
    let Some(at_once) = board.flow.at_once else {
        let is_small =
            |step: &&u32| board.step(**step).is_some_and(|step| step.jobs <= OPEN_AT_ONCE_MAX);
        let small: Vec<u32> = changes.open.iter().filter(is_small).copied().collect();
        for step in &small {
            open(turn, board, *step, PAGE_JOBS)?;
        }
        return Ok(!small.is_empty());
    };
    let room = u64::from(at_once).saturating_sub(board.flow.jobs_open);
    if room == 0 || board.is_over() {
        return Ok(false);
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_opening.sql"))?;
    let next: Option<u32> =
        select.query_map([board.flow.id.0.as_bytes()], |row| row.get(0))?.next().transpose()?;
    let Some(next) = next else { return Ok(false) };
    learn_step(turn, board, next)?;
    open(turn, board, next, room.min(PAGE_JOBS))?;
    Ok(true)
}

/// Lets the next jobs of a step go.
pub(super) fn open(turn: &mut Turn<'_>, board: &mut Board, step: u32, room: u64) -> Result<()> {
    let flow = *board.flow.id.0.as_bytes();
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_to_open.sql"))?;
    let bodies = select.query_map(params![flow, step, millis(room)], |row| {
        Ok((Body::of_row(row)?, row.get::<_, bool>(11)?))
    })?;
    let bodies: Vec<(Body, bool)> = bodies.collect::<rusqlite::Result<_>>()?;
    drop(select);
    let mut last = None;
    for (body, has_ended) in &bodies {
        last = Some(body.job.id);
        if !has_ended {
            let_go(turn, body)?;
            board.flow.jobs_open += 1;
        }
    }
    let is_all = match last {
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
    let place = body.job.options.flow.as_ref();
    let due = place.and_then(|place| place.due).unwrap_or(Due::Now);
    let run_at = due.resolve(time(turn.now)).as_microsecond();
    ready::point(turn.conn, body.job.id, run_at)?;
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
            step.reason
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
    let flow = &board.flow;
    let tend = board.wants_tending();
    let mut update = turn.conn.prepare_cached(include_str!("../sql/update_flows.sql"))?;
    let state: i16 = update.query_one(
        params![
            turn.now,
            flow.id.0.as_bytes(),
            flow.state.number(),
            flow.steps_left,
            millis(flow.jobs_open),
            tend
        ],
        |row| row.get(0),
    )?;
    turn.news.tend |= tend;
    if FlowState::of_number(state).is_final() {
        turn.news.finished.push(JobId(flow.id.0));
    }
    Ok(())
}
