//! Joins that have waited for as long as they may: they are decided by what has ended, and by nothing that was so before.

use tidemill_core::flow::{Join, Need, Rest, Step, StepState};

use super::flows::{need, run, start, states, step, tend};
use super::kit::{Kit, SECOND, done, item};

over_both_stores!(a_late_step_that_is_called_off_lets_no_job_go,);

/// The same step, which waits no longer than this.
fn within(step: Step, within_ms: u64) -> Step {
    let join = Join { within_ms: Some(within_ms), ..step.join };
    Step { join, ..step }
}

async fn a_late_step_that_is_called_off_lets_no_job_go(kit: &Kit) {
    let mut first = need(step("first", &["quick", "late"]), Need::Quorum { jobs: 1 });
    first.join.rest = Rest::Cancel;
    let late = within(need(step("late", &["slow"]), Need::Finished), 1000);
    let id = start(kit, vec![step("quick", &[]), step("slow", &[]), late, first]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let quick = claim.jobs.iter().position(|taken| taken.job.kind == "quick").unwrap();
    kit.clock.advance(SECOND * 2);
    kit.store.settle(worker, vec![item(&claim, quick, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["first"]);
    assert_eq!(states(kit, id).await["late"], StepState::Failed, "its only job was called off");
}
