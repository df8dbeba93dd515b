//! How many jobs workers may hold: what limits are measured by that cannot be exceeded.
//!
//! A limit that all workers together cannot exceed counts nobody. So whoever registers where something counts, or is
//! to hold more than before, has the lock of the rules alone, as a change of them has: no claim is under way. If a
//! limit can be exceeded from then on, who runs inside of it is written down as a stowaway, in the same transaction.

use tidemill_core::{RuleBook, WorkerId};

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};
use crate::postgres::{queues, stowaways};

const LOCK: Statement = sql!("lock_rules");
const REACH: Statement = sql!("select_reach");
const COVER: Statement = sql!("cover_reach");
const RAISE: Statement = sql!("raise_reach", UUID, INT4);

/// Lets a worker hold so many jobs.
pub(crate) async fn raise(db: &Db, worker: WorkerId, jobs: i32) -> Result<()> {
    grow(db, &RAISE, &[&worker.0, &jobs]).await
}

/// Runs a statement that lets workers hold more; it may be sent again.
pub(crate) async fn grow(db: &Db, sql: &Statement, params: &[Param<'_>]) -> Result<()> {
    let mut tries = Tries::resend();
    loop {
        let done = async {
            let conn = db.begin().await?;
            let grown = grow_alone(db, &conn, sql, params).await;
            conn.end(grown).await
        };
        match done.await {
            Ok(()) => return Ok(()),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn grow_alone(
    db: &Db,
    conn: &Conn<'_>,
    sql: &Statement,
    params: &[Param<'_>],
) -> Result<(), Fault> {
    conn.query(&LOCK, &[]).await?;
    let before = reach(conn).await?;
    conn.query(sql, params).await?;
    let after = reach(conn).await?;
    let book = queues::book_of(conn).await?;
    if book.comes_within(before, after) {
        stowaways::find(conn, db.manual_now(), &book, after).await?;
    }
    Ok(())
}

/// How many jobs all workers together may hold, once each of them may hold what it holds. The caller is alone.
pub(crate) async fn cover(conn: &Conn<'_>, book: &RuleBook) -> Result<u64, Fault> {
    if book.counts() {
        conn.query(&COVER, &[]).await?;
    }
    reach(conn).await
}

async fn reach(conn: &Conn<'_>) -> Result<u64, Fault> {
    Ok(sum(&conn.query(&REACH, &[]).await?))
}

/// How many jobs all workers together may hold, as a reader sees it.
pub(crate) async fn read(db: &Db) -> Result<u64> {
    Ok(sum(&db.read(&REACH, &[]).await?))
}

fn sum(rows: &[tokio_postgres::Row]) -> u64 {
    rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64)
}
