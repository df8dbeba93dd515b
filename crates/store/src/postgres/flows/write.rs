//! Writes flows: one call, one statement per table, however many jobs.

use serde::Serialize;
use tidemill_core::flow::{FlowState, Join, Place, Plan, PlannedJob, StepState, plan};
use tidemill_core::job::{Due, Options};
use tidemill_core::{FlowId, NewJob, Payload};
use uuid::Uuid;

use super::{act, advance};
use crate::error::{Error, Result};
use crate::flow::{FlowAnswer, Start};
use crate::postgres::Shared;
use crate::postgres::batch::SHEAF_IDS_MAX;
use crate::postgres::connect::Conn;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::statement::{Statement, sql};

const WRITE: Statement = sql!("write_flow", TIMESTAMPTZ, TEXT, TEXT);
const WRITE_JOBS: Statement = sql!("write_flow_jobs", TIMESTAMPTZ, UUID, TEXT);
const STEP_NUMBER: Statement = sql!("select_step_number", UUID, TEXT);

#[derive(Serialize)]
struct FlowIn<'a> {
    id: FlowId,
    name: &'a str,
    at_once: Option<u32>,
    finish_within_ms: Option<u64>,
    retain_ms: u64,
    retain_failed_ms: u64,
    steps: Vec<StepIn<'a>>,
    edges: Vec<EdgeIn<'a>>,
}

#[derive(Serialize)]
struct StepIn<'a> {
    number: u32,
    name: &'a str,
    jobs: u64,
    joined: &'a Join,
    parents: u32,
    slow: bool,
}

#[derive(Serialize)]
struct EdgeIn<'a> {
    from_step: u32,
    to_step: u32,
    on_end: i16,
    when_holds: Option<&'a str>,
}

#[derive(Serialize)]
struct JobIn<'a> {
    id: Uuid,
    kind: &'a str,
    queue: &'a str,
    priority: i16,
    tenant: Option<&'a str>,
    key: Option<&'a str>,
    sheaf: i64,
    payload: &'a Payload,
    options: &'a Options,
    step: u32,
}

/// Writes a flow and, unless it is to be built further, lets it begin.
pub(crate) async fn start(shared: &Shared, plan: &Plan, when: Start) -> Result<bool> {
    let (given, jobs) = texts(plan).map_err(|e| unwritable(&e))?;
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
    match write(shared, &conn, id, given, jobs, when).await {
        Ok(done) => conn.commit().await.map(|()| done),
        Err(fault) => {
            conn.rollback().await?;
            Err(fault)
        }
    }
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
        let answer = match added {
            Ok(answer) => conn.commit().await.map(|()| answer),
            Err(fault) => {
                conn.rollback().await?;
                Err(fault)
            }
        };
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
    let text = serde_json::to_string(&jobs_in(&planned, is_slow, singly));
    let text = text.map_err(|e| Fault::Refused(unwritable(&e)))?;
    let rows = conn.query(&WRITE_JOBS, &[&shared.db.manual_now(), &id.0, &text]).await?;
    Ok(FlowAnswer::Acted { jobs: rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64) })
}

/// The flow and its jobs as `tidemill.write_flow` reads them.
pub(crate) fn texts(plan: &Plan) -> serde_json::Result<(String, String)> {
    let mut jobs = Vec::with_capacity(plan.jobs.len());
    let mut slow = vec![false; plan.steps.len()];
    for of_step in plan.jobs.chunk_by(|a, b| a.step == b.step) {
        let is_slow = of_step.iter().any(is_slow_job);
        let first = jobs.iter().map(|job: &JobIn<'_>| job.sheaf).max().unwrap_or(0);
        let mut more = jobs_in(of_step, is_slow, plan.options.at_once.is_some());
        for job in more.iter_mut().filter(|job| job.sheaf > 0) {
            job.sheaf += first;
        }
        jobs.extend(more);
        if let Some(slow) = of_step.first().and_then(|job| slow.get_mut(job.step as usize)) {
            *slow = is_slow;
        }
    }
    let steps = plan.steps.iter().zip(slow).map(|(step, slow)| {
        debug_assert_eq!(step.state, StepState::Waiting);
        StepIn {
            number: step.number,
            name: &step.name,
            jobs: step.jobs,
            joined: &step.join,
            parents: step.parents_left,
            slow,
        }
    });
    let edges = plan.edges.iter().map(|edge| EdgeIn {
        from_step: edge.from,
        to_step: edge.to,
        on_end: edge.on.number(),
        when_holds: edge.when.as_deref(),
    });
    let kept = plan.retention;
    let given = FlowIn {
        id: plan.id,
        name: &plan.name,
        at_once: plan.options.at_once,
        finish_within_ms: plan.options.finish_within_ms,
        retain_ms: plan.options.retain_ms.unwrap_or(kept.finished_ms),
        retain_failed_ms: plan.options.retain_ms.unwrap_or(kept.dead_ms),
        steps: steps.collect(),
        edges: edges.collect(),
    };
    Ok((serde_json::to_string(&given)?, serde_json::to_string(&jobs)?))
}

/// It waits for the clock or in a line when its step is opened.
pub(super) fn is_slow_job(planned: &PlannedJob) -> bool {
    planned.job.due != Due::Now || planned.job.line().is_some()
}

/// Jobs of one step as `tidemill.write_flow_jobs` reads them.
pub(super) fn jobs_text(jobs: &[PlannedJob], singly: bool) -> Result<String, Fault> {
    let is_slow = jobs.iter().any(is_slow_job);
    let text = serde_json::to_string(&jobs_in(jobs, is_slow, singly));
    text.map_err(|e| Fault::Refused(unwritable(&e)))
}

/// Jobs of one step, with the numbers of their sheaves, counted from 1.
fn jobs_in(jobs: &[PlannedJob], is_slow: bool, singly: bool) -> Vec<JobIn<'_>> {
    let sheaf_max = if singly { 1 } else { SHEAF_IDS_MAX };
    let fits = |a: &PlannedJob, b: &PlannedJob| {
        let (a, b) = (&a.job, &b.job);
        (&a.queue, a.priority, &a.kind, &a.tenant, &a.key)
            == (&b.queue, b.priority, &b.kind, &b.tenant, &b.key)
    };
    let sheaves = jobs.chunk_by(fits).flat_map(|sort| sort.chunks(sheaf_max));
    let numbered = sheaves.zip(1_i64..).flat_map(|(sheaf, number)| {
        sheaf.iter().map(move |planned| (if is_slow { 0 } else { number }, planned))
    });
    let job_in = |(sheaf, planned)| -> JobIn<'_> {
        let PlannedJob { step, job }: &PlannedJob = planned;
        JobIn {
            id: job.id.0,
            kind: &job.kind,
            queue: &job.queue,
            priority: job.priority.band(),
            tenant: job.tenant.as_deref(),
            key: job.key.as_deref(),
            sheaf,
            payload: &job.payload,
            options: &job.options,
            step: *step,
        }
    };
    numbered.map(job_in).collect()
}

fn unwritable(error: &serde_json::Error) -> Error {
    Error::Database { reason: format!("the flow cannot be written as JSON: {error}") }
}
