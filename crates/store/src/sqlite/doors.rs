//! Who of those that a claim meets may pass the limits.
//!
//! A claim is alone with the database, so what it reads of a gate stays true until it commits. Each gate is
//! read once per claim; what goes in is counted here, and written when the lease is. Whoever may not pass is
//! held at the gate, out of the way of the claims to come; only a gate of the whole queue leaves everybody
//! where he is, and nothing of that queue is looked at.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};
use tidemill_core::gate::{Counts, Per, RETRY_CREDIT};
use tidemill_core::{QueueLimit, Token};

use crate::error::Result;
use crate::sqlite::gates::{Gate, LET_THROUGH_MAX};
use crate::sqlite::held::Turns;
use crate::sqlite::reach::Reach;
use crate::sqlite::{gates, held, stowaways};

/// When to look again at a gate that only holds jobs of queues which were not asked for.
const OTHERS_US: i64 = 5_000_000;

/// A job that waits, as far as limits look at it.
pub(super) struct Candidate<'a> {
    pub kind: &'a str,
    pub tenant: &'a str,
    pub key: &'a str,
    pub is_retry: bool,
}

/// What is said to a candidate.
pub(super) enum Verdict {
    /// It goes in, through these gates.
    Passes(Vec<Arc<str>>),
    /// It waits at this gate.
    Held(Arc<str>),
    /// Nothing of its queue may pass.
    Full,
}

/// A gate that was looked at in this claim.
struct Door<'a> {
    name: Arc<str>,
    gate: Gate,
    limit: &'a QueueLimit,
    room: i64,
    /// How many went in.
    inside: i64,
    /// Whether somebody was held or turned away.
    is_wanted: bool,
    /// Whether it is to be looked at by the clock for the sake of stowaways at gates of its limit.
    is_stowed: bool,
}

/// The gates of one claim.
pub(super) struct Doors<'a> {
    limits: &'a [QueueLimit],
    reach: Reach,
    now: i64,
    all: Vec<Door<'a>>,
    /// Where each is, by name.
    seen: HashMap<Arc<str>, usize>,
    /// Where that of each limit with one gate for all is: found once for a claim, not once for a job.
    of_all: Vec<Option<usize>>,
    /// Limits none of whose gates has anything to remember.
    blank: Vec<&'a str>,
    /// Whether somebody may be inside of a gate without a permit.
    has_stowaways: bool,
    /// A slot that nobody else wants is free for retries.
    pub retries_are_free: bool,
}

impl<'a> Doors<'a> {
    pub fn new(limits: &'a [QueueLimit], reach: Reach, now: i64) -> Self {
        let (all, seen, of_all) = (Vec::new(), HashMap::new(), vec![None; limits.len()]);
        let (blank, has_stowaways, retries_are_free) = (Vec::new(), false, false);
        Self { limits, reach, now, all, seen, of_all, blank, has_stowaways, retries_are_free }
    }

    /// Whether a queue has limits at all.
    pub fn has(&self, queue: &str) -> bool {
        self.limits.iter().any(|limit| limit.queue == queue)
    }

    /// Whether a limit counts nobody, and does nothing else.
    fn is_idle(&self, limit: &QueueLimit) -> bool {
        limit.only_counts() && limit.is_out_of_reach(self.reach.all)
    }

    /// Whether this claim cannot exceed a limit, which counts and does nothing else, whatever others hold: it is only
    /// written down who goes in.
    fn is_assured(&self, limit: &QueueLimit) -> bool {
        limit.only_counts() && limit.is_out_of_reach(self.reach.after)
    }

    /// The limits of a queue that are judged, by number.
    pub fn limits_of(&self, queue: &str) -> Vec<usize> {
        let is_of = |number: &usize| {
            let limit = &self.limits[*number];
            limit.queue == queue && !self.is_idle(limit)
        };
        (0..self.limits.len()).filter(is_of).collect()
    }

