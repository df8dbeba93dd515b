//! Changes a job that waits, and no other.
//!
//! Whoever could let it go meanwhile is locked out, in the order in which everybody locks: its flow while its step is
//! not opened, its unique key, its line, its sheaf. A job that moves while it is looked for is looked for again.

use std::collections::BTreeSet;

use tidemill_core::JobId;
use tidemill_core::job::edit::Edit;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::batch::options_text;
use crate::postgres::body::body;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::lines;
use crate::postgres::record::{Body, lock_keys};
use crate::postgres::statement::{Statement, sql};
use crate::request::EditAnswer;
use crate::wake::Hint;

const FIND: Statement = sql!("select_to_cancel", UUID_ARRAY);
const OUTCOME_KNOWN: Statement = sql!("select_outcome", UUID_ARRAY);
const FLOWS_LOCK: Statement = sql!("lock_flows_of_blocked", UUID_ARRAY);
const SHEAF_LOCK: Statement = sql!("select_ready", INT8_ARRAY);
const KEPT: Statement = sql!("select_kept", TEXT, UUID);
const BLOCKED: Statement = sql!("select_blocked", UUID_ARRAY);
const LEASE_FIND: Statement = sql!("select_leases_holding", UUID_ARRAY);
const BODY: Statement = sql!("select_to_edit", UUID);
const EDIT: Statement = sql!("edit_job", UUID, INT2, TEXT, TEXT);

/// Looks before a job that keeps moving is given up.
const LOOKS_MAX: usize = 20;

/// Changes a job that waits, wherever it does.
pub(crate) async fn edit(shared: &Shared, id: JobId, edit: &Edit) -> Result<EditAnswer> {
    let mut tries = Tries::resend();
    for _ in 0..LOOKS_MAX {
        let conn = shared.db.begin().await?;
        let done = edit_once(&conn, id, edit, tries.was_lost()).await;
        match conn.end(done).await {
            Ok(Some((answer, queue))) => {
                if let Some(queue) = queue {
                    shared.hint(Hint::Ready { queue });
                }
                return Ok(answer);
            }
            Ok(None) => {}
            Err(fault) => tries.again(fault).await?,
        }
    }
    let reason = format!("the job {id} moved whenever it was looked for");
    Err(Error::Busy { reason })
}

/// What became of it, and the queue in which it waits elsewhere now. `None`: it moved meanwhile.
async fn edit_once(
    conn: &Conn<'_>,
    id: JobId,
    edit: &Edit,
    was_lost: bool,
) -> Result<Option<(EditAnswer, Option<String>)>, Fault> {
    let only = [id.0];
    conn.query(&FLOWS_LOCK, &[&&only[..]]).await?;
    let Some((found, sheaf)) = find(conn, id).await? else {
        return Ok(Some((EditAnswer::Unknown, None)));
    };
    lock_keys(conn, &found.unique_key.iter().cloned().collect()).await?;
    lines::lock(conn, &found.line().into_iter().collect::<BTreeSet<_>>()).await?;
    let answer = match waits(conn, id, &found, sheaf).await? {
        None => return Ok(None),
        Some(Stands::Waits) => {
            let rows = conn.query(&BODY, &[&id.0]).await?;
            let Some(before) = rows.first().map(|row| body(row, 0)) else { return Ok(None) };
            let Some(after) = edit.apply(&before) else {
                // An earlier try of ours may be what changed it.
                let anyhow = edit.clone().only_of(None).apply(&before);
                let is_ours = was_lost && anyhow.as_ref() == Some(&before);
                let answer = if is_ours { EditAnswer::Edited } else { EditAnswer::Changed };
                return Ok(Some((answer, None)));
            };
            let (band, options) = (after.priority.band(), options_text(&after.options));
            conn.query(&EDIT, &[&id.0, &band, &after.payload.as_str(), &options]).await?;
            let queue = (after.priority != before.priority).then_some(after.queue);
            return Ok(Some((EditAnswer::Edited, queue)));
        }
        Some(Stands::Runs) => EditAnswer::Running,
        Some(Stands::Finished) => EditAnswer::Finished,
    };
    Ok(Some((answer, None)))
}

/// Where a job stands.
enum Stands {
    Waits,
    Runs,
    Finished,
}

/// Where a job stands, and will stand until the end of the transaction if it waits. `None`: it moved meanwhile.
async fn waits(
    conn: &Conn<'_>,
    id: JobId,
    found: &Body,
    sheaf: i64,
) -> Result<Option<Stands>, Fault> {
    let only = [id.0];
    let only = &only[..];
    if !conn.query(&OUTCOME_KNOWN, &[&only]).await?.is_empty() {
        return Ok(Some(Stands::Finished));
    }
    let sheaves = conn.query(&SHEAF_LOCK, &[&&[sheaf][..]]).await?;
    if sheaves.iter().any(|row| row.get::<_, Vec<Uuid>>(1).contains(&id.0)) {
        return Ok(Some(Stands::Waits));
    }
    if found.line().is_some() && !lines::waiting(conn, only).await?.is_empty() {
        return Ok(Some(Stands::Waits));
    }
    if let Some(key) = &found.unique_key
        && !conn.query(&KEPT, &[key, &id.0]).await?.is_empty()
    {
        return Ok(Some(Stands::Waits));
    }
    if !conn.query(&BLOCKED, &[&only]).await?.is_empty() {
        return Ok(Some(Stands::Waits));
    }
    let leases = conn.query(&LEASE_FIND, &[&only]).await?;
    // Only now: a settle that held the lease before us is visible to this statement.
    if !conn.query(&OUTCOME_KNOWN, &[&only]).await?.is_empty() {
        return Ok(Some(Stands::Finished));
    }
    let holds = leases.iter().any(|lease| lease.get::<_, Vec<Uuid>>(2).contains(&id.0));
    Ok(holds.then_some(Stands::Runs))
}

async fn find(conn: &Conn<'_>, id: JobId) -> Result<Option<(Body, i64)>, Fault> {
    let rows = conn.query(&FIND, &[&&[id.0][..]]).await?;
    Ok(rows.first().map(|row| (Body::read(row, 0), row.get(10))))
}
