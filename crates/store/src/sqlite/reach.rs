//! How many jobs workers may hold: what limits are measured by that cannot be exceeded.
//!
//! A limit that all workers together cannot exceed counts nobody. When a worker registers, or is to hold more than
//! before, a limit may come within their reach: then who runs inside of it is written down as a stowaway, in the same
//! turn.

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::{RuleBook, WorkerId};

use crate::error::Result;
use crate::sqlite::rows::count;
use crate::sqlite::writer::Turn;
use crate::sqlite::{queues, stowaways};

/// What limits are measured by in one claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reach {
    /// How many jobs all workers together may hold.
    pub all: u64,
    /// The same, with no more for this one than what it holds once it has all that it asks for.
    pub after: u64,
}

impl Reach {
    /// That of a claim that nothing counts, or that nobody's reach is known of.
    pub const UNKNOWN: Self = Self { all: u64::MAX, after: u64::MAX };
}

/// How many jobs all workers together may hold.
pub(super) fn sum(conn: &Connection) -> Result<u64> {
    let mut select = conn.prepare_cached(include_str!("sql/select_reach.sql"))?;
    Ok(select.query_one([], |row| count::<i64>(row, 0))?)
}

/// Lets a worker hold so many jobs more than it does.
pub(super) fn extend(turn: &Turn<'_>, worker: WorkerId, jobs: usize) -> Result<Reach> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/count_held_by.sql"))?;
    let found = select
        .query_one([worker.0.as_bytes()], |row| Ok((count::<i64>(row, 0)?, count::<i64>(row, 1)?)));
    let Some((reach, held)) = found.optional()? else { return Ok(Reach::UNKNOWN) };
    let wanted = held.saturating_add(jobs as u64);
    let after = sum(turn.conn)?.saturating_sub(reach).saturating_add(wanted);
    if wanted > reach {
        let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
        grow(turn, || {
            let mut raise = turn.conn.prepare_cached(include_str!("sql/raise_reach.sql"))?;
            raise.execute(params![worker.0.as_bytes(), wanted.min(i64::from(i32::MAX))])?;
            Ok(())
        })?;
    }
    Ok(Reach { all: sum(turn.conn)?, after })
}

/// Does what lets workers hold more.
pub(super) fn grow(turn: &Turn<'_>, more: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = sum(turn.conn)?;
    more()?;
    let after = sum(turn.conn)?;
    let book = queues::rules(turn.conn)?;
    if book.comes_within(before, after) {
        stowaways::find(turn, &book, after)?;
    }
    Ok(())
}

/// How many jobs all workers together may hold, once each of them may hold what it holds.
pub(super) fn cover(turn: &Turn<'_>, book: &RuleBook) -> Result<u64> {
    if book.counts() {
        turn.conn.prepare_cached(include_str!("sql/cover_reach.sql"))?.execute([])?;
    }
    sum(turn.conn)
}