    /// Lets those through that gates hold and that may pass by now.
    pub fn let_through(&mut self, conn: &Connection, turns: &Turns<'_>) -> Result<()> {
        self.has_stowaways = !self.limits.is_empty() && stowaways::may_be(conn)?;
        let mut looked_at: Vec<&str> = Vec::new();
        for limit in self.limits {
            if looked_at.contains(&&*limit.gate) {
                continue;
            }
            looked_at.push(&limit.gate);
            let mut has_gates = conn.prepare_cached(include_str!("sql/has_gates.sql"))?;
            if !has_gates.query_one([&limit.gate], |row| row.get::<_, bool>(0))? {
                self.blank.push(&limit.gate);
                continue;
            }
            let mut select = conn.prepare_cached(include_str!("sql/select_open_gates.sql"))?;
            let open =
                select.query_map(params![limit.gate, self.now], |row| row.get::<_, String>(0))?;
            let open = open.collect::<rusqlite::Result<Vec<_>>>()?;
            if self.has_stowaways && open.contains(&limit.gate) {
                self.look_beside(conn, limit, &open)?;
            }
            let with_it = self.limits.iter().filter(|other| other.gate == limit.gate);
            let queues: Vec<&str> = with_it.map(|other| other.queue.as_str()).collect();
            for name in open {
                let room = self.door(conn, limit, &name)?.room.clamp(0, LET_THROUGH_MAX);
                if held::let_through(conn, &name, turns.of(&queues), room)? < room {
                    // All of them: nobody of these queues is held any more. The gate must not keep us coming back for
                    // the sake of the others, nor hide anybody from those who serve them.
                    let others = held::let_each_through(conn, &name, room)?;
                    let later = (others > 0).then(|| self.now.saturating_add(OTHERS_US));
                    let now = self.now;
                    let door = self.door(conn, limit, &name)?;
                    door.gate.opens_at = door.look(now).or(later);
                    door.gate.save(conn)?;
                }
            }
        }
        Ok(())
    }

    /// Nobody tells when a stowaway ends: whoever is held beside one looks again. Not only as many as there is room
    /// for, as at a gate that stays open until it is full: those may be stopped elsewhere, and then nobody would
    /// look again for the sake of the others.
    fn look_beside(
        &mut self,
        conn: &Connection,
        limit: &'a QueueLimit,
        open: &[String],
    ) -> Result<()> {
        for name in stowaways::gates(conn, &limit.gate)? {
            if !open.contains(&name) && self.door(conn, limit, &name)?.room > 0 {
                held::let_any_through(conn, &name, LET_THROUGH_MAX as usize)?;
            }
        }
        Ok(())
    }

