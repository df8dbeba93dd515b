//! The sweep: finished jobs, oldest first, and forgetting them.

use tidemill_core::retention::Finished;
use tidemill_core::{JobId, State};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{Shared, lines};
use crate::wake::Hint;

const FINISHED_AFTER: Statement = sql!("select_finished", UUID, INT8);
const KEY_EXPIRE: Statement = sql!("delete_expired_keys", TIMESTAMPTZ);
/// Forgets finished jobs; answers how many, and which of them wholly.
pub(crate) const PURGE: Statement = sql!("purge", UUID_ARRAY);

/// A page of finished jobs after this one, oldest first.
pub(crate) async fn finished_after(
    db: &Db,
    after: Option<JobId>,
    limit: usize,
) -> Result<Vec<Finished>> {
    let after = after.map_or(Uuid::nil(), |id| id.0);
    let rows = db.read(&FINISHED_AFTER, &[&after, &(limit as i64)]).await?;
    let finished = |row: &Row| Finished {
        id: JobId(row.get(0)),
        queue: row.get(1),
        state: State::of_number(row.get(2)).unwrap_or(State::Done),
        finished_at: row.get::<_, At>(3).0,
        retain_ms: row.get::<_, Option<i64>>(4).map(|ms| ms as u64),
        dead_bytes: row.get::<_, i64>(5) as u64,
    };
    Ok(rows.iter().map(finished).collect())
}

/// Forgets finished jobs, and keys whose period is over. Answers how many jobs.
pub(crate) async fn purge(shared: &Shared, ids: &[JobId]) -> Result<u64> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let mut tries = Tries::once();
    loop {
        match purge_once(&shared.db, &ids).await {
            Ok((count, queues)) => {
                for queue in queues {
                    shared.hint(Hint::Ready { queue });
                }
                return Ok(count);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Answers how many were forgotten, and the queues in which jobs wait now that one of them held up.
async fn purge_once(db: &Db, ids: &[Uuid]) -> Result<(u64, Vec<String>), Fault> {
    let conn = db.begin().await?;
    let purged = purge_in(&conn, db.manual_now(), ids).await;
    conn.end(purged).await
}

/// The same in the caller's transaction.
pub(crate) async fn purge_in(
    conn: &Conn<'_>,
    now: Option<At>,
    ids: &[Uuid],
) -> Result<(u64, Vec<String>), Fault> {
    let queues = lines::let_pass(conn, now, ids).await?;
    // First, and by itself: what a key held back may go with it.
    conn.query(&KEY_EXPIRE, &[&now]).await?;
    let rows = conn.query(&PURGE, &[&ids]).await?;
    Ok((rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64), queues))
}
