//! What gates remember, and what happens when an attempt comes out of one.
//!
//! A settle gives its permits back, shuts what is to be shut, and counts for or against the other side, all
//! in its own transaction. Who may pass next is decided by claims alone, because only they know the limits:
//! here it is only noted that looking is worth it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::gate::{GateView, PART};
use tidemill_core::{Breaker, Token};

use crate::error::Result;
use crate::request::SettleItem;
use crate::sqlite::rows::{count, time, worker_id};
use crate::sqlite::writer::Turn;
use crate::sqlite::{held, queues};

/// Those let through at once by a gate that nothing else bounds.
pub(super) const LET_THROUGH_MAX: i64 = 1000;

/// What a gate remembers. Times are microseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gate {
    pub name: String,
    pub tat: Option<i64>,
    pub shut_until: Option<i64>,
    /// 0: as usual; 1: the next one that passes is a probe; 2: a probe is out.
    pub probing: u8,
    pub good: u32,
    pub bad: u32,
    pub window_at: Option<i64>,
    pub credit: Option<f64>,
    pub opens_at: Option<i64>,
}

impl Gate {
    pub fn load(conn: &Connection, name: &str) -> Result<Self> {
        let read = |row: &Row<'_>| {
            Ok(Self {
                name: name.to_owned(),
                tat: row.get(0)?,
                shut_until: row.get(1)?,
                probing: row.get(2)?,
                good: row.get(3)?,
                bad: row.get(4)?,
                window_at: row.get(5)?,
                credit: row.get(6)?,
                opens_at: row.get(7)?,
            })
        };
        let mut select = conn.prepare_cached(include_str!("sql/select_gate.sql"))?;
        let found = select.query_one([base(name), name], read).optional()?;
        Ok(found.unwrap_or_else(|| Self::named(name)))
    }

    /// One that has nothing to remember yet.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    pub fn save(&self, conn: &Connection) -> Result<()> {
        conn.prepare_cached(include_str!("sql/upsert_gate.sql"))?.execute(params![
            base(&self.name),
            self.name,
            self.tat,
            self.shut_until,
            self.probing,
            self.good,
            self.bad,
            self.window_at,
            self.credit,
            self.opens_at
        ])?;
        Ok(())
    }

    /// It is worth looking now whether somebody may pass; not before it opens, if it is shut.
    pub fn open(&mut self, now: i64) {
        let at = self.shut_until.filter(|until| *until > now).unwrap_or(now);
        self.opens_at = Some(self.opens_at.map_or(at, |opens| opens.min(at)));
    }

    fn shut(&mut self, until: i64) {
        let until = self.shut_until.map_or(until, |shut| shut.max(until));
        (self.shut_until, self.opens_at) = (Some(until), Some(until));
    }

    /// Counts how an attempt ended: too many failures in a window shut the gate; then one probe decides.
    /// What comes in while it is shut and no probe is out began before, and says nothing new.
    fn judge(&mut self, now: i64, breaker: &Breaker, is_well: bool) {
        let us = |ms: u64| i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        match (self.probing, is_well) {
            (0, _) => {
                if self.window_at.is_none_or(|at| at <= now.saturating_sub(us(breaker.window_ms))) {
                    (self.window_at, self.good, self.bad) = (Some(now), 0, 0);
                }
                self.good += u32::from(is_well);
                self.bad += u32::from(!is_well);
                let all = u64::from(self.good) + u64::from(self.bad);
                let is_tripped = all >= u64::from(breaker.attempts_min)
                    && u64::from(self.bad) * 100 >= u64::from(breaker.failures_percent) * all;
                if is_tripped {
                    self.probing = 1;
                    self.shut(now.saturating_add(us(breaker.open_ms)));
                }
            }
            (2, false) => {
                self.probing = 1;
                self.shut(now.saturating_add(us(breaker.open_ms)));
            }
            (2, true) => {
                (self.probing, self.window_at, self.shut_until) = (0, None, None);
                self.opens_at = Some(now);
            }
            _ => {}
        }
    }
}

/// How attempts came out of one gate.
#[derive(Debug, Default)]
struct Tally {
    freed: BTreeMap<Token, i64>,
    shut_for: Option<Duration>,
    breaker: Option<Breaker>,
    wells: Vec<bool>,
}

/// Attempts that come out of their gates, each settled and accepted.
#[derive(Debug, Default)]
pub(super) struct Leaving(BTreeMap<Arc<str>, Tally>);

impl Leaving {
    /// Notes one.
    pub fn add(&mut self, item: &SettleItem) {
        for end in &item.gates {
            let tally = self.0.entry(Arc::clone(&end.gate)).or_default();
            *tally.freed.entry(item.token).or_default() += 1;
            tally.shut_for = tally.shut_for.max(end.shut_for);
            tally.breaker = end.breaker.or(tally.breaker);
            tally.wells.extend(item.is_well().filter(|_| end.breaker.is_some()));
        }
    }

