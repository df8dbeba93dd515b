//! Takes due jobs under a lease.
//!
//! Whoever deletes a ready row has the job: in SQLite there is one writer at a time, so no lock and
//! no second look is needed. Refuses workers that are not registered and wishes made up by rules that are no
//! more, and leaves jobs of kinds that the worker does not know where they are.

use std::ops::RangeInclusive;
use std::sync::Arc;

use rusqlite::{Connection, Row, params};
use tidemill_core::JobId;
use tidemill_core::share::{self, Served, alike, allot};

use crate::error::{Error, Result};
use crate::request::{Claim, ClaimRequest, ClaimedJob, Lane, Seen};
use crate::sqlite::doors::{Candidate, Doors, Verdict};
use crate::sqlite::held::Turns;
use crate::sqlite::lease::{Held, Lease};
use crate::sqlite::reach::{self, Reach};
use crate::sqlite::rows::{Body, job_id, time};
use crate::sqlite::writer::Turn;
use crate::sqlite::{tenants, workers};

/// How many one claim may hold at gates; whoever asks again goes on.
const HELD_MAX: usize = 5000;

/// A ready row that was taken, or may be.
struct Taken {
    run_at: i64,
    held: Held,
    kind: String,
    key: String,
    gates: Vec<Arc<str>>,
}

/// Takes what the request wishes, in order of lane, due time and age.
pub(super) fn claim(turn: &mut Turn<'_>, ask: &ClaimRequest) -> Result<Claim> {
    let (conn, now) = (turn.conn, turn.now);
    let seen = Some(Seen { brought: turn.brought, next_due: None });
    let mut claim = Claim { token: None, now: time(now), jobs: Vec::new(), next_due: None, seen };
    let Some(edition) = workers::edition_for(conn, ask.worker)? else { return Ok(claim) };
    if ask.edition.is_some_and(|own| own != edition) {
        return Err(Error::RulesOutdated);
    }
    let mut doors = Doors::new(&ask.limits, reach(turn, ask)?, now);
    if !ask.limits.is_empty() {
        doors.let_through(conn, &turns(turn, ask))?;
    }
    let (taken, is_left) = take_all(turn, ask, &mut doors)?;
    let is_short = taken.len() < ask.jobs_max;
    if !taken.is_empty() {
        let held: Vec<_> = taken.iter().map(|taken| taken.held).collect();
        claim.token = Some(Lease::insert(conn, ask.worker, now, &held, doors.inside().as_deref())?);
        claim.jobs = bodies(conn, taken)?;
        workers::has_claimed(turn, ask.worker)?;
    }
    let opening = doors.write(conn, claim.token)?;
    if is_left {
        claim.next_due = Some(claim.now);
    } else if is_short {
        let next = next_due(conn, now, &ask.lanes)?.into_iter().chain(opening).min();
        claim.next_due = next.map(time);
    }
    claim.seen = Some(Seen { brought: turn.brought, next_due: claim.next_due });
    Ok(claim)
}

/// How many jobs all workers together may hold, this one what it asks for: a limit on as many counts nobody. Where
/// nothing counts that is not asked; nor of a wish that follows no rules, because nobody looks for stowaways of its
/// limits.
fn reach(turn: &Turn<'_>, ask: &ClaimRequest) -> Result<Reach> {
    let counts = ask.limits.iter().any(|limit| limit.concurrency.is_some());
    match ask.edition.filter(|_| counts) {
        Some(_) => reach::extend(turn, ask.worker, ask.jobs_max),
        None => Ok(Reach::UNKNOWN),
    }
}

/// How lanes take turns at gates.
fn turns<'a>(turn: &Turn<'_>, ask: &'a ClaimRequest) -> Turns<'a> {
    let of_lane = |(number, lane): (usize, &'a Lane)| {
        // Without weights each lane is emptied before the next.
        let weight = ask.share.weights.get(number).copied().unwrap_or(0);
        (lane, weight, turn.marks.served(lane).map(Served::behind).unwrap_or_default())
    };
    Turns(ask.lanes.iter().enumerate().map(of_lane).collect())
}

/// A lane that has something due.
struct DueLane<'a> {
    lane: &'a Lane,
    /// Whether it is (also) of tenants.
    crowded: bool,
    /// Whether some of it was laid aside.
    aside: bool,
    quota: usize,
}

