//! How many jobs workers may hold: what limits are measured by that cannot be exceeded.
//!
//! A limit that all workers together cannot exceed counts nobody. So whoever registers where something counts, or is
//! to hold more than before, has the lock of the rules alone, as a change of them has: no claim is under way. If a
//! limit can be exceeded from then on, who runs inside of it is written down as a stowaway, in the same transaction.
//!
//! What is to be written to rows of workers is computed by a look at them, and written when everybody who runs was
//! looked at: a beat waits for nobody who looks. Then come the gates, as in a rescue, which has deleted its workers
//! before.

use tidemill_core::{RuleBook, WorkerId};

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};
use crate::postgres::{queues, stowaways};

const LOCK: Statement = sql!("lock_rules");
const REACH: Statement = sql!("select_reach");
const OWN: Statement = sql!("select_own_reach", UUID);
const COVERED: Statement = sql!("select_covered");
const COVER: Statement = sql!("cover_reach");
const RAISE: Statement = sql!("raise_reach", UUID, INT4);

/// Lets a worker hold so many jobs; at least twice as many as before, so that this is rare.
pub(crate) async fn raise(db: &Db, worker: WorkerId, jobs: i32) -> Result<()> {
    let wanted = |own: i32| if own < jobs { jobs.max(own.saturating_mul(2)) } else { own };
    let wanted = |own: Option<i32>| own.map_or(0, wanted);
    grow(db, worker, wanted, &RAISE, &[&worker.0, &jobs]).await
}

/// Runs a statement that lets a worker hold as many as it says of how many it may hold now; it may be sent again.
pub(crate) async fn grow(
    db: &Db,
    worker: WorkerId,
    wanted: impl Fn(Option<i32>) -> i32,
    sql: &Statement,
    params: &[Param<'_>],
) -> Result<()> {
    let mut tries = Tries::resend();
    loop {
        let done = async {
            let conn = db.begin().await?;
            let grown = grow_alone(db, &conn, worker, &wanted, sql, params).await;
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
    worker: WorkerId,
    wanted: impl Fn(Option<i32>) -> i32,
    sql: &Statement,
    params: &[Param<'_>],
) -> Result<(), Fault> {
    conn.query(&LOCK, &[]).await?;
    let rows = conn.query(&OWN, &[&worker.0]).await?;
    let (before, own) = rows.first().map_or((0, None), |row| (row.get::<_, i64>(0), row.get(1)));
    let after = before + i64::from(wanted(own)) - i64::from(own.unwrap_or(0));
    let book = queues::book_of(conn).await?;
    let found = if book.comes_within(before as u64, after as u64) {
        Some(stowaways::find(conn, &book, after as u64).await?)
    } else {
        None
    };
    conn.query(sql, params).await?;
    match found {
        Some(found) => found.open(conn, db.manual_now()).await,
        None => Ok(()),
    }
}

/// How many jobs all workers together may hold, once each of them may hold what it holds. The caller is alone.
pub(crate) async fn covered(conn: &Conn<'_>, book: &RuleBook) -> Result<u64, Fault> {
    let sum_of = if book.counts() { &COVERED } else { &REACH };
    Ok(sum(&conn.query(sum_of, &[]).await?))
}

/// Lets each worker hold what it holds. The caller is alone, so that is no more than when it asked for the sum.
pub(crate) async fn cover(conn: &Conn<'_>, book: &RuleBook) -> Result<(), Fault> {
    if book.counts() {
        conn.query(&COVER, &[]).await?;
    }
    Ok(())
}

/// How many jobs all workers together may hold, as a reader sees it.
pub(crate) async fn read(db: &Db) -> Result<u64> {
    Ok(sum(&db.read(&REACH, &[]).await?))
}

fn sum(rows: &[tokio_postgres::Row]) -> u64 {
    rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64)
}
