//! Gives back what workers had that are gone: lost ones, and those that stop.
//!
//! A lost worker's jobs spend no attempt, but a job that loses worker after worker is probably what
//! kills them: it dies (`poison`), unless it is a run whose journal grew since. A worker that says
//! goodbye costs its jobs nothing.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::params;
use tidemill_core::{ErrorClass, Failure, Job, Settlement, State, Token, WorkerId};

use crate::error::Result;
use crate::request::{RescueRules, Rescued, SettleItem};
use crate::sqlite::dead;
use crate::sqlite::finish::{End, finish};
use crate::sqlite::gates;
use crate::sqlite::lease::{Held, Lease};
use crate::sqlite::ready::{self, Waiting};
use crate::sqlite::rows::{time, worker_id};
use crate::sqlite::settle;
use crate::sqlite::stowaways;
use crate::sqlite::writer::Turn;

/// How a lease was lost.
#[derive(Clone, Copy)]
struct Loss {
    /// A job that has lost so many workers is dead.
    max: u16,
    /// When the lease began. When the handler did is not known.
    claimed_at: i64,
}

/// Gives up workers that beat no more. Judged by the time at which that was asked for: for as long as it waited for the
/// file, their beats did, too, and those of other processes may still be behind it.
pub(super) fn rescue(turn: &mut Turn<'_>, rules: RescueRules, asked_at: i64) -> Result<Rescued> {
    let us = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    let silent = params![asked_at.min(turn.now), us(rules.lease_ttl), rules.clear_for.map(us)];
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_silent_workers.sql"))?;
    let silent = select.query_map(silent, |row| worker_id(row, 0))?;
    let silent: Vec<_> = silent.collect::<rusqlite::Result<_>>()?;
    let mut rescued = Rescued::default();
    for worker in silent {
        give_up(turn, worker, Some(rules.lost_max), &mut rescued)?;
    }
    stowaways::sweep(turn)?;
    gates::unstick(turn)?;
    Ok(rescued)
}

/// Forgets a worker that stopped.
pub(super) fn deregister(turn: &mut Turn<'_>, worker: WorkerId) -> Result<Rescued> {
    let mut rescued = Rescued::default();
    give_up(turn, worker, None, &mut rescued)?;
    Ok(rescued)
}

/// Gives back what a claim took that nobody heard of.
pub(super) fn undo_claim(turn: &mut Turn<'_>, token: Token) -> Result<()> {
    let lease = Lease::find(turn.conn, token)?;
    lease.map_or(Ok(()), |lease| end(turn, &lease, None, &mut Rescued::default()))
}

/// Gives back all that a worker has. With `lost_max`, its jobs count it as lost.
fn give_up(
    turn: &mut Turn<'_>,
    worker: WorkerId,
    lost_max: Option<u16>,
    rescued: &mut Rescued,
) -> Result<()> {
    let conn = turn.conn;
    let mut delete = conn.prepare_cached(include_str!("sql/delete_worker.sql"))?;
    rescued.workers += delete.execute([worker.0.as_bytes()])? as u64;
    for (lease, claimed_at) in Lease::of_worker(conn, worker)? {
        end(turn, &lease, lost_max.map(|max| Loss { max, claimed_at }), rescued)?;
    }
    Ok(())
}

fn end(
    turn: &mut Turn<'_>,
    lease: &Lease,
    loss: Option<Loss>,
    rescued: &mut Rescued,
) -> Result<()> {
    gates::vacate(turn, lease.token)?;
    for held in &lease.jobs {
        give_back(turn, lease, *held, loss, rescued)?;
    }
    lease.delete(turn.conn)
}

fn give_back(
    turn: &mut Turn<'_>,
    lease: &Lease,
    held: Held,
    loss: Option<Loss>,
    rescued: &mut Rescued,
) -> Result<()> {
    let Some(body) = ready::body(turn.conn, held.id)? else { return Ok(()) };
    if let Some(settlement) = settle::take_decided(turn, held.id, lease.token)? {
        return carry_out(turn, lease, held, body.job, settlement);
    }
    let job = &body.job;
    let is_loss = loss.is_some();
    // What was lost before counts only against a run that has come no further since.
    let before = if is_loss && has_grown(turn, held)? { 0 } else { held.lost };
    let losses = before.saturating_add(u16::from(is_loss));
    let end = End {
        state: State::Cancelled,
        attempt: held.spent,
        lost: losses,
        lease: None,
        output: None,
        error: None,
    };
    if let Some(reason) = lease.cancel_reason(turn.conn, held.id)? {
        write_attempt(turn, lease, held, loss, None)?;
        rescued.cancelled += 1;
        return finish(turn, job, &End { error: Some(&reason), ..end });
    }
    if loss.is_some_and(|loss| losses >= loss.max) {
        let failure = poison(job, losses);
        write_attempt(turn, lease, held, loss, None)?;
        rescued.poisoned += 1;
        let error = Some(failure.message.as_str());
        finish(turn, job, &End { state: State::Dead, error, ..end })?;
        return dead::bury(turn, job, &failure, held.spent);
    }
    write_attempt(turn, lease, held, loss, Some(turn.now))?;
    ready::insert(turn, job, Waiting { run_at: turn.now, spent: held.spent, lost: losses })?;
    turn.news.ready(&job.queue);
    rescued.ready += 1;
    Ok(())
}

/// Whether a run has come further since its job lost a worker.
fn has_grown(turn: &Turn<'_>, held: Held) -> Result<bool> {
    if held.lost == 0 {
        return Ok(false);
    }
    let mut select = turn.conn.prepare_cached(include_str!("sql/has_grown.sql"))?;
    Ok(select.query_row([held.id.0.as_bytes()], |row| row.get(0))?)
}

/// What a lost worker's handler decided in a transaction of its own is as good as settled.
fn carry_out(
    turn: &mut Turn<'_>,
    lease: &Lease,
    held: Held,
    job: Job,
    settlement: Settlement,
) -> Result<()> {
    let item = SettleItem {
        job: Arc::new(job),
        token: lease.token,
        attempt: held.spent.saturating_add(1),
        lost: held.lost,
        started_at: time(turn.now),
        gates: Vec::new(),
        settlement,
        decided: true,
        run: None,
    };
    settle::settle_one(turn, lease, held, &item, &item.settlement).map(drop)
}

fn poison(job: &Job, lost: u16) -> Failure {
    let message = format!("it lost its worker {lost} times; it may be what kills them");
    Failure::new(&job.kind, ErrorClass::Poison, message)
}

/// Keeps an attempt that its worker did not end: it was lost, or has no start, so that its token counts as stale.
fn write_attempt(
    turn: &Turn<'_>,
    lease: &Lease,
    held: Held,
    loss: Option<Loss>,
    next_at: Option<i64>,
) -> Result<()> {
    turn.conn.prepare_cached(include_str!("sql/insert_attempt.sql"))?.execute(params![
        held.id.0.as_bytes(),
        lease.token.0,
        held.spent.saturating_add(1),
        lease.worker.0.as_bytes(),
        loss.map(|loss| loss.claimed_at),
        turn.now,
        loss.map(|_| ErrorClass::Lost.word()),
        loss.map(|_| "its worker was lost"),
        next_at
    ])?;
    Ok(())
}
