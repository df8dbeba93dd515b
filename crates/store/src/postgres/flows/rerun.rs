//! A step and everything behind it, run again: the old rows are history, fresh ones take their places.

use tidemill_core::FlowId;
use tidemill_core::flow::rerun::again;
use tidemill_core::flow::{Board, PlannedJob, Rerun};

use super::advance::{self, Done};
use super::forget::is_over;
use crate::error::Result;
use crate::flow::text::{is_slow_job, jobs_text};
use crate::flow::{FORGOTTEN, FlowAnswer};
use crate::postgres::Shared;
use crate::postgres::body::body;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Param, Statement, sql};

const RETIRE: Statement = sql!("retire_steps", UUID, INT4_ARRAY, TEXT_ARRAY);
const COPY: Statement = sql!(
    "copy_steps",
    TIMESTAMPTZ,
    UUID,
    INT4_ARRAY,
    INT4_ARRAY,
    TEXT_ARRAY,
    INT4_ARRAY,
    INT4_ARRAY,
    INT2_ARRAY,
    TEXT_ARRAY,
    BOOL_ARRAY,
);
const BODIES: Statement = sql!("select_bodies_of_step", UUID, INT4);
const SLOW: Statement = sql!("slow_step", UUID, INT4);
const WRITE_JOBS: Statement = sql!("write_flow_jobs", TIMESTAMPTZ, UUID, TEXT);

/// Lets a step and all behind it run again. Not sent again when its answer was lost: it would be refused, for then
/// they have not ended.
pub(super) async fn rerun(shared: &Shared, id: FlowId, step: &str) -> Result<FlowAnswer> {
    // What has ended and is not counted yet would be taken for running.
    advance::advance(shared, &[id.0]).await?;
    let mut tries = Tries::once();
    loop {
        let conn = shared.db.begin().await?;
        let acted = rerun_in(shared, &conn, id, step).await;
        match conn.end(acted).await {
            Ok((answer, done)) => {
                done.tell(shared);
                return Ok(answer);
            }
            Err(fault) => tries.again(fault).await?,
        }
    }
}

async fn rerun_in(
    shared: &Shared,
    conn: &Conn<'_>,
    id: FlowId,
    step: &str,
) -> Result<(FlowAnswer, Done), Fault> {
    let mut boards = advance::lock(conn, &[id.0]).await?;
    let Some(board) = boards.first_mut() else {
        return Ok((FlowAnswer::Unknown, Done::default()));
    };
    if is_over(shared, conn, id.0).await? {
        return Ok((FlowAnswer::NotNow { why: FORGOTTEN.to_owned() }, Done::default()));
    }
    advance::learn_all(conn, &mut [board]).await?;
    let Some(number) = board.steps().find(|row| row.name == step).map(|row| row.number) else {
        return Ok((FlowAnswer::StepUnknown, Done::default()));
    };
    let rerun = match board.rerun(number) {
        Ok(rerun) => rerun,
        Err(why) => return Ok((FlowAnswer::NotNow { why }, Done::default())),
    };
    let jobs = write(shared, conn, board, &rerun).await?;
    let done = advance::carry_on(shared, conn, &mut boards).await?;
    Ok((FlowAnswer::Acted { jobs }, done))
}

/// Writes what becomes history, and the copies; answers how many jobs these have.
async fn write(
    shared: &Shared,
    conn: &Conn<'_>,
    board: &Board,
    rerun: &Rerun,
) -> Result<u64, Fault> {
    let flow = board.flow.id.0;
    let old: Vec<i32> = rerun.old.iter().map(|(number, _)| *number as i32).collect();
    let names: Vec<&str> = rerun.old.iter().map(|(_, name)| name.as_str()).collect();
    conn.query(&RETIRE, &[&flow, &old, &names]).await?;
    let old: Vec<i32> = rerun.fresh.iter().map(|(old, _)| *old as i32).collect();
    let fresh: Vec<i32> = rerun.fresh.iter().map(|(_, row)| row.number as i32).collect();
    let names: Vec<&str> = rerun.fresh.iter().map(|(_, row)| row.name.as_str()).collect();
    let from: Vec<i32> = rerun.edges.iter().map(|edge| edge.from as i32).collect();
    let to: Vec<i32> = rerun.edges.iter().map(|edge| edge.to as i32).collect();
    let on: Vec<i16> = rerun.edges.iter().map(|edge| edge.on.number()).collect();
    let when: Vec<Option<&str>> = rerun.edges.iter().map(|edge| edge.when.as_deref()).collect();
    let held: Vec<Option<bool>> = rerun.edges.iter().map(|edge| edge.held).collect();
    let now = shared.db.manual_now();
    let params: [Param<'_>; 10] =
        [&now, &flow, &old, &fresh, &names, &from, &to, &on, &when, &held];
    conn.query(&COPY, &params).await?;
    let mut jobs = 0;
    for (old, row) in &rerun.fresh {
        let rows = conn.query(&BODIES, &[&flow, &(*old as i32)]).await?;
        let step = row.number;
        let planned = rows.iter().filter_map(|row| again(body(row, 0), step));
        let planned: Vec<PlannedJob> = planned.map(|job| PlannedJob { step, job }).collect();
        let is_slow = planned.iter().any(is_slow_job);
        if is_slow && !row.slow {
            // Those of the old step had waited, and came again for their places.
            conn.query(&SLOW, &[&flow, &(step as i32)]).await?;
        }
        let text = jobs_text(&planned, is_slow, board.flow.at_once.is_some());
        conn.query(&WRITE_JOBS, &[&now, &flow, &text.map_err(Fault::Refused)?]).await?;
        jobs += planned.len() as u64;
    }
    Ok(jobs)
}
