//! Lines: jobs of one queue, tenant and key that run one at a time, in the order of their enqueue.
//!
//! What happens in a line is written down once, in functions of the database, which plain SQL uses as
//! well; here they are called. Lines are locked behind unique keys and before sheaves and leases.

use std::collections::BTreeSet;

use tidemill_core::{JobId, Line};
use uuid::Uuid;

use crate::error::Result;
use crate::postgres::connect::{Conn, Db};
use crate::postgres::error::Fault;
use crate::postgres::statement::{At, Statement, sql};
use crate::view::LineView;

const LOCK: Statement = sql!("lock_lines", TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY);
const LOCK_OF_WORKERS: Statement = sql!("lock_lines_of_workers", UUID_ARRAY);
const LEAVE: Statement = sql!("leave_line", UUID_ARRAY, TIMESTAMPTZ);
const LET_PASS: Statement = sql!("let_pass", UUID_ARRAY, TIMESTAMPTZ);
const WAITING: Statement = sql!("select_lined", UUID_ARRAY);
const PLACE: Statement = sql!("select_line", UUID);

/// Locks lines; behind unique keys, before any sheaf or lease.
pub(crate) async fn lock(conn: &Conn<'_>, lines: &BTreeSet<Line<'_>>) -> Result<(), Fault> {
    if !lines.is_empty() {
        let queues: Vec<&str> = lines.iter().map(|line| line.queue).collect();
        let tenants: Vec<Option<&str>> = lines.iter().map(|line| line.tenant).collect();
        let keys: Vec<&str> = lines.iter().map(|line| line.key).collect();
        conn.query(&LOCK, &[&queues, &tenants, &keys]).await?;
    }
    Ok(())
}

/// Locks the lines of what these workers hold.
pub(crate) async fn lock_of_workers(conn: &Conn<'_>, workers: &[Uuid]) -> Result<(), Fault> {
    conn.query(&LOCK_OF_WORKERS, &[&workers]).await?;
    Ok(())
}

/// Takes jobs out of their lines; answers the queues in which the next ones wait now.
pub(crate) async fn leave(
    conn: &Conn<'_>,
    now: Option<At>,
    ids: &[Uuid],
) -> Result<Vec<String>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.query(&LEAVE, &[&ids, &now]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Lets those pass who wait behind these, if they are dead; answers the queues in which they wait now.
pub(crate) async fn let_pass(
    conn: &Conn<'_>,
    now: Option<At>,
    ids: &[Uuid],
) -> Result<Vec<String>, Fault> {
    let rows = conn.query(&LET_PASS, &[&ids, &now]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Which of these wait behind the first of their line.
pub(crate) async fn waiting(conn: &Conn<'_>, ids: &[Uuid]) -> Result<Vec<Uuid>, Fault> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = conn.query(&WAITING, &[&ids]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The place of a job that waits in a line.
pub(crate) async fn place(db: &Db, id: JobId) -> Result<Option<LineView>> {
    let rows = db.read(&PLACE, &[&id.0]).await?;
    Ok(rows.first().map(|row| LineView {
        key: row.get(0),
        ahead: row.get::<_, i64>(1) as u64,
        head: JobId(row.get(2)),
        dead: row.get(3),
    }))
}
