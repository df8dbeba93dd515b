//! Children whose unique key another job holds: those that wait for one that their run has called off, and those of
//! which the run was told before.

use std::collections::HashSet;

use tidemill_core::{JobId, NewJob};
use uuid::Uuid;

use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::Fault;
use crate::postgres::statement::{Statement, sql};
use crate::postgres::unique::{self, Depth};
use crate::request::Receipt;
use crate::run::{RunWrites, for_after};

const HEARD: Statement = sql!("select_heard", UUID, TEXT_ARRAY);
const CALLED_OFF: Statement = sql!("select_called_off", UUID_ARRAY, UUID_ARRAY);

/// The children that a run starts: sent again, one that was turned away the first time stays so.
pub(super) async fn wanted<'a>(
    conn: &Conn<'_>,
    run: JobId,
    writes: &'a RunWrites,
) -> Result<Vec<&'a NewJob>, Fault> {
    let mut children: Vec<&NewJob> = writes.children.iter().collect();
    if writes.may_clash() {
        let keyed = children.iter().filter(|child| child.unique.is_some());
        let keyed: Vec<String> = keyed.map(|child| child.id.to_string()).collect();
        let rows = conn.query(&HEARD, &[&run.0, &keyed]).await?;
        let heard: HashSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        children.retain(|child| !heard.contains(&child.id.0));
    }
    Ok(children)
}

/// Keeps those for after whose key is held by a child that their run has called off, and that still runs.
pub(crate) async fn keep_for_after(
    shared: &Shared,
    conn: &Conn<'_>,
    jobs: &[NewJob],
    receipts: &mut [Receipt],
) -> Result<(), Fault> {
    let held = jobs.iter().zip(receipts.iter()).filter(|(job, receipt)| receipt.id() != job.id);
    let held = held.filter_map(|(job, receipt)| Some((receipt.id().0, job.options.parent?.0)));
    let (holders, parents): (Vec<Uuid>, Vec<Uuid>) = held.unzip();
    if holders.is_empty() {
        return Ok(());
    }
    let rows = conn.query(&CALLED_OFF, &[&holders, &parents]).await?;
    let called_off: HashSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    for (job, receipt) in jobs.iter().zip(receipts) {
        if receipt.id() == job.id || !called_off.contains(&receipt.id().0) {
            continue;
        }
        let text = unique::lines(&[for_after(job)]).map_err(Fault::Refused)?;
        let kept = unique::put(conn, shared.db.manual_now(), &text, Depth::Free).await?.pop();
        *receipt = kept.unwrap_or_else(|| receipt.clone());
    }
    Ok(())
}
