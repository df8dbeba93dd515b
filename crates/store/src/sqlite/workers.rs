//! Workers: who is there, who beats, and who has a duty.
//!
//! A worker beats, not each job, so a heartbeat costs the same for one job as for a thousand.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::{Edition, WorkerId};

use crate::error::Result;
use crate::request::{BEAT_AGE, Beat, WorkerCard};
use crate::sqlite::reach;
use crate::sqlite::rows::{count, job_id, time_at, worker_id};
use crate::sqlite::writer::Turn;
use crate::view::WorkerView;

/// A beat so soon after the last one is not written. Two processes that beat whenever the other
/// one wrote would otherwise keep each other awake.
const BEAT_US_MIN: i64 = 100_000;

/// The edition of the rules that holds; `None` for a worker that is not registered.
pub(super) fn edition_for(conn: &Connection, worker: WorkerId) -> Result<Option<Edition>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_asker.sql"))?;
    let edition = select.query_one([worker.0.as_bytes()], |row| Ok(Edition(count::<i64>(row, 0)?)));
    Ok(edition.optional()?)
}

pub(super) fn register(turn: &Turn<'_>, card: &WorkerCard) -> Result<()> {
    reach::grow(turn, || insert(turn, card))
}

fn insert(turn: &Turn<'_>, card: &WorkerCard) -> Result<()> {
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_worker.sql"))?;
    insert.execute(params![
        card.id.0.as_bytes(),
        card.name,
        words(&card.queues),
        words(&card.kinds),
        card.slots,
        turn.now,
        card.lease_ttl.map(|ttl| i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX)),
        serde_json::json!(card.slots_of).to_string()
    ])?;
    Ok(())
}

pub(super) fn beat(turn: &Turn<'_>, worker: WorkerId) -> Result<Beat> {
    let conn = turn.conn;
    let mut select = conn.prepare_cached(include_str!("sql/select_worker.sql"))?;
    let lease_us = select.query_one([worker.0.as_bytes()], |row| row.get::<_, Option<i64>>(0));
    let Some(lease_us) = lease_us.optional()? else {
        return Ok(Beat { lost: true, ..Beat::default() });
    };
    lives(turn, worker, BEAT_US_MIN)?;
    let mut select = conn.prepare_cached(include_str!("sql/select_cancels.sql"))?;
    let cancelled = select.query_map([worker.0.as_bytes()], |row| job_id(row, 0))?;
    let cancelled = cancelled.collect::<rusqlite::Result<_>>()?;
    let lease_ttl = lease_us.map(|us| Duration::from_micros(us.unsigned_abs()));
    Ok(Beat { lost: false, cancelled, lease_ttl })
}

/// A worker that takes jobs lives, whenever it beat last: others who waited for the file as long as it did would give
/// up at once what it has just been given.
pub(super) fn has_claimed(turn: &Turn<'_>, worker: WorkerId) -> Result<()> {
    lives(turn, worker, BEAT_AGE.as_micros() as i64)
}

/// Notes that a worker lives, unless that was noted so short a time ago.
fn lives(turn: &Turn<'_>, worker: WorkerId, us_min: i64) -> Result<()> {
    let mut update = turn.conn.prepare_cached(include_str!("sql/update_beat.sql"))?;
    update.execute(params![worker.0.as_bytes(), turn.now, turn.now - us_min])?;
    Ok(())
}

pub(super) fn workers(conn: &Connection) -> Result<Vec<WorkerView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_workers.sql"))?;
    let workers = select.query_map([], view)?;
    Ok(workers.collect::<rusqlite::Result<_>>()?)
}

fn view(row: &Row<'_>) -> rusqlite::Result<WorkerView> {
    Ok(WorkerView {
        id: worker_id(row, 0)?,
        name: row.get(1)?,
        queues: read_words(row.get_ref(2)?.as_str()?),
        kinds: read_words(row.get_ref(3)?.as_str()?),
        slots: row.get(4)?,
        started_at: time_at(row, 5)?,
        beat_at: time_at(row, 6)?,
        slots_of: serde_json::from_str(row.get_ref(7)?.as_str()?).unwrap_or_default(),
        lease_ms: row.get::<_, Option<i64>>(8)?.map(|us| us.unsigned_abs() / 1000),
    })
}

/// Takes or keeps a duty; answers since when it has had it, and nothing while another holds it.
pub(super) fn take_duty(
    turn: &Turn<'_>,
    name: &str,
    holder: WorkerId,
    ttl: Duration,
) -> Result<Option<Timestamp>> {
    let until = turn.now.saturating_add(i64::try_from(ttl.as_micros()).unwrap_or(i64::MAX));
    let mut upsert = turn.conn.prepare_cached(include_str!("sql/take_duty.sql"))?;
    let given = params![name, holder.0.as_bytes(), until, turn.now];
    Ok(upsert.query_one(given, |row| time_at(row, 0)).optional()?)
}

/// Gives a duty back.
pub(super) fn leave_duty(turn: &Turn<'_>, name: &str, holder: WorkerId) -> Result<()> {
    let mut delete = turn.conn.prepare_cached(include_str!("sql/delete_duty.sql"))?;
    delete.execute(params![name, holder.0.as_bytes()])?;
    Ok(())
}

fn words(words: &[String]) -> String {
    serde_json::json!(words).to_string()
}

fn read_words(text: &str) -> Vec<String> {
    serde_json::from_str(text).unwrap_or_default()
}
