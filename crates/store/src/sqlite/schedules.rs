//! Schedules: set, listed, deleted; and the history of their slots.
//!
//! There is one writer, so versions are looked at first and written after. Refuses to write anything
//! when one version of a batch is another than its change was made of.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tidemill_core::schedule::Definition;

use crate::error::Result;
use crate::schedule::{
    FireView, Forgot, How, NextAt, ScheduleChange, ScheduleView, What, Which, of_number,
    read_definition, write_definition,
};
use crate::sqlite::rows::{count, job_id_opt, time, time_at, time_opt};
use crate::sqlite::writer::Turn;

/// The schedules that are meant.
pub(super) fn list(conn: &Connection, which: &Which) -> Result<Vec<ScheduleView>> {
    let (name, owner, after, limit) = match which {
        Which::All => (None, None, None, -1),
        Which::Named(name) => (Some(name), None, None, -1),
        Which::OwnedBy(owner) => (None, Some(owner), None, -1),
        Which::Page { owner, after, limit } => {
            (None, owner.as_ref(), after.as_ref(), *limit as i64)
        }
        Which::Next(limit) => {
            let mut select = conn.prepare_cached(include_str!("sql/select_next_schedules.sql"))?;
            return views(select.query([*limit as i64])?);
        }
    };
    let mut select = conn.prepare_cached(include_str!("sql/select_schedules.sql"))?;
    views(select.query(params![name, owner, after, limit])?)
}

fn views(mut rows: rusqlite::Rows<'_>) -> Result<Vec<ScheduleView>> {
    let mut views = Vec::new();
    while let Some(row) = rows.next()? {
        let definition = read_definition(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
        views.push(view(row, definition)?);
    }
    Ok(views)
}

fn view(row: &Row<'_>, definition: Definition) -> rusqlite::Result<ScheduleView> {
    Ok(ScheduleView {
        definition,
        version: row.get(1)?,
        paused: row.get(2)?,
        next_at: time_opt(row, 3)?,
        last_slot: time_opt(row, 4)?,
        last_job: job_id_opt(row, 5)?,
        made_at: time_at(row, 6)?,
        changed_at: time_at(row, 7)?,
        forgot: Forgot {
            own: time_opt(row, 8)?.zip(time_opt(row, 9)?),
            backfilled: time_opt(row, 10)?.zip(time_opt(row, 11)?),
        },
    })
}

/// Changes schedules, all or none.
pub(super) fn change(turn: &mut Turn<'_>, changes: &[ScheduleChange]) -> Result<bool> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/schedule_version.sql"))?;
    for change in changes {
        let (name, version, next_at) = match change {
            ScheduleChange::Put { definition, version, next_at, .. } => {
                (&definition.name, *version, *next_at)
            }
            ScheduleChange::Delete { name, version } => (name, *version, NextAt::Keep),
        };
        let found = select.query_one([name], |row| Ok((row.get(0)?, time_opt(row, 1)?)));
        let (found, waits_for): (i64, _) = found.optional()?.unwrap_or_default();
        if found != version || next_at.overlooks(waits_for, time(turn.now)) {
            return Ok(false);
        }
    }
    for change in changes {
        write(turn, change)?;
    }
    turn.news.schedules = true;
    Ok(true)
}

fn write(turn: &Turn<'_>, change: &ScheduleChange) -> Result<()> {
    let (conn, now) = (turn.conn, turn.now);
    match change {
        ScheduleChange::Put { definition, version, paused, next_at } => {
            let text = write_definition(definition)?;
            let (keep, next) = match next_at {
                NextAt::Keep => (true, None),
                NextAt::At { next, .. } => (false, next.map(jiff::Timestamp::as_microsecond)),
            };
            let (name, owner) = (&definition.name, &definition.owner);
            if *version == 0 {
                let mut insert = conn.prepare_cached(include_str!("sql/insert_schedule.sql"))?;
                insert.execute(params![now, name, owner, paused, text, next])?;
            } else {
                let mut update = conn.prepare_cached(include_str!("sql/update_schedule.sql"))?;
                update.execute(params![now, name, owner, paused, text, next, keep])?;
            }
        }
        ScheduleChange::Delete { name, .. } => {
            conn.prepare_cached(include_str!("sql/delete_schedule.sql"))?.execute([name])?;
            conn.prepare_cached(include_str!("sql/delete_fires.sql"))?.execute([name])?;
        }
    }
    Ok(())
}

/// The history of a schedule, latest first.
pub(super) fn history(conn: &Connection, name: &str, limit: usize) -> Result<Vec<FireView>> {
    let mut select = conn.prepare_cached(include_str!("sql/select_fires.sql"))?;
    let mut rows = select.query(params![name, limit as i64])?;
    let mut fires = Vec::new();
    while let Some(row) = rows.next()? {
        fires.push(FireView {
            slot: time_at(row, 0)?,
            until: time_opt(row, 1)?,
            slots: count::<i64>(row, 2)?,
            what: of_number(&What::ALL, row.get(3)?)?,
            how: of_number(&How::ALL, row.get(4)?)?,
            job: job_id_opt(row, 5)?,
            jobs: row.get(6)?,
            at: time_at(row, 7)?,
        });
    }
    Ok(fires)
}
