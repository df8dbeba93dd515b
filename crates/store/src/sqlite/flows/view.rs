//! What people and jobs see of flows.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::flow::{FlowState, On, StepState};
use tidemill_core::{FlowId, JobId, Payload};

use super::rows::{flow_id, join, undo};
use crate::error::Result;
use crate::flow::{
    AfterView, FlowFilter, FlowHead, FlowView, INLINE_BYTES_MAX, Input, Output, StepView,
};
use crate::sqlite::rows::{count, job_id, job_id_opt, time_at, time_opt};

/// A flow with its steps.
pub(in crate::sqlite) fn flow(conn: &Connection, id: FlowId) -> Result<Option<FlowView>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_flow.sql"))?;
    let flow = id.0.as_bytes();
    let Some(head) = select.query_one([flow], head).optional()? else { return Ok(None) };
    let mut after: HashMap<u32, Vec<AfterView>> = HashMap::new();
    let mut select = conn.prepare_cached(include_str!("../sql/select_flow_edges.sql"))?;
    let edges = select.query_map([flow], |row| {
        let edge = AfterView {
            step: row.get(1)?,
            on: On::of_number(row.get(2)?),
            when: row.get(3)?,
            held: row.get(4)?,
        };
        Ok((row.get(0)?, edge))
    })?;
    for edge in edges {
        let (to, edge) = edge?;
        after.entry(to).or_default().push(edge);
    }
    let mut select = conn.prepare_cached(include_str!("../sql/select_flow_steps.sql"))?;
    let steps = select.query_map([flow], |row| step(row, &mut after))?;
    let steps = steps.collect::<rusqlite::Result<_>>()?;
    Ok(Some(FlowView::new(head, steps)))
}

/// The queues and tenants of a flow's jobs.
pub(in crate::sqlite) fn places(
    conn: &Connection,
    id: FlowId,
) -> Result<Vec<(String, Option<String>)>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_flow_places.sql"))?;
    let places = select.query_map([id.0.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(places.collect::<rusqlite::Result<_>>()?)
}

/// A page of flows, newest first.
pub(in crate::sqlite) fn list(conn: &Connection, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
    let mut select = conn.prepare_cached(include_str!("../sql/list_flows.sql"))?;
    let state = filter.state.map(FlowState::number);
    let before = filter.before.as_ref().map(|id| id.0.as_bytes());
    let page = params![state, filter.name, before, filter.page_rows() as i64];
    Ok(select.query_map(page, head)?.collect::<rusqlite::Result<_>>()?)
}

/// What the steps before these returned.
pub(in crate::sqlite) fn inputs(
    conn: &Connection,
    places: &[(FlowId, u32)],
) -> Result<Vec<Vec<Input>>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_inputs.sql"))?;
    let bytes_max = INLINE_BYTES_MAX as i64;
    let mut inputs = Vec::with_capacity(places.len());
    for (flow, step) in places {
        let of_place = params![flow.0.as_bytes(), step, bytes_max];
        inputs.push(select.query_map(of_place, input)?.collect::<rusqlite::Result<_>>()?);
    }
    Ok(inputs)
}

/// A page of what the jobs of a step returned.
pub(in crate::sqlite) fn outputs(
    conn: &Connection,
    id: FlowId,
    step: u32,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Output>> {
    let mut select = conn.prepare_cached(include_str!("../sql/select_outputs.sql"))?;
    let after = after.as_ref().map(|id| id.0.as_bytes());
    let outputs = select.query_map(params![id.0.as_bytes(), step, after, limit as i64], |row| {
        let output: Option<String> = row.get(1)?;
        Ok(Output { id: job_id(row, 0)?, output: output.map(Payload::trusted) })
    })?;
    Ok(outputs.collect::<rusqlite::Result<_>>()?)
}

fn head(row: &Row<'_>) -> rusqlite::Result<FlowHead> {
    Ok(FlowHead {
        id: flow_id(row, 0)?,
        name: row.get(1)?,
        state: FlowState::of_number(row.get(2)?),
        created_at: time_at(row, 3)?,
        finished_at: time_opt(row, 4)?,
        reason: row.get(5)?,
        steps_left: count::<i64>(row, 6)?,
        steps_all: count::<i64>(row, 7)?,
        jobs: count::<i64>(row, 8)?,
        done: count::<i64>(row, 9)?,
        failed: count::<i64>(row, 10)?,
        at_once: row.get(11)?,
        since: time_opt(row, 12)?,
    })
}

fn step(row: &Row<'_>, after: &mut HashMap<u32, Vec<AfterView>>) -> rusqlite::Result<StepView> {
    let number = row.get(0)?;
    Ok(StepView {
        number,
        name: row.get(1)?,
        kind: row.get(2)?,
        first: job_id_opt(row, 3)?,
        state: StepState::of_number(row.get(4)?),
        jobs: count::<i64>(row, 5)?,
        done: count::<i64>(row, 6)?,
        failed: count::<i64>(row, 7)?,
        join: join(row, 8)?,
        after: after.remove(&number).unwrap_or_default(),
        started_at: time_opt(row, 9)?,
        ended_at: time_opt(row, 10)?,
        reason: row.get(11)?,
        undo: undo(row, 12)?.map(|undo| *undo),
        undoes: row.get(13)?,
        pivot: row.get(14)?,
        superseded: row.get(15)?,
    })
}

fn input(row: &Row<'_>) -> rusqlite::Result<Input> {
    Ok(Input {
        step: row.get(0)?,
        number: row.get(1)?,
        state: StepState::of_number(row.get(2)?),
        jobs: count::<i64>(row, 3)?,
        done: count::<i64>(row, 4)?,
        failed: count::<i64>(row, 5)?,
        output: row.get::<_, Option<String>>(6)?.map(Payload::trusted),
    })
}
