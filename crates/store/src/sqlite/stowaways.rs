//! Who runs inside of gates that it did not go through: what ran already when a limit was set.
//!
//! A change of rules writes them down, in its own transaction; they count as long as their lease has them. Their
//! attempts name no such gate when they end, so nobody is told: claims look now and then, as long as there are any.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::queue::RuleBook;
use tidemill_core::stowaway::{Inside, Running, inside};

use crate::error::Result;
use crate::sqlite::gates::Gate;
use crate::sqlite::lease::Lease;
use crate::sqlite::writer::Turn;

/// When to look again at the gates of a limit that has stowaways.
pub(super) const LOOK_US: i64 = 500_000;

/// Finds who runs inside of gates by these rules, which are new, and went through none of them.
pub(super) fn find(turn: &Turn<'_>, book: &RuleBook) -> Result<()> {
    let conn = turn.conn;
    open_all(turn)?;
    conn.prepare_cached(include_str!("sql/clear_stowaways.sql"))?.execute([])?;
    if !book.counts() {
        return Ok(());
    }
    let mut insert = conn.prepare_cached(include_str!("sql/insert_stowaways.sql"))?;
    let mut bases = BTreeSet::new();
    for Inside { base, gate, token, id } in inside(book, &running(conn)?) {
        if insert.execute(params![base, gate, token.0, id.0.as_bytes()])? > 0 {
            bases.insert(base);
        }
    }
    for base in bases {
        let mut gate = Gate::load(conn, &base)?;
        gate.open(turn.now + LOOK_US);
        gate.save(conn)?;
    }
    Ok(())
}

/// Whoever is held beside stowaways looks again: one that has ended is found no more, and then nobody would look there.
fn open_all(turn: &Turn<'_>) -> Result<()> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_stowed_holders.sql"))?;
    let gates = select.query_map([], |row| row.get::<_, String>(0))?;
    for name in gates.collect::<rusqlite::Result<Vec<_>>>()? {
        let mut gate = Gate::load(turn.conn, &name)?;
        gate.open(turn.now);
        gate.save(turn.conn)?;
    }
    Ok(())
}

/// All jobs that run.
fn running(conn: &Connection) -> Result<Vec<Running>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_attributes.sql"))?;
    let mut running = Vec::new();
    for lease in Lease::all(conn)? {
        for held in &lease.jobs {
            let (token, id) = (lease.token, held.id);
            let one = select.query_one([id.0.as_bytes()], |row| {
                let (queue, kind) = (row.get(0)?, row.get(1)?);
                Ok(Running { token, id, queue, kind, tenant: row.get(2)?, key: row.get(3)? })
            });
            running.extend(one.optional()?);
        }
    }
    Ok(running)
}

/// Whether there may be any, anywhere: one look for a claim where there are none.
pub(super) fn may_be(conn: &Connection) -> Result<bool> {
    let mut select = conn.prepare_cached(include_str!("sql/has_stowaways.sql"))?;
    Ok(select.query_one([], |row| row.get(0))?)
}

/// How many are inside of a gate of this limit, as far as that matters to one that lets so many in.
pub(super) fn count(conn: &Connection, base: &str, gate: &str, most: u32) -> Result<i64> {
    let mut select = conn.prepare_cached(include_str!("sql/count_stowaways.sql"))?;
    Ok(select.query_one(params![base, gate, most], |row| row.get(0))?)
}

/// Whether any is inside of a gate of this limit.
pub(super) fn are_at(conn: &Connection, base: &str) -> Result<bool> {
    let mut select = conn.prepare_cached(include_str!("sql/is_stowed.sql"))?;
    Ok(select.query_one([base], |row| row.get(0))?)
}

/// The gates of this limit that have some and hold somebody.
pub(super) fn gates(conn: &Connection, base: &str) -> Result<Vec<String>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_stowed_gates.sql"))?;
    let gates = select.query_map([base], |row| row.get(0))?;
    Ok(gates.collect::<rusqlite::Result<_>>()?)
}

/// Forgets those whose attempts have ended.
pub(super) fn sweep(turn: &Turn<'_>) -> Result<()> {
    if may_be(turn.conn)? {
        turn.conn.prepare_cached(include_str!("sql/sweep_stowaways.sql"))?.execute([])?;
    }
    Ok(())
}
