//! Flows as JSON, as the databases read them: one statement writes a flow however many jobs it has.
//!
//! Payloads go as text within it, so that no database rewrites them.

#[cfg(feature = "postgres")]
use std::collections::HashMap;

use serde::Serialize;
#[cfg(feature = "postgres")]
use tidemill_core::flow::plan;
use tidemill_core::flow::{Join, Plan, PlannedJob, Undo};
use tidemill_core::job::Options;
use tidemill_core::{FlowId, Priority};
use uuid::Uuid;

use crate::error::{Error, Result};

/// Jobs in one sheaf, at most.
const SHEAF_IDS_MAX: usize = 100;

/// A flow and its jobs, each as JSON.
#[derive(Debug, Clone)]
pub struct Texts {
    /// The flow, its steps and its edges.
    pub flow: String,
    /// Its jobs.
    pub jobs: String,
}

#[derive(Serialize)]
struct FlowIn<'a> {
    id: FlowId,
    name: &'a str,
    at_once: Option<u32>,
    finish_within_ms: Option<u64>,
    retain_ms: u64,
    retain_failed_ms: u64,
    saga: bool,
    steps: Vec<StepIn<'a>>,
    edges: Vec<EdgeIn<'a>>,
}

#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "a row as it is written: each says one thing")]
struct StepIn<'a> {
    number: u32,
    name: &'a str,
    jobs: u64,
    joined: &'a Join,
    parents: u32,
    slow: bool,
    early: bool,
    alarms: Option<u32>,
    guarded: bool,
    undo: Option<&'a Undo>,
    pivot: bool,
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
    payload: &'a str,
    options: &'a Options,
    step: u32,
}

/// A job of a flow that begins.
#[cfg(feature = "postgres")]
#[derive(Serialize)]
struct BegunIn<'a> {
    flow: FlowId,
    /// Its step waits for nobody.
    is_first: bool,
    #[serde(flatten)]
    job: JobIn<'a>,
}

/// A flow as JSON.
pub fn texts(plan: &Plan) -> Result<Texts> {
    let mut jobs: Vec<JobIn<'_>> = Vec::with_capacity(plan.jobs.len());
    let mut sheaves = 0;
    for of_step in plan.jobs.chunk_by(|a, b| a.step == b.step) {
        jobs.extend(jobs_of_step(plan, of_step, &mut sheaves));
    }
    Ok(Texts { flow: write(&flow_in(plan))?, jobs: write(&jobs)? })
}

/// Flows as JSON that begin together. Jobs that are the only ones of their steps, wait for nobody and are alike share
/// sheaves: a claim takes a hundred of them by one row.
#[cfg(feature = "postgres")]
pub(crate) fn texts_together(plans: &[&Plan]) -> Result<Texts> {
    let flows: Vec<FlowIn<'_>> = plans.iter().map(|plan| flow_in(plan)).collect();
    let mut jobs: Vec<BegunIn<'_>> = Vec::new();
    let (mut sheaves, mut shared) = (0, HashMap::new());
    for plan in plans {
        for of_step in plan.jobs.chunk_by(|a, b| a.step == b.step) {
            let is_first = of_step.iter().any(|job| plan.is_first(job.step));
            let more = match of_step {
                [alone] if is_first => {
                    let (sheaf, number) = shared.entry(sort(alone)).or_insert((0, SHEAF_IDS_MAX));
                    if *number == SHEAF_IDS_MAX {
                        sheaves += 1;
                        (*sheaf, *number) = (sheaves, 0);
                    }
                    *number += 1;
                    vec![job_in(*sheaf, alone)]
                }
                _ => jobs_of_step(plan, of_step, &mut sheaves),
            };
            jobs.extend(more.into_iter().map(|job| BegunIn { flow: plan.id, is_first, job }));
        }
    }
    Ok(Texts { flow: write(&flows)?, jobs: write(&jobs)? })
}

