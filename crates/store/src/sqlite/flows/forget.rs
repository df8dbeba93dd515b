//! Flows whose time is over: they go with their jobs, a page at a time. From then on nothing of them goes on: what has
//! ended of it may be gone.

use rusqlite::params;
use tidemill_core::{FlowId, JobId};

use crate::error::Result;
use crate::flow::round::PAGE_ENDS;
use crate::sqlite::rows::job_id;
use crate::sqlite::sweep;
use crate::sqlite::writer::Turn;

/// Whether the time of a flow is over.
pub(super) fn is_over(turn: &Turn<'_>, flow: FlowId) -> Result<bool> {
    let mut over = turn.conn.prepare_cached(include_str!("../sql/is_forgettable_flow.sql"))?;
    Ok(over.exists(params![turn.now, flow.0.as_bytes()])?)
}

/// Forgets a page of a flow's jobs and, when there are none, the flow; `true`: there may be more. A job that stays,
/// as a run does that owes something, is not looked at again at once.
pub(super) fn forget(turn: &mut Turn<'_>, flow: FlowId) -> Result<bool> {
    if !is_over(turn, flow)? {
        return Ok(false);
    }
    let id = flow.0.as_bytes();
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_jobs_of_flow.sql"))?;
    let ids = select.query_map(params![id, PAGE_ENDS], |row| job_id(row, 0))?;
    let ids: Vec<JobId> = ids.collect::<rusqlite::Result<_>>()?;
    drop(select);
    if !ids.is_empty() {
        return Ok(sweep::purge(turn, &ids)? > 0);
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
    Ok(true)
}
