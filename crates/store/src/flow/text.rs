//! Flows as JSON, as the databases read them: one statement writes a flow however many jobs it has.
//!
//! Payloads go as text within it, so that no database rewrites them.

use serde::Serialize;
use tidemill_core::FlowId;
use tidemill_core::flow::{Join, Plan, PlannedJob, Undo, plan};
use tidemill_core::job::Options;
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
struct StepIn<'a> {
    number: u32,
    name: &'a str,
    jobs: u64,
    joined: &'a Join,
    parents: u32,
    slow: bool,
    early: bool,
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

/// A flow as JSON.
pub fn texts(plan: &Plan) -> Result<Texts> {
    let mut jobs: Vec<JobIn<'_>> = Vec::with_capacity(plan.jobs.len());
    let mut sheaves = 0;
    let mut slow = vec![false; plan.steps.len()];
    for of_step in plan.jobs.chunk_by(|a, b| a.step == b.step) {
        let is_slow = of_step.iter().any(is_slow_job);
        let mut more = jobs_in(of_step, is_slow, plan.options.at_once.is_some());
        for job in more.iter_mut().filter(|job| job.sheaf > 0) {
            job.sheaf += sheaves;
        }
        sheaves = more.last().map_or(sheaves, |job| sheaves.max(job.sheaf));
        jobs.extend(more);
        if let Some(slow) = of_step.first().and_then(|job| slow.get_mut(job.step as usize)) {
            *slow = is_slow;
        }
    }
    let steps = plan.steps.iter().zip(slow).map(|(step, slow)| StepIn {
        number: step.number,
        name: &step.name,
        jobs: step.jobs,
        joined: &step.join,
        parents: step.parents_left,
        slow,
        early: step.is_early(),
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
    let given = FlowIn {
        id: plan.id,
        name: &plan.name,
        at_once: plan.options.at_once,
        finish_within_ms: plan.options.finish_within_ms,
        retain_ms: plan.options.retain_ms.unwrap_or(kept.finished_ms),
        retain_failed_ms: plan.options.retain_ms.unwrap_or(kept.dead_ms),
        saga: plan.options.saga,
        steps: steps.collect(),
        edges: edges.collect(),
    };
    Ok(Texts { flow: write(&given)?, jobs: write(&jobs)? })
}

/// It waits for the clock or in a line when its step is opened.
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
            payload: job.payload.as_str(),
            options: &job.options,
            step: *step,
        }
    };
    numbered.map(job_in).collect()
}

fn write(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::Database { reason: format!("the flow cannot be written as JSON: {e}") })
}