/// Takes from all lanes; also answers whether it left something, because it may look at only so many tenants.
fn take_all<'a>(
    turn: &mut Turn<'_>,
    ask: &'a ClaimRequest,
    doors: &mut Doors<'a>,
) -> Result<(Vec<Taken>, bool)> {
    let words = ask.kinds.as_ref().map(|kinds| serde_json::json!(**kinds).to_string());
    let lanes = due_lanes(turn.conn, turn.now, ask)?;
    let mut hand = Hand {
        turn: &mut *turn,
        ask,
        doors,
        words,
        taken: Vec::new(),
        held: 0,
        full: Vec::new(),
        laid: 0,
        is_cut: false,
    };
    for lane in lanes.iter().filter(|lane| lane.aside) {
        hand.is_cut |= !tenants::bring_back(hand.turn.conn, hand.turn.now, lane.lane)?;
    }
    // By quota first; then what is left, in order.
    for lane in &lanes {
        hand.take_from(lane, lane.quota)?;
    }
    for lane in &lanes {
        hand.take_from(lane, ask.jobs_max)?;
    }
    hand.take_free_retries()?;
    let Hand { taken, full, is_cut, .. } = hand;
    let is_left = is_cut && taken.len() < ask.jobs_max && {
        let lanes = due_lanes(turn.conn, turn.now, ask)?;
        lanes.iter().any(|lane| !full.contains(&lane.lane.queue))
    };
    Ok((taken, is_left))
}

fn due_lanes<'a>(conn: &Connection, now: i64, ask: &'a ClaimRequest) -> Result<Vec<DueLane<'a>>> {
    let mut select = conn.prepare_cached(include_str!("sql/due_of_queue.sql"))?;
    let (mut lanes, mut weights) = (Vec::new(), Vec::new());
    let mut due = Vec::new();
    for queue in queues(&ask.lanes) {
        let rows = select.query_map(params![queue, now], |row| {
            Ok((queue, row.get::<_, i16>(0)?, row.get::<_, bool>(1)?, row.get::<_, bool>(2)?))
        })?;
        for row in rows {
            due.push(row?);
        }
    }
    for (number, lane) in ask.lanes.iter().enumerate() {
        let is_it = |(queue, band, ..): &&(&str, i16, bool, bool)| {
            *queue == lane.queue && *band == lane.priority.band()
        };
        if let Some((_, _, crowded, aside)) = due.iter().find(is_it) {
            lanes.push(DueLane { lane, crowded: *crowded, aside: *aside, quota: 0 });
            weights.extend(ask.share.weights.get(number));
        }
    }
    let queues: Vec<&str> = lanes.iter().map(|lane| lane.lane.queue.as_str()).collect();
    let weights = alike(&queues, &weights);
    for (lane, quota) in lanes.iter_mut().zip(allot(ask.jobs_max, &weights)) {
        lane.quota = quota;
    }
    Ok(lanes)
}

/// Every queue once: all bands of one are asked for together.
fn queues(lanes: &[Lane]) -> impl Iterator<Item = &str> {
    let is_first = |at: usize, queue: &str| !lanes[..at].iter().any(|lane| lane.queue == queue);
    let named = lanes.iter().map(|lane| lane.queue.as_str()).enumerate();
    named.filter(move |(at, queue)| is_first(*at, queue)).map(|(_, queue)| queue)
}

/// Takes from one lane after another, until it has enough.
struct Hand<'a, 'b, 'c> {
    turn: &'a mut Turn<'b>,
    ask: &'c ClaimRequest,
    doors: &'a mut Doors<'c>,
    words: Option<String>,
    taken: Vec<Taken>,
    /// How many it held at gates.
    held: usize,
    /// Queues of which nothing may pass.
    full: Vec<String>,
    /// How many rows it laid aside.
    laid: usize,
    is_cut: bool,
}

