//! What runs owe that ended otherwise than well.
//!
//! Any number of nodes see to one debt at once, and one of them may be late: by then it is paid, and its run may have
//! gone on, and owe anew. So nothing is done without looking, under its lock, whether the debt is still there.

use tidemill_core::JobId;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, cancel};
use crate::run::Debt;

const LIST: Statement = sql!("select_debts", INT8, INT8);
const CHILDREN: Statement = sql!("select_children", UUID, UUID_ARRAY);
const UNDO: Statement = sql!("undo_run", UUID, INT8);
const DELETE: Statement = sql!("delete_debt", UUID, INT8);

/// Debts after one.
pub(crate) async fn debts(db: &Db, after: Option<Debt>, limit: usize) -> Result<Vec<Debt>> {
    let after = after.map_or(0, |debt| debt.number);
    let rows = db.read(&LIST, &[&after, &(limit as i64)]).await?;
    Ok(rows.iter().map(|row| Debt { job: JobId(row.get(0)), number: row.get(1) }).collect())
}

/// Those of these jobs that are children of this run.
pub(crate) async fn children(db: &Db, run: JobId, named: &[JobId]) -> Result<Vec<JobId>> {
    let named: Vec<Uuid> = named.iter().map(|id| id.0).collect();
    let rows = db.read(&CHILDREN, &[&run.0, &named]).await?;
    Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
}

/// What this run did is undone from now on, unless its debt was paid.
pub(crate) async fn undo(db: &Db, debt: Debt) -> Result<bool> {
    Ok(!db.write(&UNDO, &[&debt.job.0, &debt.number]).await?.is_empty())
}

/// Calls the children of a run off and takes its debt away, unless that was done.
pub(crate) async fn pay(
    shared: &Shared,
    debt: Debt,
    orphans: &[JobId],
    reason: &str,
) -> Result<bool> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let acted = pay_in(shared, &conn, debt, orphans, reason).await;
        match conn.end(acted).await {
            Ok(Some(search)) => {
                search.tell(shared);
                return Ok(true);
            }
            // Where an answer was lost, it may have been ours.
            Ok(None) => return Ok(tries.was_lost()),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn pay_in(
    shared: &Shared,
    conn: &Conn<'_>,
    debt: Debt,
    orphans: &[JobId],
    reason: &str,
) -> Result<Option<cancel::Search>, Fault> {
    let job: Uuid = debt.job.0;
    if conn.query(&DELETE, &[&job, &debt.number]).await?.is_empty() {
        return Ok(None);
    }
    cancel::cancel_in(shared, conn, orphans, reason).await.map(Some)
}
