//! What flows wait for and no job's end does, a page of each at a time: steps that are opened bit by bit, jobs
//! that are called off, joins and flows that are late, flows whose time is over, and arrivals that nobody counted.

use futures::future::join_all;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use tidemill_core::flow::Arrival;
use tidemill_core::{FlowId, JobId};
use uuid::Uuid;

use super::advance::{self, PAGE_JOBS};
use super::forget::forget;
use super::{act, carry_on, rows};
use crate::error::{Error, Result};
use crate::flow::FlowAnswer;
use crate::flow::round::{PAGE_ENDS, PAGE_FLOWS, Round, is_enough};
use crate::sqlite::rows::job_id;
use crate::sqlite::writer::Turn;
use crate::sqlite::{Sqlite, cancel};

/// A step that waits for others.
type Join = (FlowId, u32);

/// Does a page of everything, of each flow by an act of its own; `true` when there is more. What was found by a reader
/// may be other by the time its act has its turn, which looks again.
pub(in crate::sqlite) async fn tend(store: &Sqlite) -> Result<bool> {
    let mut round = Round::default();
    let arrived = include_str!("../sql/select_arrived.sql");
    walk(store, &mut round, arrived, |turn, flow| count(turn, flow).map(|()| false)).await?;
    walk(store, &mut round, include_str!("../sql/select_flows_to_tend.sql"), tend_one).await?;
    late(store, &mut round).await?;
    expire(store, &mut round).await?;
    forget_over(store, &mut round).await?;
    round.end()
}

/// A page of what a statement finds, behind the last of the page before.
async fn page<T: Send + 'static>(
    store: &Sqlite,
    sql: &'static str,
    behind: impl Params + Send + 'static,
    row: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let look = move |conn: &Connection| {
        let mut select = conn.prepare_cached(sql)?;
        let page = select.query_map(behind, row)?;
        Ok(page.collect::<rusqlite::Result<_>>()?)
    };
    store.read(look).await
}

/// Does this to a page of the flows that a statement finds, in the order of their ids; there may be more if it went
/// well with so many.
async fn walk(
    store: &Sqlite,
    round: &mut Round,
    sql: &'static str,
    act: fn(&mut Turn<'_>, FlowId) -> Result<bool>,
) -> Result<()> {
    let (mut well, mut last) = (0, Uuid::nil());
    loop {
        let behind = (PAGE_FLOWS, *last.as_bytes());
        let flows = page(store, sql, behind, |row| rows::flow_id(row, 0)).await?;
        for done in each(store, &flows, act).await {
            well += i64::from(note(round, done)?.is_some());
        }
        if is_enough(well, flows.len()) {
            round.has_more |= well >= PAGE_FLOWS;
            return Ok(());
        }
        last = flows.last().map_or(last, |flow| flow.0);
    }
}

/// Forgets a page of the flows whose time is over; there may be more if something went. Those of which something must
/// stay are passed over, so that no other waits behind them. Flows go together as far as they have a page of jobs
/// together: between two commits, others have their turns.
async fn forget_over(store: &Sqlite, round: &mut Round) -> Result<()> {
    let now = store.now_us();
    let mut forgotten = 0;
    let mut last: Option<(FlowId, i64)> = None;
    loop {
        let (id, at) = last.unzip();
        let behind = (now, PAGE_FLOWS, at, id.map(|id| *id.0.as_bytes()), PAGE_ENDS);
        let sql = include_str!("../sql/select_forgettable_flows.sql");
        let row = |row: &Row<'_>| Ok(((rows::flow_id(row, 0)?, row.get(1)?), row.get(2)?));
        let over: Vec<((FlowId, i64), i64)> = page(store, sql, behind, row).await?;
        let mut rest = over.as_slice();
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(together(rest));
            rest = behind;
            let ids: Vec<FlowId> = part.iter().map(|((flow, _), _)| *flow).collect();
            for has_more in each(store, &ids, forget).await {
                forgotten += i64::from(note(round, has_more)? == Some(true));
            }
        }
        last = over.last().map(|(place, _)| *place);
        if is_enough(forgotten, over.len()) {
            return Ok(());
        }
    }
}

/// How many of these have a page of jobs together; one, if the first alone has.
fn together<T>(flows: &[(T, i64)]) -> usize {
    let mut jobs = 0;
    let fits = flows.iter().take_while(|(_, more)| {
        jobs += more;
        jobs <= PAGE_ENDS
    });
    fits.count().clamp(1, flows.len())
}