impl Hand<'_, '_, '_> {
    fn take_from(&mut self, lane: &DueLane<'_>, most: usize) -> Result<()> {
        let (queue, before) = (&lane.lane.queue, self.taken.len());
        let is_limited = self.doors.has(queue);
        let most = most.min(self.ask.jobs_max - before);
        let taken = self.take_shares(lane, most)?;
        if is_limited && taken > 0 {
            let firsts = self.taken[before..].iter().filter(|taken| taken.held.spent == 0).count();
            self.doors.pay(self.turn.conn, queue, firsts)?;
        }
        Ok(())
    }

    /// A slot that no first attempt wants, of whichever band or queue, is free for retries. So they come last, and not
    /// where something was taken and more may be left.
    fn take_free_retries(&mut self) -> Result<()> {
        let slots = self.ask.jobs_max - self.taken.len();
        if slots == 0 || (self.is_cut && !self.taken.is_empty()) {
            return Ok(());
        }
        let turns = turns(self.turn, self.ask);
        if self.doors.let_retries(self.turn.conn, &turns, &self.full, slots)? {
            self.doors.retries_are_free = true;
            for lane in due_lanes(self.turn.conn, self.turn.now, self.ask)? {
                self.take_from(&lane, slots)?;
            }
            self.doors.retries_are_free = false;
        }
        Ok(())
    }

    /// Takes from a lane, by the shares of its tenants; answers how many.
    fn take_shares(&mut self, lane: &DueLane<'_>, most: usize) -> Result<usize> {
        let DueLane { lane, crowded, .. } = lane;
        if !crowded {
            return self.take(lane, "", most);
        }
        let (mut wanted, mut visits) = (most, 0);
        let mut at = match self.turn.marks.served(lane) {
            Some(served) => served.behind(),
            None => tenants::any(self.turn.conn, &lane.queue)?,
        };
        while wanted > 0 {
            let visits_max = wanted + tenants::SPARE_VISITS;
            let (conn, now) = (self.turn.conn, self.turn.now);
            let round = tenants::in_turn(conn, now, lane, &at, visits_max)?;
            if round.idle.len() > tenants::SPARE_VISITS {
                let most = tenants::ASIDE_MAX - self.laid;
                self.laid += tenants::lay_aside(conn, now, lane, &round.idle, most)?;
            }
            let weights: Vec<u32> =
                round.tenants.iter().map(|tenant| self.ask.share.of(&lane.queue, tenant)).collect();
            let first = round.tenants.first().zip(self.turn.marks.served(lane));
            let left = first.map_or(0, |(tenant, served)| served.left_of(tenant));
            let (before, shares) = (wanted, share::turns(wanted, &weights, left));
            for ((tenant, share), weight) in round.tenants.iter().zip(shares).zip(weights) {
                let taken = self.take(lane, tenant, share.max(1).min(wanted))?;
                if taken > 0 {
                    self.turn.marks.took(lane, tenant, weight, taken);
                }
                wanted -= taken;
                if wanted == 0 {
                    break;
                }
            }
            visits += visits_max;
            if (round.is_whole && wanted == before) || self.full.contains(&lane.queue) {
                break;
            }
            at = round.last.unwrap_or_default();
            if wanted > 0 && visits > tenants::VISITS_MAX {
                self.turn.marks.pass_by(lane, at);
                self.is_cut = true;
                break;
            }
        }
        Ok(most - wanted)
    }

    /// Takes up to `most` jobs of one tenant; answers how many.
    fn take(&mut self, lane: &Lane, tenant: &str, most: usize) -> Result<usize> {
        let (before, limits) = (self.taken.len(), self.doors.limits_of(&lane.queue));
        let mut wanted = most;
        while wanted > 0 && !self.full.contains(&lane.queue) {
            let due = self.look(lane, tenant, wanted)?;
            let is_last = due.len() < wanted || limits.is_empty();
            let mut left = None;
            for one in due {
                let run_at = one.run_at;
                let is_full = !limits.is_empty() && self.full.contains(&lane.queue);
                if !is_full && let Some(one) = self.let_pass(lane, tenant, &limits, one)? {
                    self.take_one(lane, tenant, one)?;
                } else if self.full.contains(&lane.queue) {
                    left = left.or(Some(run_at));
                }
            }
            if let (Some(left), Some(kinds)) = (left, &self.ask.kinds) {
                self.turn.marks.left(lane, kinds, left);
            }
            wanted = most - (self.taken.len() - before);
            if self.held >= HELD_MAX {
                self.is_cut = true;
                break;
            }
            if is_last {
                break;
            }
        }
        Ok(most - wanted)
    }

    /// What is due of one tenant, in order, and of kinds that are asked for.
    fn look(&mut self, lane: &Lane, tenant: &str, most: usize) -> Result<Vec<Taken>> {
        let (conn, now) = (self.turn.conn, self.turn.now);
        let Some((kinds, words)) = self.ask.kinds.as_ref().zip(self.words.as_deref()) else {
            return due(conn, now, lane, tenant, most);
        };
        if !tenant.is_empty() {
            return due_of_kinds(conn, i64::MIN..=now, lane, tenant, words, most);
        }
        let mut from = self.turn.marks.begin(now, lane, kinds);
        if self.doors.has(&lane.queue) {
            let mut select = conn.prepare_cached(include_str!("sql/first_let_through.sql"))?;
            let asked = params![lane.queue, lane.priority.band()];
            let let_through: Option<i64> = select.query_one(asked, |row| row.get(0))?;
            from = let_through.map_or(from, |at| at.min(from));
        }
        let due = due_of_kinds(conn, from..=now, lane, tenant, words, most)?;
        let last = due.get(most - 1).map(|last| last.run_at);
        self.turn.marks.seen(lane, kinds, last.unwrap_or(now));
        Ok(due)
    }

    /// Answers a job that these limits let pass; another is held at a gate, or stays.
    fn let_pass(
        &mut self,
        lane: &Lane,
        tenant: &str,
        limits: &[usize],
        mut one: Taken,
    ) -> Result<Option<Taken>> {
        if limits.is_empty() {
            return Ok(Some(one));
        }
        let (conn, queue, band) = (self.turn.conn, &lane.queue, lane.priority.band());
        let is_retry = one.held.spent > 0;
        let candidate = Candidate { kind: &one.kind, tenant, key: &one.key, is_retry };
        match self.doors.pass(conn, limits, &candidate)? {
            Verdict::Passes(gates) => {
                one.gates = gates;
                return Ok(Some(one));
            }
            Verdict::Full => self.full.push(queue.clone()),
            Verdict::Held(gate) => {
                self.held += 1;
                let JobId(id) = one.held.id;
                let mut hold = conn.prepare_cached(include_str!("sql/hold_ready.sql"))?;
                hold.execute(params![queue, band, tenant, one.run_at, id.as_bytes(), gate])?;
            }
        }
        Ok(None)
    }

    /// Takes a job out of its lane.
    fn take_one(&mut self, lane: &Lane, tenant: &str, one: Taken) -> Result<()> {
        let (queue, band) = (&lane.queue, lane.priority.band());
        let JobId(id) = one.held.id;
        let mut delete = self.turn.conn.prepare_cached(include_str!("sql/delete_ready.sql"))?;
        delete.execute(params![queue, band, tenant, one.run_at, id.as_bytes()])?;
        self.turn.depths.went(queue, Some(tenant), 1);
        self.taken.push(one);
        Ok(())
    }
}

