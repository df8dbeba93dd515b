//! Flows that were called off and go on: behind what ended well in spite of it, and nowhere without what it wants.

use tidemill_core::FlowId;
use tidemill_core::flow::{After, FlowState, On, Step, StepState};
use tidemill_store::CancelAnswer;
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{first_job, many, output, run, start, state, states, step, tend, view};
use super::kit::{Kit, cancelled, done, item};

over_both_stores!(
    a_flow_goes_on_behind_what_ended_well_in_spite_of_its_call_off,
    a_step_that_was_called_off_while_it_waited_can_be_named_itself,
    a_join_does_not_go_on_without_what_was_called_off,
    branches_are_taken_as_they_would_have_been,
    what_is_not_called_off_yet_does_not_go_on,
    what_was_called_off_while_its_step_waits_is_not_sent_before_the_others,
);

async fn retry(kit: &Kit, id: FlowId, step: &str) -> FlowAnswer {
    let act = FlowAct::Retry { step: Some(step.to_owned()), by: "ada".into(), why: None };
    let answer = kit.store.change_flow(id, act).await.unwrap();
    tend(kit).await;
    answer
}

async fn cancel(kit: &Kit, id: FlowId) {
    let act = FlowAct::Cancel { reason: "enough".into() };
    let answer = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(answer, FlowAnswer::Acted { .. }), "{answer:?}");
    tend(kit).await;
}

fn is_refused(answer: &FlowAnswer) -> bool {
    matches!(answer, FlowAnswer::NotNow { .. })
}

/// Calls a flow off while its first jobs run, and ends all that run: those of these kinds are told, others end well.
async fn call_off(kit: &Kit, id: FlowId, told: &[&str]) {
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    cancel(kit, id).await;
    let end = |at: usize| match &claim.jobs[at].job.kind {
        kind if told.contains(&kind.as_str()) => cancelled("told"),
        _ => output(r#"{"total":7}"#),
    };
    let items = (0..claim.jobs.len()).map(|at| item(&claim, at, end(at))).collect();
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
}

async fn a_flow_goes_on_behind_what_ended_well_in_spite_of_its_call_off(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), many("b", 2, &["a"]), step("c", &["b"])]).await;
    call_off(kit, id, &[]).await;
    let steps = states(kit, id).await;
    assert_eq!((steps["a"], steps["b"]), (StepState::Done, StepState::Skipped));
    assert_eq!(retry(kit, id, "a").await, FlowAnswer::Acted { jobs: 3 });
    assert!(is_refused(&retry(kit, id, "a").await), "it goes on already");
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["b", "b", "c"], "what was done is not done again");
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.reason, head.done), (FlowState::Done, None, 4));
    assert!(is_refused(&retry(kit, id, "a").await), "all has run");
}

async fn a_step_that_was_called_off_while_it_waited_can_be_named_itself(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), step("b", &["a"]), step("c", &["b"])]).await;
    call_off(kit, id, &[]).await;
    assert!(is_refused(&retry(kit, id, "c").await), "b has not run");
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
    assert_eq!(retry(kit, id, "b").await, FlowAnswer::Acted { jobs: 2 });
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["b", "c"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_join_does_not_go_on_without_what_was_called_off(kit: &Kit) {
    let steps = vec![
        step("left", &[]),
        step("right", &[]),
        step("check", &["right"]),
        step("sum", &["left", "check"]),
    ];
    let id = start(kit, steps).await;
    call_off(kit, id, &["right"]).await;
    assert!(is_refused(&retry(kit, id, "left").await), "the check has not run");
    assert_eq!(states(kit, id).await["sum"], StepState::Skipped);
    assert_eq!(retry(kit, id, "right").await, FlowAnswer::Acted { jobs: 1 });
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["right", "check", "sum"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn branches_are_taken_as_they_would_have_been(kit: &Kit) {
    let branch = |name: &str, on: On, when: Option<&str>| {
        let after = After { step: "a".into(), on, when: when.map(str::to_owned) };
        Step { after: vec![after], ..step(name, &[]) }
    };
    let steps = vec![
        step("a", &[]),
        branch("large", On::Success, Some("output.total > 5")),
        branch("small", On::Success, Some("output.total <= 5")),
        branch("amends", On::Failure, None),
        step("behind", &["small"]),
    ];
    let id = start(kit, steps).await;
    call_off(kit, id, &[]).await;
    assert_eq!(retry(kit, id, "a").await, FlowAnswer::Acted { jobs: 1 });
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["large"]);
    let (state, steps) = (state(kit, id).await, states(kit, id).await);
    assert_eq!(state, FlowState::Done);
    for name in ["small", "amends", "behind"] {
        assert_eq!(steps[name], StepState::Skipped, "{name}");
    }
}

async fn what_is_not_called_off_yet_does_not_go_on(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), step("long", &[]), step("b", &["a"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    cancel(kit, id).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(claim.jobs[0].job.kind, "a");
    assert!(is_refused(&retry(kit, id, "a").await), "the other is just being told");
    kit.store.settle(worker, vec![item(&claim, 1, cancelled("told"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(retry(kit, id, "a").await, FlowAnswer::Acted { jobs: 1 });
    assert_eq!(run(kit, worker, &[]).await, ["b"]);
    assert_eq!(state(kit, id).await, FlowState::Failed, "the other one was not sent again");
}

async fn what_was_called_off_while_its_step_waits_is_not_sent_before_the_others(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), many("b", 2, &["a"])]).await;
    let b = first_job(kit, id, "b").await;
    assert_eq!(kit.store.cancel(vec![b], "enough").await.unwrap(), [CancelAnswer::Cancelled]);
    tend(kit).await;
    assert!(is_refused(&retry(kit, id, "b").await), "a has not run");
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b"], "the one of b that was not called off");
    assert_eq!(state(kit, id).await, FlowState::Failed);
    assert_eq!(retry(kit, id, "b").await, FlowAnswer::Acted { jobs: 1 });
    assert_eq!(run(kit, worker, &[]).await, ["b"]);
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.done, head.failed), (FlowState::Done, 3, 0));
}
