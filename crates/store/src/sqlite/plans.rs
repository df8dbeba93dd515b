//! Plans for dead letters: kept, applied and undone a batch a turn.
//!
//! There is one writer, so a batch is looked at and acted on in one turn, and nobody comes in between.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Row, params, params_from_iter};
use tidemill_core::dead::Triage;
use tidemill_core::dead::plan::{Act, KEPT_DAYS, Stage, fate};
use tidemill_core::{By, JobId, PlanId, State};
use uuid::Uuid;

use crate::error::Result;
use crate::plan::{
    EXAMPLES_MAX, Example, GROUPS_MAX, NewPlan, PlanStep, PlanView, Planned, Plans, groups, note,
    unreadable, why_replayed,
};
use crate::sqlite::finish::{End, finish};
use crate::sqlite::rows::{count, job_id, time_at, time_opt};
use crate::sqlite::writer::Turn;
use crate::sqlite::{Sqlite, dead, letters, ready, sweep};

/// So many letters of old plans are forgotten in one turn.
const FORGET_ROWS: usize = 2000;

#[async_trait]
impl Plans for Sqlite {
    async fn add_plan(&self, new: NewPlan) -> Result<Planned> {
        self.write(move |turn| add(turn, &new)).await
    }

    async fn plan(&self, id: PlanId) -> Result<Option<PlanView>> {
        self.read(move |conn| {
            let mut select = conn.prepare_cached(include_str!("sql/select_plan.sql"))?;
            let found = select.query_one([id.0.as_bytes()], |row| Ok(view(row))).optional()?;
            found.transpose()
        })
        .await
    }

    async fn plans(&self, before: Option<PlanId>, limit: usize) -> Result<Vec<PlanView>> {
        self.read(move |conn| {
            let mut select = conn.prepare_cached(include_str!("sql/select_plans.sql"))?;
            let before = before.as_ref().map(|id| id.0.as_bytes());
            let rows = select.query_map(params![before, limit as i64], |row| Ok(view(row)))?;
            rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().collect()
        })
        .await
    }

    async fn apply_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
        let by = by.to_owned();
        self.write(move |turn| apply(turn, id, &by, batch)).await
    }

    async fn undo_plan(&self, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
        let by = by.to_owned();
        self.write(move |turn| undo(turn, id, &by, batch)).await
    }

    async fn forget_plans(&self, plans_max: usize) -> Result<bool> {
        self.write(move |turn| {
            let (conn, max) = (turn.conn, plans_max as i64);
            let mut letters = conn.prepare_cached(include_str!("sql/delete_plan_letters.sql"))?;
            let gone = letters.execute(params![turn.now, max, FORGET_ROWS as i64])?;
            let mut plans = conn.prepare_cached(include_str!("sql/delete_plans.sql"))?;
            plans.execute(params![turn.now, max])?;
            Ok(gone == FORGET_ROWS)
        })
        .await
    }
}