    fn door(
        &mut self,
        conn: &Connection,
        limit: &'a QueueLimit,
        name: &str,
    ) -> Result<&mut Door<'a>> {
        let at = self.find(conn, limit, name)?;
        Ok(&mut self.all[at])
    }

    /// Where a gate is that a job goes through.
    fn enter(&mut self, conn: &Connection, limit: &'a QueueLimit, name: &str) -> Result<usize> {
        if self.seen.contains_key(name) || !self.is_assured(limit) {
            return self.find(conn, limit, name);
        }
        Ok(self.add(limit, Gate::named(name), i64::MAX, false))
    }

    fn add(&mut self, limit: &'a QueueLimit, gate: Gate, room: i64, is_stowed: bool) -> usize {
        let (at, name) = (self.all.len(), Arc::<str>::from(gate.name.as_str()));
        self.seen.insert(Arc::clone(&name), at);
        self.all.push(Door { name, gate, limit, room, inside: 0, is_wanted: false, is_stowed });
        at
    }

    /// Where a gate is, which is looked at when it is met first.
    fn find(&mut self, conn: &Connection, limit: &'a QueueLimit, name: &str) -> Result<usize> {
        if let Some(at) = self.seen.get(name) {
            return Ok(*at);
        }
        let gate = match limit.gate.as_str() {
            base if self.blank.contains(&base) => Gate::named(name),
            _ => Gate::load(conn, name)?,
        };
        let is_idle = self.is_idle(limit);
        let mut room = if is_idle { i64::MAX } else { room(conn, limit, &gate, self.now)? };
        let mut is_stowed = false;
        if let Some(most) = limit.concurrency.filter(|_| self.has_stowaways) {
            if !is_idle {
                let free = i64::from(most) - inside(conn, name)?;
                room = room.min(free - stowaways::count(conn, &limit.gate, name, most)?);
            }
            is_stowed = name == limit.gate && stowaways::are_at(conn, name)?;
        }
        Ok(self.add(limit, gate, room, is_stowed))
    }

    /// The gate of a limit that a candidate goes through, if the limit means it.
    fn gate_of(
        &mut self,
        conn: &Connection,
        number: usize,
        one: &Candidate<'_>,
    ) -> Result<Option<usize>> {
        let limit = &self.limits[number];
        if limit.counts != Counts::Per(Per::All) {
            let name = limit.gate_of(one.kind, one.tenant, one.key, one.is_retry);
            return name.map(|name| self.enter(conn, limit, &name)).transpose();
        }
        if limit.kind.as_ref().is_some_and(|own| own != one.kind) {
            return Ok(None);
        }
        if self.of_all[number].is_none() {
            self.of_all[number] = Some(self.enter(conn, limit, &limit.gate)?);
        }
        Ok(self.of_all[number])
    }

    /// Asks whether a candidate may pass these limits, and counts it if so.
    pub fn pass(
        &mut self,
        conn: &Connection,
        limits: &[usize],
        one: &Candidate<'_>,
    ) -> Result<Verdict> {
        let mut through = Vec::with_capacity(limits.len());
        for &number in limits {
            let is_budget = matches!(self.limits[number].counts, Counts::Retry { .. });
            if is_budget && self.retries_are_free {
                continue;
            }
            let Some(at) = self.gate_of(conn, number, one)? else { continue };
            let door = &mut self.all[at];
            if door.room <= 0 {
                door.is_wanted = true;
                let is_wide = self.limits[number].is_wide();
                let name = Arc::clone(&door.name);
                return Ok(if is_wide { Verdict::Full } else { Verdict::Held(name) });
            }
            through.push(at);
        }
        let mut names = Vec::with_capacity(through.len());
        for at in through {
            let door = &mut self.all[at];
            door.room -= 1;
            door.inside += 1;
            names.push(Arc::clone(&door.name));
        }
        Ok(Verdict::Passes(names))
    }

    /// First attempts of a queue pay for retries.
    pub fn pay(&mut self, conn: &Connection, queue: &str, firsts: usize) -> Result<()> {
        for limit in self.limits.iter().filter(|limit| limit.queue == queue) {
            let Counts::Retry { percent } = limit.counts else { continue };
            let (credit, now) = (f64::from(RETRY_CREDIT), self.now);
            let gate = &mut self.door(conn, limit, &limit.gate)?.gate;
            let earned = firsts as f64 * f64::from(percent) / 100.0;
            gate.credit = Some((gate.credit.unwrap_or(credit) + earned).min(10.0 * credit));
            gate.opens_at = Some(now);
            gate.save(conn)?;
        }
        Ok(())
    }

    /// Lets retries pass that wait for others to pay for them, up to so many of each queue that is not full; answers
    /// whether there were some.
    pub fn let_retries(
        &self,
        conn: &Connection,
        turns: &Turns<'_>,
        full: &[String],
        number: usize,
    ) -> Result<bool> {
        let mut moved = 0;
        for QueueLimit { queue, gate, counts, .. } in self.limits {
            if matches!(counts, Counts::Retry { .. }) && !full.contains(queue) {
                moved += held::let_through(conn, gate, turns.of(&[queue]), number as i64)?;
            }
        }
        Ok(moved > 0)
    }

    /// The gates whose permits a lease will have, as it names them.
    pub fn inside(&self) -> Option<String> {
        let counted = self.all.iter().filter(|door| door.is_counted());
        let names: Vec<&str> = counted.map(|door| &*door.name).collect();
        (!names.is_empty()).then(|| serde_json::json!(names).to_string())
    }

    /// Writes down who went in, and when gates open that turned somebody away.
    /// Answers when the clock opens the next gate of these limits.
    pub fn write(self, conn: &Connection, token: Option<Token>) -> Result<Option<i64>> {
        let (now, limits) = (self.now, self.limits);
        for mut door in self.all {
            let before = door.gate.clone();
            door.go_in(now, token);
            door.close(now);
            if let Some(token) = token.filter(|_| door.is_counted()) {
                conn.prepare_cached(include_str!("sql/insert_permit.sql"))?.execute(params![
                    door.name,
                    token.0,
                    door.inside
                ])?;
            }
            if door.is_wanted {
                if door.limit.is_wide() {
                    conn.prepare_cached(include_str!("sql/insert_turned_away.sql"))?
                        .execute(params![door.name, door.limit.queue])?;
                }
                if let Some(at) = door.opening(now) {
                    let opens = door.gate.opens_at.filter(|opens| *opens > now);
                    door.gate.opens_at = Some(opens.map_or(at, |opens| opens.min(at)));
                }
            }
            if door.gate != before {
                door.gate.save(conn)?;
            }
        }
        let mut select = conn.prepare_cached(include_str!("sql/next_opening.sql"))?;
        let mut next: Option<i64> = None;
        for limit in limits {
            let at: Option<i64> = select.query_one([&limit.gate], |row| row.get(0))?;
            next = next.into_iter().chain(at).min();
        }
        Ok(next)
    }
}

