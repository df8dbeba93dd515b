//! What is before a job that waits for a slot: in its band, of its tenant, and in the bands beside it.
//!
//! Asked by people, while a million may wait: nothing is counted further than it is told.

use tidemill_core::why::{COUNTED_MAX, LaneView, TENANTS_MAX};
use tidemill_core::{JobId, Priority};

use crate::error::Result;
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, query};
use crate::request::Lane;

const LANE: Statement = sql!("select_lane", TIMESTAMPTZ, UUID, TEXT, INT8, INT4);

/// What is before a job, if it waits for a slot or the clock.
pub(crate) async fn lane(shared: &Shared, id: JobId) -> Result<Option<LaneView>> {
    let Some(view) = query::job(&shared.db, id).await? else { return Ok(None) };
    let lane = Lane { queue: view.job.queue, priority: view.job.priority };
    let served = shared.marks.served(&lane);
    let (now, jobs, tenants) = (shared.db.manual_now(), COUNTED_MAX as i64, TENANTS_MAX as i32);
    let rows = shared.db.read(&LANE, &[&now, &id.0, &served, &jobs, &tenants]).await?;
    Ok(rows.first().map(|row| {
        let of_bands: Vec<i64> = row.get(3);
        let others = Priority::ALL.into_iter().zip(of_bands.into_iter().map(|jobs| jobs as u64));
        LaneView {
            ahead: row.get::<_, i64>(0) as u64,
            ahead_of_tenant: row.get::<_, i64>(1) as u64,
            ahead_at_gate: row.get::<_, i64>(2) as u64,
            others: others.filter(|(_, jobs)| *jobs > 0).collect(),
            turns: row.get(4),
        }
    }))
}
