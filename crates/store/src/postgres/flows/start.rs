//! Flows that begin when they are written, one statement for all that come together.
//!
//! A flow whose first steps can be opened whole needs no decision: those are open, all others wait. So it is written
//! as it would stand after the rule had looked at it, in one round trip instead of ten, and what comes while commits
//! are under way goes with the next one.
//!
//! It refuses flows with a cap, and first steps that are empty, large, or have jobs which wait for the clock or in a
//! line: those begin by the rule (`act.rs`).

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use tidemill_core::FlowId;
use tidemill_core::flow::{Plan, StepRow};
use uuid::Uuid;

use super::advance::{Done, OPEN_AT_ONCE_MAX};
use crate::error::Result;
use crate::flow::Start;
use crate::flow::text::{Texts, texts_together};
use crate::postgres::Shared;
use crate::postgres::error::{Fault, Tries};
use crate::postgres::gather::{Call, Gather, is_for_all, refuse};
use crate::postgres::statement::{Statement, sql};

const START: Statement = sql!("start_flows", TIMESTAMPTZ, TEXT, TEXT, UUID_ARRAY);

/// Flows with at most this many jobs share commits with others.
const SMALL_JOBS_MAX: usize = 100;
/// Jobs in one shared commit.
const BATCH_JOBS_MAX: usize = 1000;

/// Where small flows wait for a commit.
pub(crate) type Starts = Gather<(Plan, Start), bool>;

/// Whether all that is first in a flow can be opened at once.
pub(super) fn is_plain(plan: &Plan) -> bool {
    let opens = |step: &StepRow| !step.slow && (1..=OPEN_AT_ONCE_MAX).contains(&step.jobs);
    let mut first = plan.steps.iter().filter(|step| plan.is_first(step.number));
    plan.options.at_once.is_none() && first.all(opens)
}

/// Writes a plain flow, and lets it begin; `false` if one of its id is there.
pub(super) async fn start_plain(shared: &Arc<Shared>, plan: Plan, when: Start) -> Result<bool> {
    let given = (plan, when);
    if given.0.jobs.len() <= SMALL_JOBS_MAX {
        return shared.starts.call(given, |starts| fly(starts, Arc::clone(shared))).await;
    }
    let fresh = write(shared, &[&given]).await?;
    Ok(fresh.contains(&given.0.id.0))
}

async fn fly(starts: Starts, shared: Arc<Shared>) {
    loop {
        let (mut jobs, mut ids) = (0, HashSet::<FlowId>::new());
        let calls = starts.next(|(plan, _)| {
            jobs += plan.jobs.len();
            jobs <= BATCH_JOBS_MAX && ids.insert(plan.id)
        });
        let Some(calls) = calls else { return };
        write_together(&shared, calls).await;
    }
}

/// Writes the flows of calls in one commit. One call cannot fail another: what is refused together is written call by
/// call.
async fn write_together(shared: &Shared, calls: Vec<Call<(Plan, Start), bool>>) {
    let plans: Vec<&(Plan, Start)> = calls.iter().map(|call| &call.given).collect();
    let is_alone = plans.len() == 1;
    match write(shared, &plans).await {
        Ok(fresh) => {
            for call in calls {
                let is_new = fresh.contains(&call.given.0.id.0);
                call.answer(Ok(is_new));
            }
        }
        Err(error) if is_alone || is_for_all(&shared.db, &error).await => refuse(calls, &error),
        Err(_) => {
            for call in calls {
                let written = write(shared, &[&call.given]).await;
                let is_new = written.map(|fresh| fresh.contains(&call.given.0.id.0));
                call.answer(is_new);
            }
        }
    }
}

/// Writes flows, and tells who waits for work; answers those that were not there. When an answer was lost, what is
/// there may be its doing, and is answered too.
async fn write(shared: &Shared, flows: &[&(Plan, Start)]) -> Result<HashSet<Uuid>> {
    let plans: Vec<&Plan> = flows.iter().map(|(plan, _)| plan).collect();
    let judged = flows.iter().filter(|(_, when)| *when == Start::IfRoom);
    let judged: Vec<Uuid> = judged.map(|(plan, _)| plan.id.0).collect();
    let Texts { flow: given, jobs } = texts_together(&plans)?;
    let mut tries = Tries::resend();
    let fresh = loop {
        match write_once(shared, &given, &jobs, &judged).await {
            Ok(_) if tries.was_lost() => break plans.iter().map(|plan| plan.id.0).collect(),
            Ok(fresh) => break fresh,
            Err(fault) => tries.again(fault).await?,
        }
    };
    Done::new(first_queues(&plans).into_iter().collect(), Vec::new()).tell(shared);
    Ok(fresh)
}

async fn write_once(
    shared: &Shared,
    given: &str,
    jobs: &str,
    judged: &[Uuid],
) -> Result<HashSet<Uuid>, Fault> {
    let conn = shared.db.conn().await?;
    let rows = conn.query(&START, &[&shared.db.manual_now(), &given, &jobs, &judged]).await?;
    let fresh = rows.first().map(|row| row.get::<_, Vec<Uuid>>(0)).unwrap_or_default();
    Ok(fresh.into_iter().collect())
}

/// The queues in which jobs of first steps wait.
fn first_queues(plans: &[&Plan]) -> BTreeSet<String> {
    let first = plans.iter().flat_map(|plan| {
        plan.jobs.iter().filter(|planned| plan.is_first(planned.step)).map(|planned| &planned.job)
    });
    first.map(|job| job.queue.clone()).collect()
}
