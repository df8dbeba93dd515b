//! Dead letters: written when a job gives up, and sent on their way again.
//!
//! A letter outlives its resurrection: it keeps how often it was redriven, so that a rule cannot
//! redrive for ever, and its notes. A job that dies again is `new` again.

use rusqlite::{Connection, params};
use tidemill_core::dead::{RedriveRule, Triage};
use tidemill_core::flow::Arrival;
use tidemill_core::limit::SPAN_MS_MAX;
use tidemill_core::{By, Failure, Job, JobId, Payload};

use crate::error::Result;
use crate::sqlite::Sqlite;
use crate::sqlite::finish::{is_excluded, take_back};
use crate::sqlite::lines;
use crate::sqlite::ready::{self, Waiting};
use crate::sqlite::rows::{job_id, time};
use crate::sqlite::runs::is_undone;
use crate::sqlite::writer::Turn;

/// Writes the letter of a job that gave up.
pub(super) fn bury(turn: &Turn<'_>, job: &Job, failure: &Failure, attempt: u16) -> Result<()> {
    turn.conn.prepare_cached(include_str!("sql/upsert_dead.sql"))?.execute(params![
        job.id.0.as_bytes(),
        job.kind,
        job.queue,
        job.tenant,
        failure.class.word(),
        failure.message,
        failure.fingerprint,
        attempt,
        turn.now
    ])?;
    Ok(())
}

/// Notes something on dead letters, and sets their triage or puts them aside if given. One that is
/// given up lets those behind it in its line pass.
pub(super) fn note(
    turn: &mut Turn<'_>,
    ids: &[JobId],
    by: &str,
    text: &str,
    triage: Option<Triage>,
    archived: Option<bool>,
) -> Result<u64> {
    let mut update = turn.conn.prepare_cached(include_str!("sql/triage_dead.sql"))?;
    let gives_up = triage == Some(Triage::Abandoned) || archived == Some(true);
    let mut noted = 0;
    for JobId(id) in ids {
        let triage = triage.map(Triage::number);
        if update.execute(params![id.as_bytes(), triage, archived])? == 1 {
            write_note(turn, JobId(*id), by, text)?;
            if gives_up {
                lines::let_pass(turn, JobId(*id))?;
            }
            noted += 1;
        }
    }
    Ok(noted)
}

/// Leaves a note on a letter.
pub(super) fn write_note(turn: &Turn<'_>, id: JobId, by: &str, text: &str) -> Result<()> {
    let mut insert = turn.conn.prepare_cached(include_str!("sql/insert_note.sql"))?;
    insert.execute(params![id.0.as_bytes(), turn.now, by, text])?;
    Ok(())
}

/// Sends dead letters on their way again; answers which were dead.
pub(super) fn replay(
    turn: &mut Turn<'_>,
    ids: &[JobId],
    by: By<'_>,
    payload: Option<&Payload>,
) -> Result<Vec<JobId>> {
    let mut replayed = Vec::with_capacity(ids.len());
    for id in ids {
        if revive(turn, *id, by, payload)? {
            replayed.push(*id);
        }
    }
    Ok(replayed)
}

