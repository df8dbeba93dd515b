//! Writes flows: one call, one statement per table, however many jobs.

use std::sync::Arc;

use tidemill_core::flow::{FlowState, Place, Plan, PlannedJob, plan};
use tidemill_core::{FlowId, NewJob};

use super::start::{is_plain, start_plain};
use super::{act, advance};
use crate::error::Result;
use crate::flow::text::{Texts, is_slow_job, jobs_text, texts};
use crate::flow::{FlowAnswer, Start};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};

const WRITE: Statement = sql!("write_flow", TIMESTAMPTZ, TEXT, TEXT);
const WRITE_JOBS: Statement = sql!("write_flow_jobs", TIMESTAMPTZ, UUID, TEXT);
const STEP_NUMBER: Statement = sql!("select_step_number", UUID, TEXT);

/// Writes a flow and, unless it is to be built further, lets it begin.
pub(crate) async fn start(shared: &Arc<Shared>, plan: Plan, when: Start) -> Result<bool> {
    if when == Start::Now && is_plain(&plan) {
        return start_plain(shared, plan).await;
    }
    let Texts { flow: given, jobs } = texts(&plan)?;
    let mut tries = Tries::resend();
    loop {
        let written = start_once(shared, plan.id, &given, &jobs, when).await;
        match written {
            Ok((is_new, done)) => {
                done.tell(shared);
                return Ok(is_new || tries.was_lost());
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn start_once(
    shared: &Shared,
    id: FlowId,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    let conn = shared.db.begin().await?;
    let acted = write(shared, &conn, id, given, jobs, when).await;
    conn.end(acted).await
}

async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    id: FlowId,
    given: &str,
    jobs: &str,
    when: Start,
) -> Result<(bool, advance::Done), Fault> {
    let rows = conn.query(&WRITE, &[&shared.db.manual_now(), &given, &jobs]).await?;
    let is_new = rows.first().is_some_and(|row| row.get(0));
    if !is_new || when == Start::Later {
        return Ok((is_new, advance::Done::default()));
    }
    Ok((true, act::begin_in(shared, conn, id.0).await?.1))
}

/// Gives a step of a flow that is being built more jobs.
pub(crate) async fn add(
    shared: &Shared,
    id: FlowId,
    step: &str,
    jobs: Vec<NewJob>,
) -> Result<FlowAnswer> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let added = add_in(shared, &conn, id, step, &jobs).await;
        let acted = added;
        let answer = conn.end(acted).await;
        match answer {
            Ok(answer) => return Ok(answer),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn add_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: FlowId,
    step: &str,
    jobs: &[NewJob],
) -> Result<FlowAnswer, Fault> {
    let boards = advance::lock(conn, &[id.0]).await?;
    let Some(board) = boards.first() else { return Ok(FlowAnswer::Unknown) };
    if board.flow.state != FlowState::Building {
        return Ok(FlowAnswer::NotNow { why: "it has begun".to_owned() });
    }
    let found = conn.query(&STEP_NUMBER, &[&id.0, &step]).await?;
    let Some(row) = found.first() else { return Ok(FlowAnswer::StepUnknown) };
    let (number, is_slow): (i32, bool) = (row.get(0), row.get(1));
    let spot = Place {
        id,
        step: number as u32,
        name: step.to_owned(),
        joins: row.get(2),
        grows: false,
        due: None,
    };
    let place = |job: &NewJob| plan::place(job.clone(), spot.clone());
    let planned: Vec<PlannedJob> =
        jobs.iter().map(|job| PlannedJob { step: spot.step, job: place(job) }).collect();
    if !is_slow && planned.iter().any(is_slow_job) {
        let why =
            "a step that is given jobs bit by bit has none that wait for the clock or in a line";
        return Ok(FlowAnswer::NotNow { why: why.to_owned() });
    }
    let singly = board.flow.at_once.is_some();
    let text = jobs_text(&planned, is_slow, singly).map_err(Fault::Refused)?;
    let rows = conn.query(&WRITE_JOBS, &[&shared.db.manual_now(), &id.0, &text]).await?;
    Ok(FlowAnswer::Acted { jobs: rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64) })
}
