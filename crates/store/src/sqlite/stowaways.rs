//! Who runs inside of gates that it did not go through: what ran already when a limit began to count.
//!
//! A change of rules writes them down, in its own transaction, and so does whoever brings a limit within the reach of
//! workers (`reach.rs`); they count as long as their lease has them. Their attempts name no such gate when they end,
//! so nobody is told: claims look now and then, as long as there are any.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, params};
use tidemill_core::stowaway::{Inside, Running, inside};
use tidemill_core::{QueueLimit, RuleBook, Token, WorkerId};

use crate::error::Result;
use crate::sqlite::gates::Gate;
use crate::sqlite::lease::Lease;
use crate::sqlite::writer::Turn;
use crate::sqlite::{queues, reach};

/// When to look again at the gates of a limit that has stowaways.
pub(super) const LOOK_US: i64 = 500_000;

/// Finds who runs inside of gates by these rules and went through none of them, as far as workers that may hold so many
/// jobs could exceed their limits.
pub(super) fn find(turn: &Turn<'_>, book: &RuleBook, reach: u64) -> Result<()> {
    let conn = turn.conn;
    open_all(turn)?;
    conn.prepare_cached(include_str!("sql/clear_stowaways.sql"))?.execute([])?;
    if !book.is_within(reach) {
        return Ok(());
    }
    let mut insert = conn.prepare_cached(include_str!("sql/insert_stowaways.sql"))?;
    let mut bases = BTreeSet::new();
    let is_counted = |limit: &QueueLimit| !limit.is_out_of_reach(reach);
    for Inside { base, gate, token, id } in inside(book, &running(conn)?, is_counted) {
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

/// Limits that are out of reach, and who runs inside of their gates without a permit: they are not written down.
#[derive(Debug, Default)]
pub(super) struct Uncounted {
    pub wide: Vec<String>,
    pub inside: Vec<(String, WorkerId)>,
}

impl Uncounted {
    /// As far as these gates are concerned.
    pub fn of(conn: &Connection, names: &[String]) -> Result<Self> {
        let wide = queues::rules(conn)?.out_of_reach(names, reach::sum(conn)?);
        if wide.is_empty() {
            return Ok(Self::default());
        }
        let workers: HashMap<Token, WorkerId> =
            Lease::all(conn)?.iter().map(|lease| (lease.token, lease.worker)).collect();
        let mut has_permit = conn.prepare_cached(include_str!("sql/has_permit.sql"))?;
        let mut uncounted = Vec::new();
        let is_wide = |limit: &QueueLimit| wide.contains(&limit.gate);
        for Inside { gate, token, .. } in inside(&queues::rules(conn)?, &running(conn)?, is_wide) {
            if names.contains(&gate)
                && !has_permit.exists(params![gate, token.0])?
                && let Some(worker) = workers.get(&token)
            {
                uncounted.push((gate, *worker));
            }
        }
        Ok(Self { wide, inside: uncounted })
    }
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
