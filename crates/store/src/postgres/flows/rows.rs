//! Rows of flows, as the core knows them.

use tidemill_core::FlowId;
use tidemill_core::flow::{Edge, FlowRow, FlowState, Lost, On, StepRow, StepState, Undo};
use tokio_postgres::Row;

use crate::postgres::error::Fault;
use crate::postgres::statement::At;

/// Reads `lock_flows.sql`.
pub(super) fn flow(row: &Row) -> FlowRow {
    FlowRow {
        id: FlowId(row.get(0)),
        name: row.get(1),
        state: FlowState::of_number(row.get(2)),
        jobs_open: row.get::<_, i64>(3) as u64,
        at_once: row.get::<_, Option<i32>>(4).map(|n| n as u32),
        created_at: row.get::<_, At>(5).0,
        saga: row.get(6),
    }
}

/// Reads twenty columns: the flow, and what `select_steps.sql` says of a step.
pub(super) fn step(row: &Row) -> Result<StepRow, Fault> {
    let number = |at: usize| row.get::<_, i64>(at) as u64;
    let small = |at: usize| row.get::<_, i32>(at) as u32;
    Ok(StepRow {
        number: small(1),
        name: row.get(2),
        state: StepState::of_number(row.get(3)),
        jobs: number(4),
        left: number(5),
        ok: number(6),
        failed: number(7),
        join: join(row.get(8))?,
        parents_left: small(9),
        came: small(10),
        met: number(11),
        missed: number(12),
        reason: row.get(13),
        undo: undo(row.get(14))?,
        undoes: row.get::<_, Option<i32>>(15).map(|number| number as u32),
        pivot: row.get(16),
        grown: row.get(17),
        superseded: row.get(18),
        slow: row.get(19),
        alarms: row.get::<_, Option<i32>>(20).map(|number| number as u32),
        lost: Lost::of_number(row.get(21)),
        refused: row.get(22),
        early: row.get(23),
        guarded: row.get(24),
    })
}

/// Reads the four columns of an edge behind the step it leads to.
pub(super) fn edge(row: &Row) -> Edge {
    Edge {
        from: row.get::<_, i32>(25) as u32,
        to: row.get::<_, i32>(1) as u32,
        on: On::of_number(row.get(26)),
        when: row.get(27),
        held: row.get(28),
    }
}

pub(super) fn undo(text: Option<&str>) -> Result<Option<Box<Undo>>, Fault> {
    let Some(text) = text else { return Ok(None) };
    let undo = serde_json::from_str(text).map_err(|e| unreadable("undo", &e))?;
    Ok(Some(Box::new(undo)))
}

fn unreadable(what: &str, error: &serde_json::Error) -> Fault {
    let reason = format!("the {what} of a step is not readable: {error}");
    Fault::Refused(crate::Error::Database { reason })
}

pub(super) fn join(text: &str) -> Result<tidemill_core::flow::Join, Fault> {
    serde_json::from_str(text).map_err(|e| unreadable("join", &e))
}