impl Door<'_> {
    /// Whether somebody went in who has to come out again.
    fn is_counted(&self) -> bool {
        self.inside > 0 && self.limit.concurrency.is_some()
    }

    /// Counts those that went in.
    fn go_in(&mut self, now: i64, token: Option<Token>) {
        if self.inside == 0 {
            return;
        }
        if let Some(rate) = self.limit.rate {
            let every = rate.every_us() as i64;
            let tat = self.gate.tat.map_or(now, |tat| tat.max(now)) + self.inside * every;
            self.gate.tat = Some(tat);
            // Who is still held was not met: the next cell is his.
            let opens_at = self.gate.opens_at.zip(self.next_cell());
            self.gate.opens_at = opens_at.map(|(opens, cell)| opens.min(cell));
        }
        if let Counts::Retry { .. } = self.limit.counts {
            let credit = self.gate.credit.unwrap_or(f64::from(RETRY_CREDIT));
            self.gate.credit = Some((credit - self.inside as f64).max(0.0));
        }
        if let Some(open) = self.limit.open().filter(|_| self.gate.probing > 0) {
            (self.gate.probing, self.gate.probe) = (2, token.map(|token| token.0));
            self.gate.shut_until = Some(now.saturating_add(open.as_micros() as i64));
        }
    }

    /// When its rate has a cell free.
    fn next_cell(&self) -> Option<i64> {
        let (rate, tat) = self.limit.rate.zip(self.gate.tat)?;
        Some(tat - (i64::from(rate.burst) - 1) * rate.every_us() as i64)
    }

    /// When the clock opens it, if that is what it waits for.
    fn opening(&self, now: i64) -> Option<i64> {
        let closed_until = self.gate.closed_by(self.limit).into_iter();
        closed_until.chain(self.next_cell()).max().filter(|at| *at > now).or(self.look(now))
    }

    /// When to look again, where stowaways may have ended by then.
    fn look(&self, now: i64) -> Option<i64> {
        self.is_stowed.then(|| now.saturating_add(stowaways::LOOK_US))
    }

    /// An open gate that lets nobody through any more waits for the clock, or for somebody to come out. One
    /// that still has room stays open: those who were let through may be held elsewhere.
    fn close(&mut self, now: i64) {
        if self.room <= 0 && self.gate.opens_at.is_some_and(|at| at <= now) {
            self.gate.opens_at = self.opening(now);
        }
    }
}

/// How many have a permit of a gate.
fn inside(conn: &Connection, gate: &str) -> Result<i64> {
    let mut count = conn.prepare_cached(include_str!("sql/count_inside.sql"))?;
    Ok(count.query_one([gate], |row| row.get(0))?)
}

/// How many a gate lets through now.
fn room(conn: &Connection, limit: &QueueLimit, gate: &Gate, now: i64) -> Result<i64> {
    let mut room = i64::MAX;
    if let Some(most) = limit.concurrency {
        room = room.min(i64::from(most) - inside(conn, &gate.name)?);
    }
    if gate.closed_by(limit).is_some_and(|until| until > now) {
        room = room.min(0);
    } else if limit.breaker.is_some() && gate.probing > 0 {
        // No other while one is out; one that is lost is not.
        let is_out = gate.probing == 2 && gates::has_lease(conn, gate.probe)?;
        room = room.min(i64::from(!is_out));
    }
    if let Some(rate) = limit.rate {
        let every = rate.every_us() as i64;
        let ahead = gate.tat.map_or(0, |tat| (tat - now).max(0));
        room = room.min((i64::from(rate.burst) * every - ahead).max(0) / every);
    }
    if let Counts::Retry { .. } = limit.counts {
        room = room.min(gate.credit.unwrap_or(f64::from(RETRY_CREDIT)) as i64);
    }
    Ok(room)
}