fn flow_in(plan: &Plan) -> FlowIn<'_> {
    let steps = plan.steps.iter().map(|step| StepIn {
        number: step.number,
        name: &step.name,
        jobs: step.jobs,
        joined: &step.join,
        parents: step.parents_left,
        slow: step.slow,
        early: step.early,
        alarms: step.alarms,
        guarded: step.guarded,
        undo: step.undo.as_deref(),
        pivot: step.pivot,
    });
    let edges = plan.edges.iter().map(|edge| EdgeIn {
        from_step: edge.from,
        to_step: edge.to,
        on_end: edge.on.number(),
        when_holds: edge.when.as_deref(),
    });
    let kept = plan.retention;
    FlowIn {
        id: plan.id,
        name: &plan.name,
        at_once: plan.options.at_once,
        finish_within_ms: plan.options.finish_within_ms,
        retain_ms: plan.options.retain_ms.unwrap_or(kept.finished_ms),
        retain_failed_ms: plan.options.retain_ms.unwrap_or(kept.dead_ms),
        saga: plan.options.saga,
        steps: steps.collect(),
        edges: edges.collect(),
    }
}

/// Jobs of a step of a flow; their sheaves number on from `sheaves`.
fn jobs_of_step<'p>(plan: &Plan, jobs: &'p [PlannedJob], sheaves: &mut i64) -> Vec<JobIn<'p>> {
    let step = jobs.first().and_then(|job| plan.steps.get(job.step as usize));
    let is_slow = step.is_some_and(|step| step.slow);
    let mut jobs = jobs_in(jobs, is_slow, plan.options.at_once.is_some());
    let before = *sheaves;
    for job in jobs.iter_mut().filter(|job| job.sheaf > 0) {
        job.sheaf += before;
        *sheaves = job.sheaf;
    }
    jobs
}

/// It waits for the clock or in a line when its step is opened.
#[cfg(feature = "postgres")]
pub(crate) fn is_slow_job(planned: &PlannedJob) -> bool {
    plan::is_slow(&planned.job)
}

/// Jobs of one step as JSON. `singly`: each can be let go on its own.
#[cfg(feature = "postgres")]
pub(crate) fn jobs_text(jobs: &[PlannedJob], is_slow: bool, singly: bool) -> Result<String> {
    write(&jobs_in(jobs, is_slow, singly))
}

/// Jobs of one step, with the numbers of their sheaves, counted from 1.
fn jobs_in(jobs: &[PlannedJob], is_slow: bool, singly: bool) -> Vec<JobIn<'_>> {
    let sheaf_max = if singly { 1 } else { SHEAF_IDS_MAX };
    let sheaves = jobs.chunk_by(|a, b| sort(a) == sort(b)).flat_map(|sort| sort.chunks(sheaf_max));
    let numbered = sheaves.zip(1_i64..).flat_map(|(sheaf, number)| {
        sheaf.iter().map(move |planned| (if is_slow { 0 } else { number }, planned))
    });
    numbered.map(|(sheaf, planned)| job_in(sheaf, planned)).collect()
}

/// What jobs must have in common to stand in one sheaf.
fn sort(planned: &PlannedJob) -> (&str, Priority, &str, Option<&str>, Option<&str>) {
    let job = &planned.job;
    (&job.queue, job.priority, &job.kind, job.tenant.as_deref(), job.key.as_deref())
}

fn job_in(sheaf: i64, planned: &PlannedJob) -> JobIn<'_> {
    let PlannedJob { step, job } = planned;
    JobIn {
        id: job.id.0,
        kind: &job.kind,
        queue: &job.queue,
        priority: job.priority.band(),
        tenant: job.tenant.as_deref(),
        key: job.key.as_deref(),
        sheaf,
        payload: job.payload.as_str(),
        options: &job.options,
        step: *step,
    }
}

fn write(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::Database { reason: format!("the flow cannot be written as JSON: {e}") })
}
