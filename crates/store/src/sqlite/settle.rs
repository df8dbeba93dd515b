//! Records attempts that ended, with everything they cause, in one transaction.
//!
//! An item counts only while its token's lease names the job and belongs to the worker that
//! settles. A lost lease is an answer, `Stale`; so is an item that was settled before by the same
//! token, `Accepted`, because an answer can be lost on its way.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::clock::delay_us;
use tidemill_core::webhook::Told;
use tidemill_core::{Failure, JobId, NewJob, Settlement, State, Token, WorkerId};

use crate::decided;
use crate::error::Result;
use crate::request::{SettleItem, Settled};
use crate::sqlite::dead;
use crate::sqlite::enqueue::enqueue;
use crate::sqlite::finish::{End, finish};
use crate::sqlite::flows;
use crate::sqlite::gates::Leaving;
use crate::sqlite::lease::{Held, Lease};
use crate::sqlite::ready::{self, Waiting};
use crate::sqlite::rows::time;
use crate::sqlite::runs;
use crate::sqlite::webhooks;
use crate::sqlite::writer::Turn;

/// Settles items; answers in their order.
pub(super) fn settle(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    items: &[SettleItem],
) -> Result<Vec<Settled>> {
    let mut leases: BTreeMap<Token, Option<Lease>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(items.len());
    let mut leaving = Leaving::default();
    for item in items {
        let lease = match leases.entry(item.token) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let found = Lease::find(turn.conn, item.token)?;
                place.insert(found.filter(|lease| lease.worker == worker))
            }
        };
        let held = lease.as_mut().and_then(|lease| lease.take(item.job.id));
        answers.push(match (lease, held) {
            (Some(lease), Some(held)) => {
                let decided =
                    if item.decided { take_decided(turn, held.id, item.token)? } else { None };
                let settlement = decided.as_ref().unwrap_or(&item.settlement);
                let answer = settle_one(turn, lease, held, item, settlement)?;
                leaving.add(item);
                lease.forget_cancel(turn.conn, held.id)?;
                answer
            }
            _ if was_settled(turn.conn, item)? => Settled::Accepted,
            _ => Settled::Stale,
        });
    }
    let is_ending = |token: Token| {
        leases.get(&token).and_then(Option::as_ref).is_some_and(|lease| lease.jobs.is_empty())
    };
    leaving.come_out(turn, is_ending)?;
    for lease in leases.into_values().flatten() {
        lease.save(turn.conn)?;
    }
    Ok(answers)
}

/// What a caller decided in a transaction of hers for this attempt, if she did; from now on it is carried out.
pub(super) fn take_decided(turn: &Turn<'_>, id: JobId, token: Token) -> Result<Option<Settlement>> {
    let mut take = turn.conn.prepare_cached(include_str!("sql/take_decided.sql"))?;
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?));
    let found: Option<(String, _)> =
        take.query_one(params![id.0.as_bytes(), token.0], read).optional()?;
    found.map(|(output, follow_ups)| decided::settlement(output, follow_ups.as_deref())).transpose()
}