fn add(turn: &Turn<'_>, new: &NewPlan) -> Result<Planned> {
    let (conn, now, id) = (turn.conn, turn.now, new.id.0.as_bytes());
    let mut values = letters::conditions(&new.filter);
    values.push(id.to_vec().into());
    values.push((new.act == Act::Delete).into());
    values.push((new.letters_max as i64 + 1).into());
    let mut insert = conn.prepare_cached(include_str!("sql/insert_plan_letters.sql"))?;
    let count = insert.execute(params_from_iter(values))?;
    if count > new.letters_max {
        conn.prepare_cached(include_str!("sql/drop_plan_letters.sql"))?.execute([id])?;
        return Ok(Planned::TooLarge);
    }
    let mut examples = conn.prepare_cached(include_str!("sql/select_plan_groups.sql"))?;
    let rows = (EXAMPLES_MAX as i64, (GROUPS_MAX * EXAMPLES_MAX) as i64);
    let examples = examples.query_map(params![id, rows.0, rows.1], example)?;
    let groups = groups(examples.collect::<rusqlite::Result<Vec<_>>>()?);
    let expires_at = now.saturating_add(micros(new.apply_within));
    conn.prepare_cached(include_str!("sql/insert_plan.sql"))?.execute(params![
        id,
        serde_json::json!(new.act).to_string(),
        serde_json::json!(new.filter).to_string(),
        serde_json::json!(groups).to_string(),
        new.by,
        new.why,
        count as i64,
        now,
        expires_at,
        expires_at.saturating_add(micros(new.kept))
    ])?;
    let found = find(turn, new.id)?.map(|(view, _)| view);
    found.map(|view| Planned::Made(Box::new(view))).ok_or_else(|| unreadable(&"it is not there"))
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

fn example(row: &Row<'_>) -> rusqlite::Result<Example> {
    Ok(Example {
        fingerprint: row.get(0)?,
        kind: row.get(1)?,
        class: row.get(2)?,
        error: row.get(3)?,
        count: count::<i64>(row, 4)?,
        id: job_id(row, 5)?,
    })
}

fn view(row: &Row<'_>) -> Result<PlanView> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let act: Act = serde_json::from_str(text(2)?).map_err(|error| unreadable(&error))?;
    Ok(PlanView {
        id: PlanId(Uuid::from_bytes(row.get(0)?)),
        stage: Stage::of_number(row.get(1)?),
        act,
        undoable: act.is_undoable(),
        filter: serde_json::from_str(text(3)?).map_err(|error| unreadable(&error))?,
        groups: serde_json::from_str(text(4)?).map_err(|error| unreadable(&error))?,
        by: row.get(5)?,
        why: row.get(6)?,
        letters: count::<i64>(row, 7)?,
        made_at: time_at(row, 8)?,
        expires_at: time_at(row, 9)?,
        applied_at: time_opt(row, 10)?,
        undone_at: time_opt(row, 11)?,
        done: count::<i64>(row, 12)?,
        passed: count::<i64>(row, 13)?,
        undone: count::<i64>(row, 14)?,
        stayed: count::<i64>(row, 15)?,
    })
}

/// A plan, and the letter that its last batch ended with.
fn find(turn: &Turn<'_>, id: PlanId) -> Result<Option<(PlanView, Vec<u8>)>> {
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_plan.sql"))?;
    let found = select.query_one([id.0.as_bytes()], |row| Ok((view(row), row.get(16)?)));
    let Some((view, reached)) = found.optional()? else { return Ok(None) };
    Ok(Some((view?, reached)))
}

fn apply(turn: &mut Turn<'_>, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
    let Some((plan, reached)) = find(turn, id)? else { return Ok(PlanStep::Unknown) };
    match plan.stage {
        Stage::Applied => return Ok(PlanStep::Went(Box::new(plan))),
        Stage::Made if plan.expires_at.as_microsecond() <= turn.now => {
            return Ok(PlanStep::Expired(plan.expires_at));
        }
        Stage::Made | Stage::Applying => {}
        Stage::Undoing | Stage::Undone => return Ok(PlanStep::NotNow(plan.stage)),
    }
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_plan_letters.sql"))?;
    let letters = select.query_map(params![id.0.as_bytes(), reached, batch as i64], |row| {
        Ok((job_id(row, 0)?, row.get(1)?))
    })?;
    let letters: Vec<(JobId, bool)> = letters.collect::<rusqlite::Result<_>>()?;
    let same: Vec<JobId> = letters.iter().filter(|(_, same)| *same).map(|(id, _)| *id).collect();
    let done = act(turn, &plan, &same, by)?;
    mark(turn, id, letters.iter().map(|(id, _)| *id), &done, (fate::DONE, fate::PASSED))?;
    let stage = if letters.len() < batch { Stage::Applied } else { Stage::Applying };
    let (all, done) = (letters.len() as i64, done.len() as i64);
    let last = letters.last().map_or(reached, |(id, _)| id.0.as_bytes().to_vec());
    step(turn, id, stage, &last, [done, all - done, 0, 0])
}

/// Does the act to letters; answers to which.
fn act(turn: &mut Turn<'_>, plan: &PlanView, ids: &[JobId], by: &str) -> Result<Vec<JobId>> {
    let text = note(plan.act, &plan.why, plan.id);
    match plan.act {
        Act::Replay => {
            let why = why_replayed(plan);
            return dead::replay(turn, ids, By { who: by, why: why.as_deref() }, None);
        }
        Act::Triage(to) => drop(dead::note(turn, ids, by, &text, Some(to), None)?),
        Act::Archive => drop(dead::note(turn, ids, by, &text, None, Some(true))?),
        Act::Delete => {
            let mut done = Vec::new();
            for id in ids {
                if sweep::purge(turn, &[*id])? == 1 {
                    done.push(*id);
                }
            }
            return Ok(done);
        }
    }
    Ok(ids.to_vec())
}

fn mark(
    turn: &Turn<'_>,
    plan: PlanId,
    letters: impl Iterator<Item = JobId>,
    done: &[JobId],
    (yes, no): (i16, i16),
) -> Result<()> {
    // Both are in the order of their ids.
    let mut done = done.iter().peekable();
    let mut update = turn.conn.prepare_cached(include_str!("sql/mark_plan_letter.sql"))?;
    for id in letters {
        let fate = if done.next_if(|next| **next == id).is_some() { yes } else { no };
        update.execute(params![plan.0.as_bytes(), id.0.as_bytes(), fate])?;
    }
    Ok(())
}

/// Notes how far a plan has come; answers it.
fn step(
    turn: &Turn<'_>,
    id: PlanId,
    stage: Stage,
    reached: &[u8],
    [done, passed, undone, stayed]: [i64; 4],
) -> Result<PlanStep> {
    // What begins to be undone begins with its first letter, and so does what comes after the end.
    let is_over = matches!(stage, Stage::Applied | Stage::Undone);
    let kept_until = turn.now + micros(Duration::from_hours(24 * u64::from(KEPT_DAYS)));
    turn.conn.prepare_cached(include_str!("sql/update_plan.sql"))?.execute(params![
        id.0.as_bytes(),
        stage.number(),
        if is_over { &[] } else { reached },
        done,
        passed,
        undone,
        stayed,
        turn.now,
        kept_until
    ])?;
    let found = find(turn, id)?;
    Ok(found.map_or(PlanStep::Unknown, |(view, _)| PlanStep::Went(Box::new(view))))
}

fn undo(turn: &mut Turn<'_>, id: PlanId, by: &str, batch: usize) -> Result<PlanStep> {
    let Some((plan, reached)) = find(turn, id)? else { return Ok(PlanStep::Unknown) };
    let reached = match plan.stage {
        Stage::Undone => return Ok(PlanStep::Went(Box::new(plan))),
        Stage::Made => return Ok(PlanStep::NotNow(plan.stage)),
        Stage::Applying | Stage::Applied => Vec::new(),
        Stage::Undoing => reached,
    };
    let (triage, archived, redrives) = match plan.act {
        Act::Triage(to) => (Some(to.number()), None, 0),
        Act::Archive => (None, Some(true), 0),
        Act::Replay => (Some(Triage::Retrying.number()), None, 1),
        Act::Delete => return Ok(PlanStep::NotNow(plan.stage)),
    };
    let mut select = turn.conn.prepare_cached(include_str!("sql/select_plan_done.sql"))?;
    let values = params![id.0.as_bytes(), reached, batch as i64, triage, archived, redrives];
    let letters = select
        .query_map(values, |row| Ok((job_id(row, 0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    let letters: Vec<(JobId, bool, Option<u16>, Option<String>)> =
        letters.collect::<rusqlite::Result<_>>()?;
    let mut done = Vec::new();
    for (letter, same, attempt, error) in &letters {
        let error = error.as_deref().unwrap_or_default();
        let may =
            *same && (plan.act != Act::Replay || bury(turn, *letter, attempt.unwrap_or(0), error)?);
        if may {
            let mut restore = turn.conn.prepare_cached(include_str!("sql/restore_dead.sql"))?;
            let (plan, letter) = (id.0.as_bytes(), letter.0.as_bytes());
            restore.execute(params![
                plan,
                letter,
                triage.is_some(),
                archived.is_some(),
                redrives
            ])?;
        }
        if may {
            dead::write_note(turn, *letter, by, &format!("undone (plan {id})"))?;
            done.push(*letter);
        }
    }
    let ids = letters.iter().map(|(id, ..)| *id);
    mark(turn, id, ids, &done, (fate::UNDONE, fate::STAYS))?;
    let stage = if letters.len() < batch { Stage::Undone } else { Stage::Undoing };
    let (all, done) = (letters.len() as i64, done.len() as i64);
    let last = letters.last().map_or(reached, |(id, ..)| id.0.as_bytes().to_vec());
    step(turn, id, stage, &last, [0, 0, done, all - done])
}

/// Lets a replayed job that waits and has not started be dead again; its letter stands. `false`: it may not.
fn bury(turn: &mut Turn<'_>, id: JobId, attempt: u16, error: &str) -> Result<bool> {
    let conn = turn.conn;
    let mut unstarted = conn.prepare_cached(include_str!("sql/select_unstarted.sql"))?;
    if !unstarted.exists([id.0.as_bytes()])? {
        return Ok(false);
    }
    let Some(body) = ready::body(conn, id)? else { return Ok(false) };
    let waiting = ready::find(conn, &body, &ready::last_attempt(conn, id)?)?;
    let Some(waiting) = waiting.filter(|_| body.job.options.parent.is_none()) else {
        return Ok(false);
    };
    ready::delete(turn, &body.job, waiting.run_at)?;
    let (state, error) = (State::Dead, Some(error));
    let end = End { state, attempt, lost: waiting.lost, lease: None, output: None, error };
    finish(turn, &body.job, &end)?;
    Ok(true)
}
