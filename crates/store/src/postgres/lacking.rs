//! Whether any job that has not finished lacks what a limit would count it by: one statement, which reads.

use tidemill_core::{JobId, Per};

use crate::error::Result;
use crate::postgres::connect::Db;
use crate::postgres::statement::{Statement, sql};
use crate::view::{LACKING_ROWS_MAX, Lacking, Lacks};

const FIND: Statement = sql!("select_lacking", TEXT, TEXT, TEXT, BOOL, INT8);

/// One such job.
pub(crate) async fn find(db: &Db, lacks: &Lacks) -> Result<Option<Lacking>> {
    let ((first, last), of_tenant) = (lacks.queues(), lacks.per == Per::Tenant);
    let rows = db.read(&FIND, &[&first, &last, &lacks.kind, &of_tenant, &LACKING_ROWS_MAX]).await?;
    Ok(rows.first().map(|row| Lacking {
        id: JobId(row.get(0)),
        kind: row.get(1),
        queue: row.get(2),
    }))
}
