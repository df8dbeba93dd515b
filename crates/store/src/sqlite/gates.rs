//! What gates remember, and what happens when an attempt comes out of one.
//!
//! A settle gives its permits back, shuts what is to be shut, and counts for or against the other side, all
//! in its own transaction. Who may pass next is decided by claims alone, because only they know the limits:
//! here it is only noted that looking is worth it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::gate::{GateView, Horizon, PART};
use tidemill_core::{Breaker, QueueLimit, RuleBook, Token, WorkerId};

use crate::error::Result;
use crate::request::SettleItem;
use crate::sqlite::rows::{count, time, worker_id};
use crate::sqlite::stowaways::Uncounted;
use crate::sqlite::writer::Turn;
use crate::sqlite::{held, queues};

/// Those let through at once by a gate that nothing else bounds.
pub(super) const LET_THROUGH_MAX: i64 = 1000;
/// Gates of a limit that are forgotten at once.
const FORGET_MAX: usize = 1000;

/// What a gate remembers. Times are microseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Gate {
    pub name: String,
    pub tat: Option<i64>,
    /// The other side asked for it.
    pub pause_until: Option<i64>,
    /// Too much failed.
    pub shut_until: Option<i64>,
    /// 0: as usual; 1: the next one that passes is a probe; 2: a probe is out.
    pub probing: u8,
    /// The lease of that probe.
    pub probe: Option<i64>,
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
                pause_until: row.get(1)?,
                shut_until: row.get(2)?,
                probing: row.get(3)?,
                probe: row.get(4)?,
                good: row.get(5)?,
                bad: row.get(6)?,
                window_at: row.get(7)?,
                credit: row.get(8)?,
                opens_at: row.get(9)?,
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
            self.pause_until,
            self.shut_until,
            self.probing,
            self.probe,
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
        let at = self.closed_until().filter(|until| *until > now).unwrap_or(now);
        self.opens_at = Some(self.opens_at.map_or(at, |opens| opens.min(at)));
    }

    /// Nobody passes before, whatever the limit is.
    pub fn closed_until(&self) -> Option<i64> {
        self.pause_until.max(self.shut_until)
    }

    /// Nobody passes before, by what its limit heeds.
    pub fn closed_by(&self, limit: &QueueLimit) -> Option<i64> {
        let pause_until = self.pause_until.filter(|_| limit.hold);
        pause_until.max(self.shut_until.filter(|_| limit.breaker.is_some()))
    }

    /// The other side asked for it; the longest pause counts.
    fn pause(&mut self, until: i64) {
        self.pause_until = self.pause_until.max(Some(until));
        self.opens_at = self.closed_until();
    }

    /// So much of its rate's time was not used. What has passed of it is nobody's any more.
    fn give_back(&mut self, unused: Duration) {
        let us = i64::try_from(unused.as_micros()).unwrap_or(i64::MAX);
        self.tat = self.tat.map(|tat| tat.saturating_sub(us));
    }

    fn shut(&mut self, until: i64) {
        (self.probing, self.probe, self.shut_until) = (1, None, Some(until));
        self.opens_at = self.closed_until();
    }

    /// Counts how an attempt ended: too many failures in a window shut the gate; then one probe decides.
    /// Whatever else comes in meanwhile began before, and says nothing new.
    fn judge(&mut self, now: i64, breaker: &Breaker, token: Token, is_well: Option<bool>) {
        let us = |ms: u64| i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let is_probe = self.probing == 2 && self.probe == Some(token.0);
        match (self.probing, is_well) {
            (0, Some(is_well)) => {
                let from = now.saturating_sub(us(breaker.window_ms));
                if self.window_at.is_none_or(|at| at <= from || at > now) {
                    (self.window_at, self.good, self.bad) = (Some(now), 0, 0);
                }
                self.good += u32::from(is_well);
                self.bad += u32::from(!is_well);
                let all = u64::from(self.good) + u64::from(self.bad);
                let is_tripped = all >= u64::from(breaker.attempts_min)
                    && u64::from(self.bad) * 100 >= u64::from(breaker.failures_percent) * all;
                if is_tripped {
                    self.shut(now.saturating_add(us(breaker.open_ms)));
                }
            }
            (2, Some(false)) if is_probe => self.shut(now.saturating_add(us(breaker.open_ms))),
            (2, _) if is_probe => {
                // A probe that says nothing is followed by another.
                self.probing = u8::from(is_well.is_none());
                (self.probe, self.window_at, self.shut_until) = (None, None, None);
                self.opens_at = self.pause_until.max(Some(now));
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
    unused: Duration,
    breaker: Option<Breaker>,
    ends: Vec<(Token, Option<bool>)>,
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
            tally.unused = tally.unused.saturating_add(end.unused.unwrap_or_default());
            tally.breaker = end.breaker.or(tally.breaker);
            if end.breaker.is_some() {
                tally.ends.push((item.token, item.is_well()));
            }
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
            let is_told =
                tally.shut_for.is_some() || !tally.unused.is_zero() || !tally.ends.is_empty();
            if !is_open && !is_told {
                continue;
            }
            let mut gate = Gate::load(conn, &name)?;
            gate.give_back(tally.unused);
            if let Some(shut_for) = tally.shut_for {
                let us = i64::try_from(shut_for.as_micros()).unwrap_or(i64::MAX);
                gate.pause(now.saturating_add(us));
            }
            for (breaker, (token, is_well)) in
                tally.breaker.iter().flat_map(|b| tally.ends.iter().map(move |end| (b, *end)))
            {
                gate.judge(now, breaker, token, is_well);
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
    let mut gates = gates.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut select = conn.prepare_cached(include_str!("sql/select_probed_gates.sql"))?;
    let probed = select.query_map([token.0], |row| row.get::<_, String>(0))?;
    for name in probed.collect::<rusqlite::Result<Vec<_>>>()? {
        if !gates.contains(&name) {
            gates.push(name);
        }
    }
    for name in gates {
        tell(turn, &name)?;
        let mut gate = Gate::load(conn, &name)?;
        gate.open(turn.now);
        gate.save(conn)?;
    }
    Ok(())
}

/// Whether a lease is under way.
pub(super) fn has_lease(conn: &Connection, token: Option<i64>) -> Result<bool> {
    let mut has_lease = conn.prepare_cached(include_str!("sql/has_lease.sql"))?;
    Ok(has_lease.query_one([token], |row| row.get(0))?)
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

/// Makes gates forget what their limits, as they are in this book, would not let them remember, and tells those who
/// wait there. When rules change, only gates from the first of these names to the second.
pub(super) fn mend(turn: &mut Turn<'_>, book: &RuleBook, of: Option<(&str, &str)>) -> Result<()> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_gate_bases.sql"))?;
    let bases = select.query_map([], |row| row.get::<_, String>(0))?;
    let bases: Vec<String> = bases.collect::<rusqlite::Result<_>>()?;
    let us = |reach: Option<Duration>| {
        reach.map(|reach| i64::try_from(reach.as_micros()).unwrap_or(i64::MAX))
    };
    for base in bases {
        if of.is_some_and(|(from, to)| base.as_str() < from || base.as_str() > to) {
            continue;
        }
        // Only a change of rules says of a limit that it is no more.
        let horizon = book.horizon(&base).or(of.map(|_| Horizon::default()));
        let Some(Horizon { rate, pause, open, .. }) = horizon else { continue };
        let mut mend = turn.conn.prepare_cached(include_str!("sql/mend_gates.sql"))?;
        let asked = params![base, turn.now, us(rate), us(pause), us(open)];
        let mended = mend.query_map(asked, |row| row.get::<_, String>(0))?;
        for name in mended.collect::<rusqlite::Result<Vec<_>>>()? {
            tell(turn, &name)?;
        }
    }
    Ok(())
}

/// Forgets gates that remember nothing any more: of a rate by key there would be one for each key that ever was.
/// Answers whether there may be more.
fn forget(turn: &Turn<'_>, book: &RuleBook) -> Result<bool> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_gate_bases.sql"))?;
    let bases = select.query_map([], |row| row.get::<_, String>(0))?;
    let mut is_more = false;
    for base in bases.collect::<rusqlite::Result<Vec<_>>>()? {
        let window = book.horizon(&base).and_then(|horizon| horizon.window).unwrap_or_default();
        let mut delete = turn.conn.prepare_cached(include_str!("sql/forget_gates.sql"))?;
        let forgotten = delete.execute(params![base, turn.now, window.as_micros() as i64])?;
        is_more |= forgotten >= FORGET_MAX;
    }
    Ok(is_more)
}

/// Lets those through that nobody else would: their gate holds them while there is room, or no such limit, and no
/// clock opens it. Claims look again whether they may pass.
pub(super) fn unstick(turn: &mut Turn<'_>) -> Result<()> {
    let conn = turn.conn;
    if turn.marks.is_time_to_mend(turn.now) {
        let book = queues::rules(conn)?;
        mend(turn, &book, None)?;
        if forget(turn, &book)? {
            turn.marks.mend_again();
        }
    }
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

/// What is known of these gates.
pub(super) fn views(conn: &Connection, names: &[String]) -> Result<Vec<GateView>> {
    let uncounted = Uncounted::of(conn, names)?;
    names.iter().map(|name| view(conn, name, &uncounted)).collect()
}

/// What is known of a gate: what it remembers, who is inside, by worker, and how many are held there.
fn view(conn: &Connection, name: &str, uncounted: &Uncounted) -> Result<GateView> {
    let gate = Gate::load(conn, name)?;
    let is_wide = uncounted.wide.iter().any(|wide| wide == base(name));
    let mut select = conn.prepare_cached(include_str!("sql/select_inside.sql"))?;
    let asked = params![base(name), name, is_wide];
    let counted = select.query_map(asked, |row| Ok((worker_id(row, 0)?, count::<i64>(row, 1)?)))?;
    let mut inside: BTreeMap<WorkerId, u64> = counted.collect::<rusqlite::Result<_>>()?;
    for (_, worker) in uncounted.inside.iter().filter(|(gate, _)| gate == name) {
        *inside.entry(*worker).or_default() += 1;
    }
    let mut held = conn.prepare_cached(include_str!("sql/count_held.sql"))?;
    let mut broken = conn.prepare_cached(include_str!("sql/count_broken.sql"))?;
    Ok(GateView {
        inside: inside.into_iter().collect(),
        tat: gate.tat.map(time),
        shut_until: gate.closed_until().map(time),
        is_broken: gate.probing > 0,
        broken: broken.query_one([base(name), name], |row| count::<i64>(row, 0))?,
        is_probed: gate.probing == 2 && has_lease(conn, gate.probe)?,
        credit: gate.credit,
        held: held.query_one([name], |row| count::<i64>(row, 0))?,
        name: gate.name,
    })
}
