//! Flows whose time is over: they go with their jobs, a page at a time, each under the flow's lock. From then on
//! nothing of them goes on: what has ended of it may be gone.

use uuid::Uuid;

use super::advance::{self, Done};
use crate::error::Result;
use crate::flow::round::PAGE_ENDS;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};
use crate::postgres::{Shared, sweep};

const IS_OVER: Statement = sql!("is_forgettable_flow", TIMESTAMPTZ, UUID);
const JOBS: Statement = sql!("select_jobs_of_flow", UUID, INT8);
const FORGET: Statement = sql!("delete_flow", UUID);

/// Whether the time of a flow is over. Its lock is held: who forgot a page of it meanwhile is seen.
pub(super) async fn is_over(shared: &Shared, conn: &Conn<'_>, flow: Uuid) -> Result<bool, Fault> {
    let over = conn.query(&IS_OVER, &[&shared.db.manual_now(), &flow]).await?;
    Ok(!over.is_empty())
}

/// Forgets a page of a flow's jobs and, when there are none, the flow; `true`: there may be more. A job that stays,
/// as a run does that owes something, is not looked at again at once.
pub(super) async fn forget(shared: &Shared, flow: Uuid) -> Result<bool> {
    let mut tries = Tries::brief();
    loop {
        let conn = shared.db.begin().await?;
        let acted = forget_in(shared, &conn, flow).await;
        match conn.end(acted).await {
            Ok((has_more, done)) => {
                done.tell(shared);
                return Ok(has_more);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// What was sent again and is not counted is counted first: with it, the flow goes on.
async fn forget_in(shared: &Shared, conn: &Conn<'_>, flow: Uuid) -> Result<(bool, Done), Fault> {
    let mut done = advance::advance_in(shared, conn, &[flow]).await?;
    if !is_over(shared, conn, flow).await? {
        return Ok((false, done));
    }
    let rows = conn.query(&JOBS, &[&flow, &PAGE_ENDS]).await?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    if ids.is_empty() {
        conn.query(&FORGET, &[&flow]).await?;
        return Ok((true, done));
    }
    let (purged, queues) = sweep::purge_in(conn, shared.db.manual_now(), &ids).await?;
    done.and(Done::new(queues, Vec::new()));
    Ok((purged > 0, done))
}