fn due(conn: &Connection, now: i64, lane: &Lane, tenant: &str, most: usize) -> Result<Vec<Taken>> {
    let Lane { queue, priority } = lane;
    let mut select = conn.prepare_cached(include_str!("sql/select_due.sql"))?;
    let asked = params![queue, priority.band(), tenant, now, most as i64];
    let due = select.query_map(asked, Taken::of_row)?;
    Ok(due.collect::<rusqlite::Result<_>>()?)
}

fn due_of_kinds(
    conn: &Connection,
    times: RangeInclusive<i64>,
    lane: &Lane,
    tenant: &str,
    kinds: &str,
    most: usize,
) -> Result<Vec<Taken>> {
    let (Lane { queue, priority }, (from, now)) = (lane, times.into_inner());
    let mut select = conn.prepare_cached(include_str!("sql/select_due_of_kinds.sql"))?;
    let asked = params![queue, priority.band(), tenant, now, most as i64, kinds, from];
    let due = select.query_map(asked, Taken::of_row)?;
    Ok(due.collect::<rusqlite::Result<_>>()?)
}

impl Taken {
    fn of_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let held = Held { id: job_id(row, 1)?, spent: row.get(2)?, lost: row.get(3)? };
        Ok(Self {
            run_at: row.get(0)?,
            held,
            kind: row.get(4)?,
            key: row.get(5)?,
            gates: Vec::new(),
        })
    }
}

fn bodies(conn: &Connection, taken: Vec<Taken>) -> Result<Vec<ClaimedJob>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_job.sql"))?;
    let mut has_run = conn.prepare_cached(include_str!("sql/has_run.sql"))?;
    // Where nobody uses workflows, jobs need not be looked up one by one.
    let has_runs = conn.prepare_cached(include_str!("sql/has_runs.sql"))?.exists([])?;
    let mut jobs = Vec::with_capacity(taken.len());
    for Taken { run_at, held, gates, .. } in taken {
        let body = select.query_one([held.id.0.as_bytes()], Body::of_row)?;
        jobs.push(ClaimedJob {
            job: Arc::new(body.job),
            attempt: held.spent.saturating_add(1),
            lost: held.lost,
            due_at: time(run_at),
            gates,
            has_run: has_runs && has_run.exists([held.id.0.as_bytes()])?,
        });
    }
    Ok(jobs)
}

