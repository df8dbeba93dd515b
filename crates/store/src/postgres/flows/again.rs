//! Dead jobs of a flow that are sent on their way again, all that there are. If only so many may be under way at once,
//! they wait in the flow for their places, as they did before they were let go for the first time.

use tidemill_core::{By, FlowId, JobId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::advance::{self, Done};
use crate::error::Result;
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::dead::{self, REPLAY};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};

pub(super) const DEAD: Statement = sql!("select_dead_of_flow", UUID, INT4, INT8, INT4, UUID);
const HOLD: Statement = sql!("hold_again", UUID_ARRAY, INT4_ARRAY);

/// Dead letters that are sent on their way again at a time.
const PAGE_JOBS: i64 = 1000;

/// The step and the id of a dead job: the next page begins behind it.
pub(super) type Spot = (i32, Uuid);
/// Before all of them.
pub(super) const BEFORE_ALL: Spot = (-1, Uuid::nil());

/// Sends the dead jobs of a flow, or of one of its steps, on their way again, each once; answers how many. One that
/// dies once more meanwhile stays: there would be no end to it.
pub(super) async fn send_again(
    shared: &Shared,
    id: FlowId,
    step: Option<i32>,
    is_capped: bool,
    by: By<'_>,
) -> Result<u64> {
    let (mut jobs, mut next) = (0, Some(BEFORE_ALL));
    while let Some(behind) = next {
        let sent;
        (sent, next) = if is_capped {
            send_capped(shared, id.0, step, behind, by).await?
        } else {
            let page: [Param<'_>; 5] = [&id.0, &step, &PAGE_JOBS, &behind.0, &behind.1];
            let rows = shared.db.read(&DEAD, &page).await?;
            let ids: Vec<JobId> = rows.iter().map(|row| JobId(row.get(0))).collect();
            (dead::replay(shared, &ids, by, None).await?.len() as u64, last_of(&rows))
        };
        jobs += sent;
    }
    if jobs > 0 {
        advance::advance(shared, &[id.0]).await?;
    }
    Ok(jobs)
}

/// Where the next page begins, if there may be one.
fn last_of(rows: &[Row]) -> Option<Spot> {
    let last = rows.last().filter(|_| rows.len() as i64 == PAGE_JOBS)?;
    Some((last.get(1), last.get(0)))
}

/// A page of them, under the flow's lock: nobody takes one before it is held.
async fn send_capped(
    shared: &Shared,
    id: Uuid,
    step: Option<i32>,
    behind: Spot,
    by: By<'_>,
) -> Result<(u64, Option<Spot>)> {
    let mut tries = Tries::once();
    loop {
        let conn = shared.db.begin().await?;
        let acted = send_capped_in(shared, &conn, id, step, behind, by).await;
        match conn.end(acted).await {
            Ok((sent, done)) => {
                done.tell(shared);
                return Ok(sent);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn send_capped_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: Uuid,
    step: Option<i32>,
    behind: Spot,
    by: By<'_>,
) -> Result<((u64, Option<Spot>), Done), Fault> {
    let mut boards = advance::lock(conn, &[id]).await?;
    let page: [Param<'_>; 5] = [&id, &step, &PAGE_JOBS, &behind.0, &behind.1];
    let dead = conn.query(&DEAD, &page).await?;
    let next = last_of(&dead);
    let dead: Vec<Uuid> = dead.iter().map(|row| row.get(0)).collect();
    let (now, payload) = (shared.db.manual_now(), None::<&str>);
    let replay: [Param<'_>; 5] = [&now, &dead, &by.who, &by.why, &payload];
    let rows = conn.query(&REPLAY, &replay).await?;
    let sent: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    // Some may wait in a line now.
    let mut done = Done::new(rows.iter().map(|row| row.get(1)).collect(), Vec::new());
    advance::arrive(conn, &[id], &mut boards).await?;
    if let Some(board) = boards.first_mut() {
        let steps: Vec<i32> = board.under_way().map(|step| step as i32).collect();
        let held = conn.query(&HOLD, &[&sent, &steps]).await?;
        let held =
            held.iter().map(|row| (row.get::<_, i32>(0) as u32, row.get::<_, i64>(1) as u64));
        board.hold_again(&held.collect::<Vec<_>>());
        done.and(advance::carry_on(shared, conn, &mut boards).await?);
    }
    Ok(((sent.len() as u64, next), done))
}
