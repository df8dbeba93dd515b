//! Flows that are built in parts: a part is added once, however often it is sent.

use tidemill_core::flow::{Board, Part, Place, PlannedJob, plan};
use tidemill_core::{FlowId, NewJob};
use uuid::Uuid;

use super::advance;
use crate::error::Result;
use crate::flow::text::{is_slow_job, jobs_text};
use crate::flow::{FlowAnswer, ID_TAKEN};
use crate::postgres::Shared;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};

const WRITE_JOBS: Statement = sql!("write_flow_jobs", TIMESTAMPTZ, UUID, TEXT);
const STEP_NUMBER: Statement = sql!("select_step_number", UUID, TEXT);
const THERE: Statement = sql!("count_of_step", UUID_ARRAY, UUID, INT4);
const SLOW: Statement = sql!("slow_step", UUID, INT4);
const KNOWN: Statement = sql!("select_part", UUID, TEXT);
const NOTE: Statement = sql!("insert_part", UUID, TEXT, TEXT, INT8);

/// Gives a step of a flow that is being built more jobs.
pub(crate) async fn add(
    shared: &Shared,
    id: FlowId,
    step: &str,
    jobs: &[NewJob],
    part: Option<&Part>,
) -> Result<FlowAnswer> {
    let mut tries = Tries::resend();
    loop {
        let conn = shared.db.begin().await?;
        let added = add_in(shared, &conn, id, step, jobs, part).await;
        match conn.end(added).await {
            Ok(answer) => return Ok(answer),
            Err(fault) => tries.again(fault).await?,
        }
    }
}

/// Under the flow's lock: of a part that comes twice at once, one waits for the other.
async fn add_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: FlowId,
    step: &str,
    jobs: &[NewJob],
    part: Option<&Part>,
) -> Result<FlowAnswer, Fault> {
    let mut boards = advance::lock(conn, &[id.0]).await?;
    let Some(board) = boards.first_mut() else { return Ok(FlowAnswer::Unknown) };
    if let Some(part) = part {
        let rows = conn.query(&KNOWN, &[&id.0, &part.key]).await?;
        if let Some(row) = rows.first() {
            return Ok(FlowAnswer::of_known_part(part, row.get(0), row.get(1)));
        }
    }
    if let Some(why) = board.may_not_be_built() {
        return Ok(FlowAnswer::NotNow { why });
    }
    let found = conn.query(&STEP_NUMBER, &[&id.0, &step]).await?;
    let Some(row) = found.first() else { return Ok(FlowAnswer::StepUnknown) };
    let (number, is_slow, joins): (i32, bool, bool) = (row.get(0), row.get(1), row.get(2));
    if board.flow.saga {
        advance::learn_all(conn, &mut [board]).await?;
    }
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.id.0).collect();
    let rows = conn.query(&THERE, &[&ids, &id.0, &number]).await?;
    let (there, others) = rows.first().map_or((0, 0), |row| (row.get(0), row.get::<_, i64>(1)));
    if others > 0 {
        return Ok(FlowAnswer::invalid(step, ID_TAKEN));
    }
    let (there, number) = (i64::unsigned_abs(there), number as u32);
    if let Err(invalid) = board.check_added(number, (jobs.len() as u64).saturating_sub(there)) {
        return Ok(invalid.into());
    }
    let (name, way) = (step.to_owned(), board.way_of(number));
    let spot = Place { id, step: number, name, joins, grows: false, due: None, way };
    let written = write(shared, conn, board, &spot, jobs, is_slow).await?;
    if let Some(Part { key, print }) = part {
        conn.query(&NOTE, &[&id.0, key, print, &written]).await?;
    }
    Ok(FlowAnswer::Acted { jobs: written.unsigned_abs() })
}

/// Writes the jobs; answers how many are new. `was_slow`: the step has jobs that wait for the clock or in a line.
async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    board: &Board,
    spot: &Place,
    jobs: &[NewJob],
    was_slow: bool,
) -> Result<i64, Fault> {
    let (flow, step) = (spot.id.0, spot.step);
    let is_forward = board.is_forward(step);
    let planned = jobs.iter().map(|job| {
        let mut job = plan::place(job.clone(), spot.clone());
        if is_forward {
            plan::retry_forward(&mut job);
        }
        PlannedJob { step, job }
    });
    let planned: Vec<PlannedJob> = planned.collect();
    let is_slow = was_slow || planned.iter().any(is_slow_job);
    if is_slow && !was_slow {
        conn.query(&SLOW, &[&flow, &(step as i32)]).await?;
    }
    let singly = board.flow.at_once.is_some();
    let text = jobs_text(&planned, is_slow, singly).map_err(Fault::Refused)?;
    let rows = conn.query(&WRITE_JOBS, &[&shared.db.manual_now(), &flow, &text]).await?;
    Ok(rows.first().map_or(0, |row| row.get(0)))
}
