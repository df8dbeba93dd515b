//! Joins that have waited for as long as they may: they are decided by what has ended, and by nothing that was so
//! before.

use tidemill_core::flow::{Join, Need, Rest, Step, StepState};

use super::flows::{need, run, start, states, step, tend};
use super::kit::{Kit, SECOND, done, item};

over_both_stores!(
    a_late_step_that_is_called_off_lets_no_job_go,
    a_join_that_is_decided_late_counts_once_for_the_next,
    however_many_are_late_are_decided_one_page_after_the_other,
);

/// The same step, which waits no longer than this.
pub fn within(step: Step, within_ms: u64) -> Step {
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

async fn a_join_that_is_decided_late_counts_once_for_the_next(kit: &Kit) {
    let both = need(step("both", &["slow", "check"]), Need::All { failures_max: 2 });
    let steps = vec![step("slow", &[]), within(step("check", &["slow"]), 1000), within(both, 1001)];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let slow = kit.take_one(worker).await;
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    let steps = states(kit, id).await;
    assert_eq!((steps["check"], steps["both"]), (StepState::Skipped, StepState::Open));
    kit.settle(worker, &slow, done()).await;
    assert_eq!(run(kit, worker, &[]).await, ["both"]);
}

async fn however_many_are_late_are_decided_one_page_after_the_other(kit: &Kit) {
    let names: Vec<String> = (0..250).map(|n| format!("late {n}")).collect();
    let late = names.iter().map(|name| within(step(name, &["slow"]), 1000));
    let id = start(kit, [step("slow", &[])].into_iter().chain(late).collect()).await;
    kit.clock.advance(SECOND * 2);
    // Whoever tends goes on while he is told to, and then waits for a second.
    tend(kit).await;
    let states = states(kit, id).await;
    let waiting = names.iter().filter(|name| states[*name] == StepState::Waiting).count();
    assert_eq!(waiting, 0, "nobody waits for the next second");
}