/// The alarm of a worker that got less than it asked for. It may ring for a kind it does not know,
/// once: finding its own would mean walking over all others.
fn next_due(conn: &Connection, now: i64, lanes: &[Lane]) -> Result<Option<i64>> {
    let mut select = conn.prepare_cached(include_str!("sql/next_due.sql"))?;
    let mut next = None;
    for queue in queues(lanes) {
        let mut rows = select.query(params![queue, now])?;
        while let Some(row) = rows.next()? {
            let (band, due): (i16, i64) = (row.get(0)?, row.get(1)?);
            if lanes.iter().any(|lane| lane.queue == queue && lane.priority.band() == band) {
                next = [next, Some(due)].into_iter().flatten().min();
            }
        }
    }
    Ok(next)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;
    use tidemill_core::{Clock, Due, NewJob, Payload, Priority, WorkerId};

    use super::*;
    use crate::request::{Share, WorkerCard};
    use crate::sqlite::adapter;
    use crate::sqlite::group::Book;
    use crate::sqlite::migrate::migrate;
    use crate::sqlite::news::News;
    use crate::sqlite::open::{self, Place};

    fn card(id: WorkerId, kinds: Vec<String>) -> WorkerCard {
        let (name, queues) = ("w".to_owned(), vec!["default".to_owned()]);
        let slots_of = std::collections::BTreeMap::new();
        WorkerCard { id, name, queues, kinds, slots: 1, slots_of, lease_ttl: None }
    }

    fn ask(worker: WorkerId, kinds: Option<Vec<String>>) -> ClaimRequest {
        let lane = Lane { queue: "default".into(), priority: Priority::Normal };
        ClaimRequest {
            worker,
            lanes: vec![lane],
            share: Share::default(),
            limits: Arc::default(),
            edition: None,
            kinds: kinds.map(Arc::new),
            jobs_max: 1,
            stand: None,
        }
    }

    #[test]
    fn tenants_that_wait_for_the_clock_are_met_once() -> Result<()> {
        let conn = open::writer(&Place::Memory)?;
        migrate(&conn, true)?;
        let (worker, now) = (WorkerId::new(), Clock::default().now().as_microsecond());
        let (mut news, mut book) = (News::default(), Book::default());
        let mut turn = book.turn(&conn, now, &mut news);
        workers::register(&turn, &card(worker, vec![]))?;
        let of = |tenant: String, due| {
            let job = NewJob::new("k", Payload::null());
            NewJob { tenant: Some(tenant), due, ..job }
        };
        let later = Due::In(std::time::Duration::from_hours(1));
        let idle: Vec<_> = (0..900).map(|number| of(format!("idle {number}"), later)).collect();
        adapter::enqueue(&conn, Some(now), &idle, false)?;
        let mut looks = || -> Result<i32> {
            adapter::enqueue(&conn, Some(now), &[of("busy".into(), Due::Now)], false)?;
            assert_eq!(claim(&mut turn, &ask(worker, None))?.jobs.len(), 1);
            let next = conn.prepare_cached(include_str!("sql/next_tenant.sql"))?;
            Ok(next.reset_status(StatementStatus::Run))
        };
        let (first, _, third) = (looks()?, looks()?, looks()?);
        let most = 2 * tenants::SPARE_VISITS as i32;
        assert!(first > 0 && third <= most, "{third} looks, after {first} at first");
        Ok(())
    }

    #[test]
    fn unknown_kinds_at_the_head_are_walked_over_once() -> Result<()> {
        let conn = open::writer(&Place::Memory)?;
        migrate(&conn, true)?;
        let (worker, start) = (WorkerId::new(), Clock::default().now().as_microsecond());
        let (mut news, mut book) = (News::default(), Book::default());
        let mut turn = book.turn(&conn, start, &mut news);
        let kinds = vec!["mine".to_owned()];
        workers::register(&turn, &card(worker, kinds.clone()))?;
        let job = |kind| NewJob::new(kind, Payload::null());
        let others: Vec<_> = (0..1000).map(|_| job("other")).collect();
        adapter::enqueue(&conn, Some(start), &others, false)?;
        let ask = ask(worker, Some(kinds));
        let mut steps = |after_us| -> Result<(usize, i32)> {
            turn.now = start + after_us;
            let taken = claim(&mut turn, &ask)?.jobs.len();
            let select = conn.prepare_cached(include_str!("sql/select_due_of_kinds.sql"))?;
            Ok((taken, select.reset_status(StatementStatus::VmStep)))
        };
        let (taken, walk) = steps(6_000_000)?;
        assert!(taken == 0 && walk > 1000, "{walk} steps over all the others");
        adapter::enqueue(&conn, Some(start + 6_500_000), &[job("mine"), job("mine")], false)?;
        for _ in 0..2 {
            let (taken, walk) = steps(7_000_000)?;
            assert!(taken == 1 && walk < 300, "{walk} steps straight to it");
        }
        Ok(())
    }
}