    /// Gives permits back, but those of leases that end: theirs go with them. Each gate is looked at once,
    /// and only if somebody waits at one, or something is to be said there.
    pub fn come_out(self, turn: &mut Turn<'_>, is_ending: impl Fn(Token) -> bool) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let (conn, now) = (turn.conn, turn.now);
        let mut free = conn.prepare_cached(include_str!("sql/free_permit.sql"))?;
        let mut waiting = conn.prepare_cached(include_str!("sql/is_waiting.sql"))?;
        let is_waiting: bool = waiting.query_one([], |row| row.get(0))?;
        for (name, tally) in self.0 {
            for (token, number) in tally.freed.into_iter().filter(|(token, _)| !is_ending(*token)) {
                free.execute(params![name, token.0, number])?;
            }
            let is_open = is_waiting && tell(turn, &name)?;
            if !is_open && tally.shut_for.is_none() && tally.wells.is_empty() {
                continue;
            }
            let mut gate = Gate::load(conn, &name)?;
            if let Some(shut_for) = tally.shut_for {
                let us = i64::try_from(shut_for.as_micros()).unwrap_or(i64::MAX);
                gate.shut(now.saturating_add(us));
            }
            for (breaker, is_well) in
                tally.breaker.iter().flat_map(|b| tally.wells.iter().map(move |w| (b, *w)))
            {
                gate.judge(now, breaker, is_well);
            }
            if is_open {
                gate.open(now);
            }
            gate.save(conn)?;
        }
        Ok(())
    }
}

/// The places that a lease has inside gates are free, once it is gone.
pub(super) fn vacate(turn: &mut Turn<'_>, token: Token) -> Result<()> {
    let conn = turn.conn;
    let mut select = conn.prepare_cached(include_str!("sql/select_gates_of_lease.sql"))?;
    let gates = select.query_map([token.0], |row| row.get::<_, String>(0))?;
    for name in gates.collect::<rusqlite::Result<Vec<_>>>()? {
        tell(turn, &name)?;
        let mut gate = Gate::load(conn, &name)?;
        gate.open(turn.now);
        gate.save(conn)?;
    }
    Ok(())
}

/// The name of the limit in the name of a gate.
fn base(name: &str) -> &str {
    name.split(PART).next().unwrap_or_default()
}

/// Tells the queues that wait at a gate; answers whether it holds somebody.
fn tell(turn: &mut Turn<'_>, gate: &str) -> Result<bool> {
    let conn = turn.conn;
    let mut select = conn.prepare_cached(include_str!("sql/held_queues.sql"))?;
    let queues = select.query_map([gate], |row| row.get::<_, String>(0))?;
    let queues: Vec<_> = queues.collect::<rusqlite::Result<_>>()?;
    if queues.is_empty() {
        return Ok(false);
    }
    for queue in queues {
        turn.news.open(&queue);
    }
    conn.prepare_cached(include_str!("sql/delete_turned_away.sql"))?.execute([gate])?;
    let mut holds = conn.prepare_cached(include_str!("sql/is_holding.sql"))?;
    Ok(holds.query_one([gate], |row| row.get(0))?)
}

/// Lets those through that nobody else would: their gate holds them while there is room, or no such limit, and no
/// clock opens it. Claims look again whether they may pass.
pub(super) fn unstick(turn: &mut Turn<'_>) -> Result<()> {
    let conn = turn.conn;
    if !conn.prepare_cached(include_str!("sql/is_waiting.sql"))?.query_one([], |row| row.get(0))? {
        return Ok(());
    }
    let book = queues::rules(conn)?;
    let named = book
        .named_limits()
        .map(|(base, limit)| serde_json::json!({ "base": base, "most": limit.concurrency }));
    let named = named.collect::<serde_json::Value>().to_string();
    let mut select = conn.prepare_cached(include_str!("sql/select_stuck_gates.sql"))?;
    let stuck = select.query_map(params![turn.now, named], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?))
    })?;
    let stuck: Vec<_> = stuck.collect::<rusqlite::Result<_>>()?;
    for (gate, room) in stuck {
        tell(turn, &gate)?;
        held::let_any_through(conn, &gate, room as usize)?;
    }
    Ok(())
}

/// How many jobs of a queue are held at each of these gates.
pub(super) fn held_of(conn: &Connection, queue: &str, gates: &[String]) -> Result<Vec<u64>> {
    let mut held = conn.prepare_cached(include_str!("sql/count_held_of.sql"))?;
    gates
        .iter()
        .map(|gate| Ok(held.query_one([gate, queue], |row| count::<i64>(row, 0))?))
        .collect()
}

/// What is known of a gate: what it remembers, who is inside, by worker, and how many are held there.
pub(super) fn view(conn: &Connection, name: &str) -> Result<GateView> {
    let gate = Gate::load(conn, name)?;
    let mut select = conn.prepare_cached(include_str!("sql/select_inside.sql"))?;
    let inside = select
        .query_map([base(name), name], |row| Ok((worker_id(row, 0)?, count::<i64>(row, 1)?)))?;
    let mut held = conn.prepare_cached(include_str!("sql/count_held.sql"))?;
    Ok(GateView {
        inside: inside.collect::<rusqlite::Result<_>>()?,
        tat: gate.tat.map(time),
        shut_until: gate.shut_until.map(time),
        is_broken: gate.probing > 0,
        credit: gate.credit,
        held: held.query_one([name], |row| count::<i64>(row, 0))?,
        name: gate.name,
    })
}