/// Writes what an attempt came to; its lease held it. One that would add more to its flow than that may have is dead:
/// what was to follow from it is not lost without a word.
pub(super) fn settle_one(
    turn: &mut Turn<'_>,
    lease: &Lease,
    held: Held,
    item: &SettleItem,
    settlement: &Settlement,
) -> Result<Settled> {
    let mut growth = flows::Growth::of(turn, settlement.follow_ups())?;
    if let Err(error) = growth.check(settlement.follow_ups()) {
        let unkept = item.unkept(&error);
        return settle_one(turn, lease, held, &unkept, &unkept.settlement);
    }
    let end = End {
        state: State::Done,
        attempt: item.attempt,
        lost: held.lost,
        lease: Some((lease.token, lease.worker)),
        output: None,
        error: None,
    };
    if let Some(writes) = &item.run {
        runs::write(turn, item.job.id, writes)?;
        runs::keep_object(turn, &item.job, writes)?;
    }
    match settlement {
        Settlement::Done { output, follow_ups } => {
            finish(turn, &item.job, &End { output: Some(output.as_str()), ..end })?;
            follow_up(turn, follow_ups, &mut growth)?;
        }
        Settlement::Again { delay, spent, failure } => {
            if let Some(reason) = lease.cancel_reason(turn.conn, held.id)? {
                write_attempt(turn, lease, item, failure.as_ref(), None)?;
                let (state, error) = (State::Cancelled, Some(reason.as_str()));
                finish(turn, &item.job, &End { state, attempt: *spent, error, ..end })?;
                return Ok(Settled::Cancelled);
            }
            let run_at = turn.now.saturating_add(delay_us(*delay));
            write_attempt(turn, lease, item, failure.as_ref(), Some(run_at))?;
            let waiting = Waiting { run_at, spent: *spent, lost: held.lost };
            ready::insert(turn, &item.job, waiting)?;
            turn.news.ready(&item.job.queue);
        }
        Settlement::Wait(waiting) => {
            if let Some(reason) = lease.cancel_reason(turn.conn, held.id)? {
                let (state, error) = (State::Cancelled, Some(reason.as_str()));
                finish(turn, &item.job, &End { state, attempt: waiting.spent, error, ..end })?;
                return Ok(Settled::Cancelled);
            }
            let run_at = runs::wait(turn, item.job.id, item.token, waiting)?;
            write_attempt(turn, lease, item, None, Some(run_at))?;
            // It came as far as this: what it lost before does not count against it.
            let until = Waiting { run_at, spent: waiting.spent, lost: 0 };
            ready::insert(turn, &item.job, until)?;
            turn.news.ready(&item.job.queue);
            if let Some(parked) = &waiting.parked {
                let told = Told::parked(&item.job, item.attempt, parked, time(turn.now));
                webhooks::tell(turn, &told)?;
            }
        }
        Settlement::Cancelled { reason } => {
            // Whoever called it off knows better why than the worker that was told.
            let asked = lease.cancel_reason(turn.conn, held.id)?;
            let error = Some(asked.as_deref().unwrap_or(reason));
            finish(turn, &item.job, &End { state: State::Cancelled, error, ..end })?;
        }
        Settlement::Dead { failure } => {
            write_attempt(turn, lease, item, Some(failure), None)?;
            let error = Some(failure.message.as_str());
            finish(turn, &item.job, &End { state: State::Dead, error, ..end })?;
            dead::bury(turn, &item.job, failure, item.attempt)?;
        }
    }
    Ok(Settled::Accepted)
}

/// Enqueues what follows; what belongs to a flow is added to that.
fn follow_up(turn: &mut Turn<'_>, jobs: &[NewJob], growth: &mut flows::Growth) -> Result<()> {
    for run in jobs.chunk_by(|a, b| a.options.flow.is_some() == b.options.flow.is_some()) {
        if run.first().is_some_and(|job| job.options.flow.is_some()) {
            growth.grow(turn, run)?;
        } else {
            enqueue(turn, run)?;
        }
    }
    Ok(())
}

/// Keeps an attempt that did not finish its job well.
fn write_attempt(
    turn: &Turn<'_>,
    lease: &Lease,
    item: &SettleItem,
    failure: Option<&Failure>,
    next_at: Option<i64>,
) -> Result<()> {
    turn.conn.prepare_cached(include_str!("sql/insert_attempt.sql"))?.execute(params![
        item.job.id.0.as_bytes(),
        lease.token.0,
        item.attempt,
        lease.worker.0.as_bytes(),
        item.started_at.as_microsecond(),
        turn.now,
        failure.map(|failure| failure.class.word()),
        failure.map(|failure| &failure.message),
        next_at
    ])?;
    Ok(())
}

/// Whether this token settled this job before, and was not given up instead.
fn was_settled(conn: &Connection, item: &SettleItem) -> Result<bool> {
    let JobId(id) = item.job.id;
    let mut select = conn.prepare_cached(include_str!("sql/was_settled.sql"))?;
    Ok(select.query_one(params![id.as_bytes(), item.token.0], |row| row.get(0))?)
}
