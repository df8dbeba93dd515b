//! What people and jobs see of flows.

use std::collections::HashMap;

use tidemill_core::flow::{FlowState, On, StepState};
use tidemill_core::{FlowId, JobId, Payload};
use tokio_postgres::Row;

use super::rows;
use crate::error::Result;
use crate::flow::{
    AfterView, FlowFilter, FlowHead, FlowView, INLINE_BYTES_MAX, Input, Output, StepView,
};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};

const FLOW: Statement = sql!("select_flow", UUID);
const FLOWS: Statement = sql!("list_flows", INT2, TEXT, UUID, INT8);
const STEPS: Statement = sql!("select_flow_steps", UUID);
const PLACES: Statement = sql!("select_flow_places", UUID);
const EDGES: Statement = sql!("select_flow_edges", UUID);
const INPUTS: Statement = sql!("select_inputs", UUID_ARRAY, INT4_ARRAY, INT8);
const OUTPUTS: Statement = sql!("select_outputs", UUID, INT4, UUID, INT8);

/// A flow with its steps, all as of one moment: it may go on while it is read.
pub(crate) async fn flow(shared: &Shared, id: FlowId) -> Result<Option<FlowView>> {
    let mut tries = Tries::read();
    loop {
        let conn = shared.db.begin_snapshot().await?;
        let seen = flow_in(&conn, id).await;
        match conn.end(seen).await {
            Ok(view) => return Ok(view),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn flow_in(conn: &Conn<'_>, id: FlowId) -> Result<Option<FlowView>, Fault> {
    let found = conn.query(&FLOW, &[&id.0]).await?;
    let Some(head) = found.first().map(head) else { return Ok(None) };
    let mut after: HashMap<i32, Vec<AfterView>> = HashMap::new();
    for row in conn.query(&EDGES, &[&id.0]).await? {
        after.entry(row.get(0)).or_default().push(AfterView {
            step: row.get(1),
            on: On::of_number(row.get(2)),
            when: row.get(3),
            held: row.get(4),
        });
    }
    let rows = conn.query(&STEPS, &[&id.0]).await?;
    let steps = rows.iter().map(|row| step(row, &mut after)).collect::<Result<_, Fault>>()?;
    Ok(Some(FlowView::new(head, steps)))
}

/// The queues and tenants of a flow's jobs.
pub(crate) async fn places(shared: &Shared, id: FlowId) -> Result<Vec<(String, Option<String>)>> {
    let rows = shared.db.read(&PLACES, &[&id.0]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// A page of flows, newest first.
pub(crate) async fn list(shared: &Shared, filter: &FlowFilter) -> Result<Vec<FlowHead>> {
    let state = filter.state.map(FlowState::number);
    let before = filter.before.map(|id| id.0);
    let limit = filter.page_rows() as i64;
    let rows = shared.db.read(&FLOWS, &[&state, &filter.name, &before, &limit]).await?;
    Ok(rows.iter().map(head).collect())
}

/// What the steps before these returned.
pub(crate) async fn inputs(shared: &Shared, places: &[(FlowId, u32)]) -> Result<Vec<Vec<Input>>> {
    let mut inputs = vec![Vec::new(); places.len()];
    let flows: Vec<_> = places.iter().map(|(flow, _)| flow.0).collect();
    let steps: Vec<i32> = places.iter().map(|(_, step)| *step as i32).collect();
    let bytes_max = INLINE_BYTES_MAX as i64;
    for row in shared.db.read(&INPUTS, &[&flows, &steps, &bytes_max]).await? {
        let place = row.get::<_, i64>(0) as usize;
        let number = |at: usize| row.get::<_, i64>(at) as u64;
        let Some(inputs) = inputs.get_mut(place - 1) else { continue };
        inputs.push(Input {
            step: row.get(1),
            number: row.get::<_, i32>(2) as u32,
            state: StepState::of_number(row.get(3)),
            jobs: number(4),
            done: number(5),
            failed: number(6),
            output: row.get::<_, Option<String>>(7).map(Payload::trusted),
        });
    }
    Ok(inputs)
}

/// A page of what the jobs of a step returned.
pub(crate) async fn outputs(
    shared: &Shared,
    id: FlowId,
    step: u32,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Output>> {
    let (step, after, limit) = (step as i32, after.map(|id| id.0), limit as i64);
    let rows = shared.db.read(&OUTPUTS, &[&id.0, &step, &after, &limit]).await?;
    let output = |row: &Row| Output {
        id: JobId(row.get(0)),
        output: row.get::<_, Option<String>>(1).map(Payload::trusted),
    };
    Ok(rows.iter().map(output).collect())
}

fn head(row: &Row) -> FlowHead {
    let number = |at: usize| row.get::<_, i64>(at) as u64;
    FlowHead {
        id: FlowId(row.get(0)),
        name: row.get(1),
        state: FlowState::of_number(row.get(2)),
        created_at: row.get::<_, At>(3).0,
        finished_at: row.get::<_, Option<At>>(4).map(|at| at.0),
        reason: row.get(5),
        steps_all: number(6),
        steps_left: row.get::<_, i64>(7) as u64,
        jobs: number(8),
        done: number(9),
        failed: number(10),
        at_once: row.get::<_, Option<i32>>(11).map(|n| n as u32),
        since: row.get::<_, Option<At>>(12).map(|at| at.0),
    }
}

fn step(row: &Row, after: &mut HashMap<i32, Vec<AfterView>>) -> Result<StepView, Fault> {
    let count = |at: usize| row.get::<_, i64>(at) as u64;
    let number: i32 = row.get(0);
    Ok(StepView {
        number: number as u32,
        name: row.get(1),
        kind: row.get(2),
        first: row.get::<_, Option<uuid::Uuid>>(3).map(JobId),
        state: StepState::of_number(row.get(4)),
        jobs: count(5),
        done: count(6),
        failed: count(7),
        join: rows::join(row.get(8))?,
        after: after.remove(&number).unwrap_or_default(),
        started_at: row.get::<_, Option<At>>(9).map(|at| at.0),
        ended_at: row.get::<_, Option<At>>(10).map(|at| at.0),
        reason: row.get(11),
        undo: rows::undo(row.get(12))?.map(|undo| *undo),
        undoes: row.get::<_, Option<i32>>(13).map(|number| number as u32),
        pivot: row.get(14),
        superseded: row.get(15),
    })
}