/// Does this to each of a page. The acts come to the writer together, which commits them as one; should one fail, it
/// fails alone.
async fn each<T: Copy + Send + Sync + 'static, U: Send + 'static>(
    store: &Sqlite,
    page: &[T],
    act: fn(&mut Turn<'_>, T) -> Result<U>,
) -> Vec<Result<U>> {
    let acts = page.iter().map(|one| {
        let one = *one;
        store.write(move |turn| act(turn, one))
    });
    join_all(acts).await
}

/// A database that others keep locked is so for all flows: nobody waits for it once more. What it lacks for one it may
/// have for others.
fn note(round: &mut Round, tended: Result<bool>) -> Result<Option<bool>> {
    match tended {
        Err(fault @ Error::Busy { .. }) => Err(fault),
        tended => Ok(round.note(tended)),
    }
}

/// Calls off a page of the flows whose time is over; there may be more if there were some. Sagas at their point of no
/// return may stay: they are passed over, so that no other waits behind them.
async fn expire(store: &Sqlite, round: &mut Round) -> Result<()> {
    let now = store.now_us();
    let mut ended = 0;
    let mut last: Option<(FlowId, i64)> = None;
    loop {
        let (id, at) = last.unzip();
        let behind = (now, PAGE_FLOWS, at, id.map(|id| *id.0.as_bytes()));
        let sql = include_str!("../sql/select_expired_flows.sql");
        let late =
            page(store, sql, behind, |row| Ok((rows::flow_id(row, 0)?, row.get(1)?))).await?;
        let ids: Vec<FlowId> = late.iter().map(|(flow, _)| *flow).collect();
        for answer in each(store, &ids, act::expire).await {
            let is_ended = answer.map(|answer| matches!(answer, FlowAnswer::Acted { .. }));
            ended += i64::from(note(round, is_ended)? == Some(true));
        }
        last = late.last().copied();
        if is_enough(ended, late.len()) {
            return Ok(());
        }
    }
}

/// Counts what has ended of a flow and nobody has counted.
fn count(turn: &mut Turn<'_>, flow: FlowId) -> Result<()> {
    let arrivals = take_arrivals(turn, flow)?;
    if arrivals.is_empty() {
        return Ok(());
    }
    advance::advance(turn, flow, &arrivals)
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

/// Decides a page of the joins that have waited for as long as they may; there may be more if there were some. Those
/// that cannot be decided are passed over, so that no other waits behind them.
async fn late(store: &Sqlite, round: &mut Round) -> Result<()> {
    let now = store.now_us();
    let mut decided = 0;
    let mut last: Option<(Join, i64)> = None;
    loop {
        let (of, at) = last.unzip();
        let (flow, step) = of.unzip();
        let behind = (now, PAGE_FLOWS, at, flow.map(|flow: FlowId| *flow.0.as_bytes()), step);
        let sql = include_str!("../sql/select_late_steps.sql");
        let row = |row: &Row<'_>| Ok(((rows::flow_id(row, 0)?, row.get(1)?), row.get(2)?));
        let late: Vec<(Join, i64)> = page(store, sql, behind, row).await?;
        let joins: Vec<Join> = late.iter().map(|(join, _)| *join).collect();
        for is_decided in each(store, &joins, decide).await {
            decided += i64::from(note(round, is_decided)? == Some(true));
        }
        last = late.last().copied();
        if is_enough(decided, late.len()) {
            return Ok(());
        }
    }
}

/// Decides a join that is late, if it still is: one that was decided before it may have told it something, or have
/// decided it.
fn decide(turn: &mut Turn<'_>, (flow, step): Join) -> Result<bool> {
    // What has ended in time is counted first.
    count(turn, flow)?;
    carry_on(turn)?;
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_late_step.sql"))?;
    let this = params![turn.now, flow.0.as_bytes(), step];
    let left = select.query_one(this, |row| row.get::<_, i64>(0)).optional()?;
    drop(select);
    let (Some(left), Some(mut board)) = (left, advance::board(turn, flow)?) else {
        return Ok(false);
    };
    advance::learn_step(turn, &mut board, step)?;
    board.overdue(step, left.unsigned_abs());
    advance::carry_on(turn, &mut board)?;
    Ok(true)
}
