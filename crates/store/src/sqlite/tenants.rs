//! Whose turn it is among the tenants of a lane.
//!
//! The tenants of a lane stand one after another in the key of the ready rows, so the next one is found
//! by one look, however many jobs each has. A claim goes on behind the tenant that was served last.
//!
//! Tenants that have nothing but jobs that wait for the clock would be looked at in every round. Where a round meets
//! many, what they have is laid aside: it stands in a band of its own until it is due.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::Result;
use crate::request::Lane;

/// Looks in vain that one round may cost besides those for the jobs it takes.
pub(super) const SPARE_VISITS: usize = 64;
/// Looks in one claim: ten thousand tenants may only wait for the clock.
pub(super) const VISITS_MAX: usize = 4000;

/// Rows that one claim lays aside, and that it brings back of each lane.
pub(super) const ASIDE_MAX: usize = 1000;

/// A part of the tenants, in turn.
#[derive(Default)]
pub(super) struct Round {
    /// Those that have something due.
    pub tenants: Vec<String>,
    /// Those that only wait for the clock. Who has no tenant is not among them: that is one at the most.
    pub idle: Vec<String>,
    /// The last one looked at.
    pub last: Option<String>,
    /// Whether all were looked at.
    pub is_whole: bool,
}

/// Any tenant of a queue. Processes that have served nobody begin there: if all began with the first name, the last
/// would wait for as long as processes come and go.
pub(super) fn any(conn: &Connection, queue: &str) -> Result<String> {
    let mut select = conn.prepare_cached(include_str!("sql/any_tenant.sql"))?;
    Ok(select.query_one([queue], |row| row.get(0)).optional()?.unwrap_or_default())
}

/// The tenants behind the one that was served last, then from the beginning; no more than this many.
pub(super) fn in_turn(
    conn: &Connection,
    now: i64,
    lane: &Lane,
    behind: &str,
    visits_max: usize,
) -> Result<Round> {
    let band = lane.priority.band();
    let mut next = conn.prepare_cached(include_str!("sql/next_tenant.sql"))?;
    let mut first = conn.prepare_cached(include_str!("sql/first_tenant.sql"))?;
    let read = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let mut round = Round::default();
    let (mut at, mut again) = (behind.to_owned(), false);
    for _ in 0..visits_max {
        let mut found = next.query_one(params![lane.queue, band, at], read).optional()?;
        if found.is_none() && !again {
            again = true;
            found = first.query_one(params![lane.queue, band], read).optional()?;
        }
        let Some((tenant, run_at)) =
            found.filter(|(tenant, _)| !again || tenant.as_str() <= behind)
        else {
            round.is_whole = true;
            break;
        };
        if run_at <= now {
            round.tenants.push(tenant.clone());
        } else if !tenant.is_empty() {
            round.idle.push(tenant.clone());
        }
        round.last = Some(tenant.clone());
        at = tenant;
    }
    Ok(round)
}

/// Lays aside what these tenants of a lane have waiting, at most so many rows; answers how many.
pub(super) fn lay_aside(
    conn: &Connection,
    now: i64,
    lane: &Lane,
    idle: &[String],
    most: usize,
) -> Result<usize> {
    let mut lay = conn.prepare_cached(include_str!("sql/lay_aside.sql"))?;
    let mut laid = 0;
    for tenant in idle {
        if laid >= most {
            break;
        }
        laid += lay.execute(params![
            lane.queue,
            lane.priority.band(),
            tenant,
            now,
            (most - laid) as i64
        ])?;
    }
    Ok(laid)
}

/// Brings back what is due by now of a lane; answers whether that was all.
pub(super) fn bring_back(conn: &Connection, now: i64, lane: &Lane) -> Result<bool> {
    let mut bring = conn.prepare_cached(include_str!("sql/bring_back.sql"))?;
    let brought =
        bring.execute(params![lane.queue, lane.priority.band(), now, ASIDE_MAX as i64])?;
    Ok(brought < ASIDE_MAX)
}
