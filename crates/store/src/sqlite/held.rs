//! Who is held at gates, and letting them through, in pieces that keep nobody else waiting.
//!
//! Who is let through is back where he stood, and claims look again whether he may pass. Those of queues that nobody
//! asked for come after all others: nobody may be there to take them, and whoever is behind them would wait for ever.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::Priority;
use tidemill_core::gate::prefix;
use tidemill_core::share::{BandWeights, allot};

use crate::error::Result;
use crate::request::Lane;
use crate::sqlite::writer::Turn;

/// Those let through in one transaction, when rules change.
const PIECE: usize = 1000;

/// A job that a gate holds.
#[derive(Debug, Clone)]
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

/// Lanes that have turns at a gate, in the order of who has had the least, with their weights and the tenants that
/// were served last.
#[derive(Debug, Default)]
pub(super) struct Turns<'a>(pub Vec<(&'a Lane, u32, String)>);

impl<'a> Turns<'a> {
    /// Those of these queues.
    pub fn of(&self, queues: &[&str]) -> Vec<&(&'a Lane, u32, String)> {
        self.0.iter().filter(|(lane, ..)| queues.contains(&lane.queue.as_str())).collect()
    }
}

/// Lets so many of these lanes through that a gate holds, by their weights, and by turns of their tenants: whoever has
/// many waiting must not keep others from a limit that they share. Answers how many.
pub(super) fn let_through(
    conn: &Connection,
    gate: &str,
    mut lanes: Vec<&(&Lane, u32, String)>,
    room: i64,
) -> Result<i64> {
    let mut moved = 0;
    while moved < room && !lanes.is_empty() {
        let weights: Vec<u32> = lanes.iter().map(|(_, weight, _)| *weight).collect();
        let room_left = (room - moved) as usize;
        let mut quotas = vec![0; lanes.len()];
        if weights.iter().all(|weight| *weight == 0) {
            quotas[0] = room_left;
        } else {
            quotas = allot(room_left, &weights);
        }
        let mut still = Vec::new();
        for (lane, quota) in lanes.into_iter().zip(quotas) {
            let quota = quota as i64;
            let here = let_turns(conn, gate, lane.0, &lane.2, quota)?;
            moved += here;
            if here == quota {
                still.push(lane);
            }
        }
        lanes = still;
    }
    Ok(moved)
}

/// Lets so many of one lane through, by turns of its tenants, from the one behind this one on.
fn let_turns(conn: &Connection, gate: &str, lane: &Lane, behind: &str, number: i64) -> Result<i64> {
    let (queue, band) = (&lane.queue, lane.priority.band());
    let mut first = conn.prepare_cached(include_str!("sql/first_held_tenant.sql"))?;
    let mut next = conn.prepare_cached(include_str!("sql/next_held_tenant.sql"))?;
    let mut find = |behind: Option<&str>| -> Result<Option<String>> {
        let found = match behind {
            Some(behind) => next.query_one(params![gate, queue, band, behind], |row| row.get(0)),
            None => first.query_one(params![gate, queue, band], |row| row.get(0)),
        };
        Ok(found.optional()?)
    };
    let mut moved = 0;
    while moved < number {
        let (mut tenants, mut is_again) = (Vec::new(), false);
        let mut at = find(Some(behind))?;
        while (tenants.len() as i64) < number - moved {
            if at.is_none() && !is_again {
                is_again = true;
                at = find(None)?;
            }
            let is_met = |tenant: &String| is_again && tenant.as_str() > behind;
            let Some(tenant) = at.filter(|tenant| !is_met(tenant)) else { break };
            at = find(Some(&tenant))?;
            tenants.push(tenant);
        }
        let before = moved;
        let shares = allot((number - moved) as usize, &vec![1; tenants.len()]);
        for (tenant, share) in tenants.iter().zip(shares) {
            let mut select = conn.prepare_cached(include_str!("sql/select_held.sql"))?;
            let asked = params![gate, queue, band, tenant, share as i64];
            let held = select.query_map(asked, Held::of_row)?.collect::<rusqlite::Result<Vec<_>>>();
            let held = held?;
            held.iter().try_for_each(|one| one.let_through(conn))?;
            moved += held.len() as i64;
        }
        if moved == before {
            break;
        }
    }
    Ok(moved)
}

/// Lets the first ones of each queue through that a gate holds, so many of each; answers how many.
pub(super) fn let_each_through(conn: &Connection, gate: &str, room: i64) -> Result<i64> {
    let mut select = conn.prepare_cached(include_str!("sql/held_queues.sql"))?;
    let queues = select.query_map([gate], |row| row.get::<_, String>(0))?;
    let queues: Vec<String> = queues.collect::<rusqlite::Result<_>>()?;
    let weights = BandWeights::default();
    queues.iter().try_fold(0, |sum, queue| {
        let lane = |priority| Lane { queue: queue.clone(), priority };
        let lanes = Priority::ALL.map(|priority| (lane(priority), weights.of(priority)));
        let turns: Vec<_> =
            lanes.iter().map(|(lane, weight)| (lane, *weight, String::new())).collect();
        Ok(sum + let_through(conn, gate, turns.iter().collect(), room)?)
    })
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
        let begin = prefix(rule);
        let end = format!("{begin}{}", char::MAX);
        Self { at: Held::before(&begin), end }
    }

    /// Between which names they are.
    pub fn names(&self) -> (&str, &str) {
        (&self.at.gate, &self.end)
    }

    /// Lets the next of those through who are held at them: they may be held elsewhere now, or not at all. Each is
    /// met once, so that it ends, whatever claims hold meanwhile. `None`: there are no more.
    pub fn release(mut self, turn: &mut Turn<'_>) -> Result<Option<Self>> {
        let held = onward(turn.conn, &self.at, &self.end, PIECE)?;
        // They may be due since long.
        turn.marks.forget();
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
    let Held { run_at, id, queue, priority, tenant, gate } = at;
    let asked = params![gate, queue, priority, tenant, run_at, id, end, number as i64];
    let held = select.query_map(asked, Held::of_row)?;
    Ok(held.collect::<rusqlite::Result<_>>()?)
}
