//! What is before a job that waits for a slot: in its band, of its tenant, and in the bands beside it.
//!
//! Asked by people, while a million may wait: nothing is counted further than it is told.

use rusqlite::{Connection, params};
use tidemill_core::why::{COUNTED_MAX, LaneView, TENANTS_MAX};
use tidemill_core::{Job, JobId, Priority};

use crate::error::Result;
use crate::request::Lane;
use crate::sqlite::rows::count;
use crate::sqlite::{ready, tenants};

/// Where a job waits.
pub(super) struct Place {
    pub lane: Lane,
    tenant: String,
    run_at: i64,
    id: JobId,
    gate: Option<String>,
}

/// Where a job waits for a slot or the clock, if it does.
pub(super) fn place(conn: &Connection, id: JobId) -> Result<Option<Place>> {
    let Some(body) = ready::body(conn, id)? else { return Ok(None) };
    let last = ready::last_attempt(conn, id)?;
    let Some(waiting) = ready::find(conn, &body, &last)? else { return Ok(None) };
    let run_at = waiting.run_at;
    let gate = ready::gate(conn, &body.job, run_at)?;
    let Job { queue, priority, tenant, .. } = body.job;
    let (lane, tenant) = (Lane { queue, priority }, tenant.unwrap_or_default());
    Ok(Some(Place { lane, tenant, run_at, id, gate }))
}

/// What is before it; `served` is the tenant who had the last turn.
pub(super) fn look(conn: &Connection, now: i64, place: &Place, served: &str) -> Result<LaneView> {
    let Place { lane, tenant, run_at, id, gate } = place;
    let (band, most) = (lane.priority.band(), COUNTED_MAX as i64);
    let mut select = conn.prepare_cached(include_str!("sql/select_lane.sql"))?;
    let gate = gate.as_deref();
    let asked = params![lane.queue, band, tenant, run_at, id.0.as_bytes(), gate, most];
    let mut view = select.query_one(asked, |row| {
        Ok(LaneView {
            ahead: count::<i64>(row, 0)?.min(COUNTED_MAX),
            ahead_of_tenant: count::<i64>(row, 1)?,
            ahead_at_gate: count::<i64>(row, 2)?.min(COUNTED_MAX),
            ..LaneView::default()
        })
    })?;
    let mut due = conn.prepare_cached(include_str!("sql/count_due.sql"))?;
    for other in Priority::ALL.into_iter().filter(|other| *other != lane.priority) {
        let asked = params![lane.queue, other.band(), now, most];
        let jobs = due.query_one(asked, |row| count::<i64>(row, 0))?;
        if jobs > 0 {
            view.others.insert(other, jobs.min(COUNTED_MAX));
        }
    }
    view.turns = tenants::in_turn(conn, now, lane, served, TENANTS_MAX)?.tenants;
    Ok(view)
}
