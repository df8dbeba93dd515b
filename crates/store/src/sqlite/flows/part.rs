//! Flows that are built in parts: a part is added once, however often it is sent.

use rusqlite::{OptionalExtension, params};
use tidemill_core::flow::{Board, Part, Place, plan};
use tidemill_core::{FlowId, NewJob};

use super::advance;
use super::write::{millis, write_job};
use crate::error::Result;
use crate::flow::{FlowAnswer, ID_TAKEN};
use crate::sqlite::writer::Turn;

/// Gives a step of a flow that is being built more jobs.
pub(in crate::sqlite) fn add(
    turn: &mut Turn<'_>,
    id: FlowId,
    step: &str,
    jobs: &[NewJob],
    part: Option<&Part>,
) -> Result<FlowAnswer> {
    let Some(mut board) = advance::board(turn, id)? else { return Ok(FlowAnswer::Unknown) };
    if let Some(part) = part
        && let Some(answer) = known(turn, id, part)?
    {
        return Ok(answer);
    }
    if let Some(why) = board.may_not_be_built() {
        return Ok(FlowAnswer::NotNow { why });
    }
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_step_number.sql"))?;
    let found = select
        .query_one(params![id.0.as_bytes(), step], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((number, joins)) = found else { return Ok(FlowAnswer::StepUnknown) };
    if board.flow.saga {
        advance::learn_all(turn, &mut board)?;
    }
    let Some(there) = there(turn, id, number, jobs)? else {
        return Ok(FlowAnswer::invalid(step, ID_TAKEN));
    };
    if let Err(invalid) = board.check_added(number, (jobs.len() as u64).saturating_sub(there)) {
        return Ok(invalid.into());
    }
    let (name, way) = (step.to_owned(), board.way_of(number));
    let spot = Place { id, step: number, name, joins, grows: false, due: None, way };
    let written = write(turn, &board, &spot, jobs)?;
    if let Some(Part { key, print }) = part {
        let mut insert = turn.conn.prepare_cached(include_str!("../sql/insert_part.sql"))?;
        insert.execute(params![id.0.as_bytes(), key, print, millis(written)])?;
    }
    Ok(FlowAnswer::Acted { jobs: written })
}

/// What is answered if a part of this key was added before.
fn known(turn: &Turn<'_>, id: FlowId, part: &Part) -> Result<Option<FlowAnswer>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_part.sql"))?;
    let found = select.query_one(params![id.0.as_bytes(), part.key], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
    });
    let found = found.optional()?;
    Ok(found.map(|(print, jobs)| FlowAnswer::of_known_part(part, &print, jobs)))
}

/// How many of these jobs the step has already; nothing if the id of one is that of another job.
fn there(turn: &Turn<'_>, id: FlowId, step: u32, jobs: &[NewJob]) -> Result<Option<u64>> {
    let mut select = turn.conn.prepare_cached(include_str!("../sql/select_is_of_step.sql"))?;
    let mut there = 0;
    for job in jobs {
        let found = select
            .query_one(params![job.id.0.as_bytes(), id.0.as_bytes(), step], |row| row.get(0))
            .optional()?;
        match found {
            Some(true) => there += 1,
            Some(false) => return Ok(None),
            None => {}
        }
    }
    Ok(Some(there))
}

/// Writes the jobs; answers how many are new.
fn write(turn: &Turn<'_>, board: &Board, spot: &Place, jobs: &[NewJob]) -> Result<u64> {
    let (mut written, mut is_slow) = (0, false);
    let is_forward = board.is_forward(spot.step);
    for job in jobs {
        let mut job = plan::place(job.clone(), spot.clone());
        if is_forward {
            plan::retry_forward(&mut job);
        }
        written += write_job(turn, spot.id, spot.step, &job)?;
        is_slow |= plan::is_slow(&job);
    }
    let mut grow = turn.conn.prepare_cached(include_str!("../sql/grow_step.sql"))?;
    grow.execute(params![spot.id.0.as_bytes(), spot.step, millis(written), is_slow])?;
    Ok(written)
}
