//! Rows of flows, as the core knows them.

use rusqlite::Row;
use tidemill_core::FlowId;
use tidemill_core::flow::{Edge, FlowRow, FlowState, Join, Lost, On, StepRow, StepState, Undo};
use uuid::Uuid;

use crate::sqlite::rows::{count, time_at};

pub(super) fn flow_id(row: &Row<'_>, column: usize) -> rusqlite::Result<FlowId> {
    Ok(FlowId(Uuid::from_bytes(row.get(column)?)))
}

/// Reads `lock_flows.sql`.
pub(super) fn flow(row: &Row<'_>) -> rusqlite::Result<FlowRow> {
    Ok(FlowRow {
        id: flow_id(row, 0)?,
        name: row.get(1)?,
        state: FlowState::of_number(row.get(2)?),
        jobs_open: count::<i64>(row, 3)?,
        at_once: row.get(4)?,
        created_at: time_at(row, 5)?,
        saga: row.get(6)?,
    })
}

/// Reads `select_steps.sql`.
pub(super) fn step(row: &Row<'_>) -> rusqlite::Result<StepRow> {
    Ok(StepRow {
        number: row.get(0)?,
        name: row.get(1)?,
        state: StepState::of_number(row.get(2)?),
        jobs: count::<i64>(row, 3)?,
        left: count::<i64>(row, 4)?,
        ok: count::<i64>(row, 5)?,
        failed: count::<i64>(row, 6)?,
        join: join(row, 7)?,
        parents_left: row.get(8)?,
        came: row.get(9)?,
        met: count::<i64>(row, 10)?,
        missed: count::<i64>(row, 11)?,
        reason: row.get(12)?,
        undo: undo(row, 13)?,
        undoes: row.get(14)?,
        pivot: row.get(15)?,
        grown: row.get(16)?,
        superseded: row.get(17)?,
        slow: row.get(18)?,
        alarms: row.get(19)?,
        lost: Lost::of_number(row.get(20)?),
        refused: row.get(21)?,
        early: row.get(22)?,
        guarded: row.get(23)?,
    })
}

/// Reads the four columns of an edge behind the step it leads to, if it says one.
pub(super) fn edge_ahead(row: &Row<'_>) -> rusqlite::Result<Option<Edge>> {
    let Some(from) = row.get(24)? else { return Ok(None) };
    let (to, on) = (row.get(0)?, On::of_number(row.get(25)?));
    Ok(Some(Edge { from, to, on, when: row.get(26)?, held: row.get(27)? }))
}

/// Reads `select_edges.sql`.
pub(super) fn edge(row: &Row<'_>) -> rusqlite::Result<Edge> {
    Ok(Edge {
        from: row.get(0)?,
        to: row.get(1)?,
        on: On::of_number(row.get(2)?),
        when: row.get(3)?,
        held: row.get(4)?,
    })
}

pub(super) fn undo(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Box<Undo>>> {
    let Some(text) = row.get_ref(column)?.as_str_or_null()? else { return Ok(None) };
    let undo = serde_json::from_str(text).map_err(|e| unreadable(column, e))?;
    Ok(Some(Box::new(undo)))
}

fn unreadable(column: usize, error: serde_json::Error) -> rusqlite::Error {
    let text = rusqlite::types::Type::Text;
    rusqlite::Error::FromSqlConversionFailure(column, text, Box::new(error))
}

pub(super) fn join(row: &Row<'_>, column: usize) -> rusqlite::Result<Join> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|e| unreadable(column, e))
}