/// Sends a dead letter on its way again; `false` when it is not dead, or may not.
pub(super) fn revive(
    turn: &mut Turn<'_>,
    id: JobId,
    by: By<'_>,
    payload: Option<&Payload>,
) -> Result<bool> {
    let (conn, now) = (turn.conn, turn.now);
    if by.why.is_none() {
        let mut select = conn.prepare_cached(include_str!("sql/is_stuck.sql"))?;
        if select.query_one([id.0.as_bytes()], |row| row.get(0))? {
            return Ok(false);
        }
    }
    let mut select = conn.prepare_cached(include_str!("sql/is_turned_back.sql"))?;
    if select.query_one([id.0.as_bytes()], |row| row.get(0))? {
        return Ok(false);
    }
    let mut select = conn.prepare_cached(include_str!("sql/is_forgettable_job.sql"))?;
    if select.query_one(params![id.0.as_bytes(), now], |row| row.get(0))? {
        return Ok(false);
    }
    if is_undone(conn, id)? {
        return Ok(false);
    }
    if let Some(body) = ready::body(conn, id)?
        && is_excluded(conn, &body.job)?
    {
        return Ok(false);
    }
    let mut revive = conn.prepare_cached(include_str!("sql/delete_dead_outcome.sql"))?;
    if revive.execute([id.0.as_bytes()])? == 0 {
        return Ok(false);
    }
    let mut update = conn.prepare_cached(include_str!("sql/redrive_dead.sql"))?;
    update.execute([id.0.as_bytes()])?;
    let mut send = conn.prepare_cached(include_str!("sql/send_again.sql"))?;
    send.execute(params![id.0.as_bytes(), payload.map(Payload::as_str), time(now).to_string()])?;
    let text = if payload.is_some() { "replayed with another payload" } else { "replayed" };
    write_note(turn, id, by.who, &by.note(text))?;
    let Some(body) = ready::body(conn, id)? else { return Ok(true) };
    take_back(conn, &body.job)?;
    if let Some(place) = &body.job.options.flow {
        turn.news.arrive(place.id, Arrival { step: place.step, ok: 0, failed: -1 });
    }
    if body.job.line().is_some() {
        // It is still the first of a line that it blocks; else it goes to the end.
        lines::start(turn, &body.job)?;
    } else {
        ready::insert(turn, &body.job, Waiting { run_at: now, spent: 0, lost: 0 })?;
        ready::point(conn, id, now)?;
        turn.news.ready(&body.job.queue);
    }
    Ok(true)
}

/// Sends dead letters on that a rule may send on now. Nobody who writes waits for a look that finds none.
pub(super) async fn redrive(
    store: &Sqlite,
    rule: &RedriveRule,
    limit: usize,
    by: By<'_>,
) -> Result<Vec<JobId>> {
    let (now, ours) = (store.now_us(), rule.clone());
    if store.read(move |conn| redrivable(conn, now, &ours, 1)).await?.is_empty() {
        return Ok(Vec::new());
    }
    let (rule, who, why) = (rule.clone(), by.who.to_owned(), by.why.map(str::to_owned));
    let send = move |turn: &mut Turn<'_>| {
        let ids = redrivable(turn.conn, turn.now, &rule, limit)?;
        replay(turn, &ids, By { who: &who, why: why.as_deref() }, None)
    };
    store.write(send).await
}

/// Dead letters that a rule may send on now, longest dead first.
fn redrivable(conn: &Connection, now: i64, rule: &RedriveRule, limit: usize) -> Result<Vec<JobId>> {
    let delay_us = rule.delay_ms.min(SPAN_MS_MAX) as i64 * 1000;
    let mut select = conn.prepare_cached(include_str!("sql/select_redrivable.sql"))?;
    let ids = select.query_map(
        params![
            now.saturating_sub(delay_us),
            rule.redrives_max,
            rule.kind,
            rule.queue,
            rule.class.map(tidemill_core::ErrorClass::word),
            rule.error_contains,
            limit as i64,
            now
        ],
        |row| job_id(row, 0),
    )?;
    Ok(ids.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn redrive_rules(conn: &Connection) -> Result<Vec<RedriveRule>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_redrive_rules.sql"))?;
    let rules =
        select.query_map([], |row| Ok(serde_json::from_str(row.get_ref(0)?.as_str()?).ok()))?;
    let rules: rusqlite::Result<Vec<Option<RedriveRule>>> = rules.collect();
    Ok(rules?.into_iter().flatten().collect())
}

pub(super) fn set_redrive_rule(
    turn: &Turn<'_>,
    name: &str,
    rule: Option<&RedriveRule>,
) -> Result<()> {
    let conn = turn.conn;
    if let Some(rule) = rule {
        let mut upsert = conn.prepare_cached(include_str!("sql/upsert_redrive_rule.sql"))?;
        upsert.execute(params![name, serde_json::json!(rule).to_string()])?;
    } else {
        let mut delete = conn.prepare_cached(include_str!("sql/delete_redrive_rule.sql"))?;
        delete.execute([name])?;
    }
    Ok(())
}
