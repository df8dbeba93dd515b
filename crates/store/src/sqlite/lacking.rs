//! Whether any job that has not finished lacks what a limit would count it by.
//!
//! A reader looks, beside the writer. What runs stands in leases, whose jobs are looked up one by one.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::Per;

use crate::error::Result;
use crate::sqlite::lease::Lease;
use crate::sqlite::rows::job_id;
use crate::view::{LACKING_ROWS_MAX, Lacking, Lacks};

/// One such job.
pub(super) fn find(conn: &Connection, lacks: &Lacks) -> Result<Option<Lacking>> {
    let (first, last) = lacks.queues();
    let of_tenant = lacks.per == Per::Tenant;
    let mut select = conn.prepare_cached(include_str!("sql/select_lacking.sql"))?;
    let params = params![first, last, lacks.kind, of_tenant, LACKING_ROWS_MAX];
    let found = select.query_row(params, one).optional()?;
    if found.is_some() {
        return Ok(found);
    }
    let mut select = conn.prepare_cached(include_str!("sql/select_attributes.sql"))?;
    let running = Lease::all(conn)?.into_iter().flat_map(|lease| lease.jobs);
    for held in running.take(LACKING_ROWS_MAX as usize) {
        let lacking = |row: &Row<'_>| {
            let (queue, kind): (String, String) = (row.get(0)?, row.get(1)?);
            let by: String = row.get(if of_tenant { 2 } else { 3 })?;
            let is_meant = first <= queue
                && queue <= last
                && lacks.kind.as_ref().is_none_or(|own| *own == kind)
                && by.is_empty();
            Ok(is_meant.then_some(Lacking { id: held.id, kind, queue }))
        };
        let found = select.query_row([held.id.0.as_bytes()], lacking).optional()?.flatten();
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn one(row: &Row<'_>) -> rusqlite::Result<Lacking> {
    Ok(Lacking { id: job_id(row, 0)?, kind: row.get(1)?, queue: row.get(2)? })
}
