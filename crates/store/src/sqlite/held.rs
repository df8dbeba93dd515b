//! Who is held at gates, and letting them through, in pieces that keep nobody else waiting.
//!
//! Who is let through is back where he stood, and claims look again whether he may pass. Those of queues that nobody
//! asked for come after all others: nobody may be there to take them, and whoever is behind them would wait for ever.

use rusqlite::{Connection, Row, params};

use crate::error::Result;
use crate::sqlite::writer::Turn;

/// Those let through in one transaction, when rules change.
const PIECE: usize = 1000;

/// A job that a gate holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    run_at: i64,
    id: Vec<u8>,
    queue: String,
    priority: i16,
    tenant: String,
    gate: String,
}

impl Held {
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            queue: row.get(0)?,
            run_at: row.get(1)?,
            id: row.get(2)?,
            priority: row.get(3)?,
            tenant: row.get(4)?,
            gate: row.get(5)?,
        })
    }

    /// Before all that this gate, and those whose names begin with its name, hold.
    fn before(gate: &str) -> Self {
        let (queue, tenant, id) = (String::new(), String::new(), Vec::new());
        Self { run_at: i64::MIN, id, queue, priority: 0, tenant, gate: gate.to_owned() }
    }

    fn let_through(&self, conn: &Connection) -> Result<()> {
        let Self { queue, priority, tenant, run_at, id, .. } = self;
        let mut update = conn.prepare_cached(include_str!("sql/let_through.sql"))?;
        update.execute(params![queue, priority, tenant, run_at, id])?;
        Ok(())
    }
}

/// Lets the first ones of these queues through that a gate holds; answers how many.
pub(super) fn let_through(
    conn: &Connection,
    gate: &str,
    queues: &[&str],
    room: i64,
) -> Result<i64> {
    let mut select = conn.prepare_cached(include_str!("sql/select_held.sql"))?;
    let mut held = Vec::new();
    for queue in queues {
        let of_queue = select.query_map(params![gate, queue, room], Held::of_row)?;
        held.extend(of_queue.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    held.sort_unstable();
    held.truncate(usize::try_from(room).unwrap_or(0));
    held.iter().try_for_each(|one| one.let_through(conn))?;
    Ok(held.len() as i64)
}

/// Lets the first ones of each queue through that a gate holds, so many of each; answers how many.
pub(super) fn let_each_through(conn: &Connection, gate: &str, room: i64) -> Result<i64> {
    let mut select = conn.prepare_cached(include_str!("sql/held_queues.sql"))?;
    let queues = select.query_map([gate], |row| row.get::<_, String>(0))?;
    let queues: Vec<String> = queues.collect::<rusqlite::Result<_>>()?;
    queues.iter().try_fold(0, |sum, queue| Ok(sum + let_through(conn, gate, &[queue], room)?))
}

/// Lets up to so many through that a gate holds, whatever their queue.
pub(super) fn let_any_through(conn: &Connection, gate: &str, number: usize) -> Result<()> {
    let held = onward(conn, &Held::before(gate), &format!("{gate}\u{1}"), number)?;
    held.iter().try_for_each(|one| one.let_through(conn))
}

/// The gates that may not be what they were, when the rules of a queue or pattern change.
#[derive(Debug, Clone)]
pub(super) struct Changed {
    at: Held,
    end: String,
}

impl Changed {
    pub fn by(rule: &str) -> Self {
        let begin = rule.strip_suffix('*').map_or(format!("{rule}/"), str::to_owned);
        let end = format!("{begin}{}", char::MAX);
        Self { at: Held::before(&begin), end }
    }

    /// Lets the next of those through who are held at them: they may be held elsewhere now, or not at all. Each is
    /// met once, so that it ends, whatever claims hold meanwhile. `None`: there are no more.
    pub fn release(mut self, turn: &mut Turn<'_>) -> Result<Option<Self>> {
        let held = onward(turn.conn, &self.at, &self.end, PIECE)?;
        let mut told: Option<&str> = None;
        for one in &held {
            one.let_through(turn.conn)?;
            if told != Some(one.queue.as_str()) {
                turn.news.open(&one.queue);
                told = Some(one.queue.as_str());
            }
        }
        let is_more = held.len() == PIECE;
        Ok(held.into_iter().last().filter(|_| is_more).map(|last| {
            self.at = last;
            self
        }))
    }
}

fn onward(conn: &Connection, at: &Held, end: &str, number: usize) -> Result<Vec<Held>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_held_onward.sql"))?;
    let asked = params![at.gate, at.queue, at.run_at, at.id, end, number as i64];
    let held = select.query_map(asked, Held::of_row)?;
    Ok(held.collect::<rusqlite::Result<_>>()?)
}
