//! Who runs inside of gates that it did not go through: what ran already when a limit began to count.
//!
//! A change of rules writes them down, in its own transaction, while no claim is under way, and so does whoever brings
//! a limit within the reach of workers (`reach.rs`); they count as long as their lease has them. Their attempts name
//! no such gate when they end, so nobody is told: claims look now and then, as long as there are any
//! (`tidemill.next_look`).

use tidemill_core::queue::RuleBook;
use tidemill_core::stowaway::{Inside, Running, inside};
use tidemill_core::{JobId, Token};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::Fault;
use crate::postgres::statement::{At, Statement, sql};
use crate::postgres::{queues, reach};

const CLEAR: Statement = sql!("clear_stowaways");
const RUNNING: Statement = sql!("select_attributes");
const INSERT: Statement = sql!("insert_stowaways", TEXT_ARRAY, TEXT_ARRAY, INT8_ARRAY, UUID_ARRAY);
const OPEN: Statement = sql!("open_stowed", TIMESTAMPTZ, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY);
const SWEEP: Statement = sql!("sweep_stowaways");

/// The gates that are to be looked at, because stowaways are or were inside of them. Their rows come after those of
/// workers.
#[must_use]
pub(crate) struct Found {
    stowed: Vec<String>,
    held_bases: Vec<String>,
    held_gates: Vec<String>,
}

/// Finds who runs inside of gates by these rules and went through none of them, as far as workers that may hold so many
/// jobs could exceed their limits. No claim is under way.
pub(crate) async fn find(conn: &Conn<'_>, book: &RuleBook, reach: u64) -> Result<Found, Fault> {
    let all = if book.is_within(reach) {
        let rows = conn.query(&RUNNING, &[]).await?;
        let running = rows.iter().map(running).collect::<Vec<_>>();
        inside(book, &running, |limit| !limit.is_out_of_reach(reach))
    } else {
        Vec::new()
    };
    let held = conn.query(&CLEAR, &[]).await?;
    let stowed = if all.is_empty() { Vec::new() } else { stow(conn, &all).await? };
    Ok(Found {
        stowed,
        held_bases: held.iter().map(|row| row.get(0)).collect(),
        held_gates: held.iter().map(|row| row.get(1)).collect(),
    })
}

async fn stow(conn: &Conn<'_>, all: &[Inside]) -> Result<Vec<String>, Fault> {
    let bases: Vec<&str> = all.iter().map(|one| one.base.as_str()).collect();
    let gates: Vec<&str> = all.iter().map(|one| one.gate.as_str()).collect();
    let tokens: Vec<i64> = all.iter().map(|one| one.token.0).collect();
    let ids: Vec<Uuid> = all.iter().map(|one| one.id.0).collect();
    let rows = conn.query(&INSERT, &[&bases, &gates, &tokens, &ids]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

impl Found {
    /// Has them looked at.
    pub async fn open(self, conn: &Conn<'_>, now: Option<At>) -> Result<(), Fault> {
        let Self { stowed, held_bases, held_gates } = self;
        if !stowed.is_empty() || !held_gates.is_empty() {
            conn.query(&OPEN, &[&now, &stowed, &held_bases, &held_gates]).await?;
        }
        Ok(())
    }
}

fn running(row: &Row) -> Running {
    Running {
        token: Token(row.get(0)),
        id: JobId(row.get(1)),
        queue: row.get(2),
        kind: row.get(3),
        tenant: row.get(4),
        key: row.get(5),
    }
}

/// Who runs inside of these gates whose limits are out of reach, with a permit or without: they are not written down.
/// Also answers these limits.
pub(crate) async fn uncounted(db: &Db, names: &[String]) -> Result<(Vec<String>, Vec<Inside>)> {
    let (book, reach) = (queues::rules(db).await?, reach::read(db).await?);
    let wide = book.out_of_reach(names, reach);
    if wide.is_empty() {
        return Ok((wide, Vec::new()));
    }
    let rows = db.read(&RUNNING, &[]).await?;
    let running = rows.iter().map(running).collect::<Vec<_>>();
    let mut all = inside(&book, &running, |limit| wide.contains(&limit.gate));
    all.retain(|one| names.contains(&one.gate));
    Ok((wide, all))
}

/// Forgets those whose attempts have ended.
pub(crate) async fn sweep(db: &Db) -> Result<()> {
    db.read(&SWEEP, &[]).await.map(drop)
}
