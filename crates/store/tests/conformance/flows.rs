//! Flows: steps wait for what they come after, joins fire once, and a flow ends as its steps did.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::flow::{
    After, FlowOptions, FlowState, Join, Need, On, Rest, Step, StepState, Work,
};
use tidemill_core::retention::Retention;
use tidemill_core::{Flow, FlowId, JobId, Limits, Settlement, State, WorkerId};
use tidemill_store::flow::{FlowAct, FlowAnswer, FlowView, Start};

use super::kit::{Kit, SECOND, dead, done, item, job, json, retry};

over_both_stores!(
    a_chain_runs_one_after_another,
    what_a_step_returned_is_there_for_those_behind_it,
    a_join_fires_once_when_all_have_ended,
    a_failure_skips_what_wants_success_and_fails_the_flow,
    a_failure_that_is_answered_does_not_fail_the_flow,
    an_expression_chooses_the_branch,
    a_join_of_skipped_and_run_parents_runs,
    finished_waits_for_all_however_they_end,
    a_quorum_waits_for_no_more,
    a_decided_join_calls_the_rest_off,
    failures_are_borne_up_to_a_bound,
    a_late_join_is_decided_by_the_clock,
    an_empty_step_is_done_at_once,
    what_has_ended_with_the_start_is_heard_of,
    a_join_that_is_skipped_once_more_calls_off_what_was_replayed,
    a_retry_and_a_redelivery_count_once,
    a_dead_child_that_is_replayed_lets_the_join_run_after_all,
    a_join_that_has_fired_does_not_fire_again,
);

/// A step with one job, after these.
pub fn step(name: &str, after: &[&str]) -> Step {
    many(name, 1, after)
}

/// A step with so many jobs, after these.
pub fn many(name: &str, jobs: usize, after: &[&str]) -> Step {
    let work = Work::Jobs((0..jobs).map(|_| job(name)).collect());
    let after = after.iter().map(|name| After::success(*name)).collect();
    Step { after, ..Step::new(name, work) }
}

/// The same step with another join.
pub fn need(step: Step, need: Need) -> Step {
    Step { join: Join { need, ..step.join }, ..step }
}

/// A flow of these steps.
pub fn flow_of(steps: Vec<Step>) -> Flow {
    let options = FlowOptions::default();
    Flow { id: FlowId::new(), name: "test".to_owned(), steps, options }
}

/// Starts a flow.
pub async fn start(kit: &Kit, steps: Vec<Step>) -> FlowId {
    start_flow(kit, flow_of(steps)).await
}

/// Starts a flow that is made already.
pub async fn start_flow(kit: &Kit, flow: Flow) -> FlowId {
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    assert!(kit.store.start_flow(plan, Start::Now).await.unwrap());
    tend(kit).await;
    id
}

/// Does what flows wait for, until nothing is left.
pub async fn tend(kit: &Kit) {
    while kit.store.tend_flows().await.unwrap() {}
}

/// Runs everything that is due to the end that is given for its kind (by default done), until nothing is due;
/// answers the kinds in the order in which they ran.
pub async fn run(kit: &Kit, worker: WorkerId, ends: &[(&str, Settlement)]) -> Vec<String> {
    let mut ran = Vec::new();
    loop {
        let claim = kit.take(worker, 1000).await;
        if claim.jobs.is_empty() {
            return ran;
        }
        let items = claim.jobs.iter().enumerate().map(|(at, taken)| {
            let how = ends.iter().find(|(kind, _)| *kind == taken.job.kind);
            item(&claim, at, how.map_or_else(done, |(_, how)| how.clone()))
        });
        let items: Vec<_> = items.collect();
        ran.extend(claim.jobs.iter().map(|taken| taken.job.kind.clone()));
        kit.store.settle(worker, items).await.unwrap();
        tend(kit).await;
    }
}

/// A flow, which must be there.
pub async fn view(kit: &Kit, id: FlowId) -> FlowView {
    kit.store.flow(id).await.unwrap().expect("the flow is known")
}

/// Where each step stands.
pub async fn states(kit: &Kit, id: FlowId) -> BTreeMap<String, StepState> {
    view(kit, id).await.steps.into_iter().map(|step| (step.name, step.state)).collect()
}

/// Where a flow stands.
pub async fn state(kit: &Kit, id: FlowId) -> FlowState {
    view(kit, id).await.head.state
}

/// The first job of a step.
pub async fn first_job(kit: &Kit, id: FlowId, name: &str) -> JobId {
    let view = view(kit, id).await;
    let step = view.steps.into_iter().find(|step| step.name == name);
    step.and_then(|step| step.first).expect("the step has a job")
}

/// Done, with this output.
pub fn output(text: &str) -> Settlement {
    Settlement::Done { output: json(text), follow_ups: Vec::new() }
}

async fn a_chain_runs_one_after_another(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), step("b", &["a"]), step("c", &["b"])]).await;
    let worker = kit.worker().await;
    let (b, c) = (first_job(kit, id, "b").await, first_job(kit, id, "c").await);
    assert_eq!((kit.state(b).await, kit.state(c).await), (State::Blocked, State::Blocked));
    assert_eq!(run(kit, worker, &[]).await, ["a", "b", "c"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Done);
    assert_eq!((view.head.jobs, view.head.done, view.head.failed), (3, 3, 0));
    assert_eq!(view.head.finished_at, Some(kit.clock.now()));
    assert!(view.steps.iter().all(|step| step.started_at.is_some() && step.ended_at.is_some()));
}

async fn what_a_step_returned_is_there_for_those_behind_it(kit: &Kit) {
    let id =
        start(kit, vec![step("tax", &[]), many("mail", 3, &[]), step("sum", &["tax", "mail"])])
            .await;
    let worker = kit.worker().await;
    let large = format!("\"{}\"", "x".repeat(40_000));
    run(kit, worker, &[("tax", output(r#"{"rate":19}"#)), ("mail", output(&large))]).await;
    let inputs = kit.store.inputs(&[(id, 2), (id, 0)]).await.unwrap();
    assert!(inputs[1].is_empty(), "nothing comes before the first");
    let [tax, mail] = inputs[0].as_slice() else { panic!("two steps come before: {inputs:?}") };
    assert_eq!((tax.step.as_str(), tax.done, tax.failed), ("tax", 1, 0));
    assert_eq!(tax.output, Some(json(r#"{"rate":19}"#)));
    assert_eq!(
        (mail.step.as_str(), mail.jobs, mail.done, mail.output.clone()),
        ("mail", 3, 3, None)
    );
    let first = kit.store.outputs(id, mail.number, None, 2).await.unwrap();
    let rest = kit.store.outputs(id, mail.number, Some(first[1].id), 2).await.unwrap();
    assert_eq!((first.len(), rest.len()), (2, 1));
    assert_eq!(rest[0].output, Some(json(&large)));
}

async fn a_join_fires_once_when_all_have_ended(kit: &Kit) {
    let id = start(kit, vec![many("part", 100, &[]), step("sum", &["part"])]).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[]).await;
    assert_eq!(ran.iter().filter(|kind| *kind == "part").count(), 100);
    assert_eq!(ran.iter().filter(|kind| *kind == "sum").count(), 1);
    assert_eq!(ran.last().map(String::as_str), Some("sum"));
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_failure_skips_what_wants_success_and_fails_the_flow(kit: &Kit) {
    let id =
        start(kit, vec![step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("other", &[])])
            .await;
    let worker = kit.worker().await;
    let mut ran = run(kit, worker, &[("a", dead("declined"))]).await;
    ran.sort();
    assert_eq!(ran, ["a", "other"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Failed);
    let [_, b, c, _] = view.steps.as_slice() else { panic!("four steps") };
    assert_eq!((b.state, b.reason.as_deref()), (StepState::Skipped, Some("a failed")));
    assert_eq!(c.state, StepState::Skipped);
    let skipped = kit.view(b.first.unwrap()).await;
    assert_eq!(
        (skipped.state, skipped.error.as_deref()),
        (State::Cancelled, Some("skipped: a failed"))
    );
}

async fn a_failure_that_is_answered_does_not_fail_the_flow(kit: &Kit) {
    let answer = || Step {
        after: vec![After { on: On::Failure, ..After::success("a") }],
        ..step("answer", &[])
    };
    let id = start(kit, vec![step("a", &[]), step("b", &["a"]), answer()]).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[("a", dead("declined"))]).await, ["a", "answer"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
    let id = start(kit, vec![step("a", &[]), step("b", &["a"]), answer()]).await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b"]);
    assert_eq!(states(kit, id).await["answer"], StepState::Skipped);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn an_expression_chooses_the_branch(kit: &Kit) {
    let when = |name: &str, when: &str| Step {
        after: vec![After { when: Some(when.to_owned()), ..After::success("price") }],
        ..step(name, &[])
    };
    let steps = vec![
        step("price", &[]),
        when("approve", "output.total > 100"),
        when("book", "output.total <= 100"),
        when("odd", "output.missing"),
        step("report", &["approve", "book"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[("price", output(r#"{"total":250}"#))]).await;
    assert_eq!(ran, ["price", "approve", "report"]);
    let view = view(kit, id).await;
    let held: Vec<_> = view.steps[1..4].iter().map(|step| step.after[0].held).collect();
    assert_eq!(held, [Some(true), Some(false), None]);
    let odd = view.steps[3].reason.as_deref().unwrap();
    assert!(odd.contains("price") && odd.contains("missing"), "{odd}");
    assert_eq!(view.head.state, FlowState::Done);
}

async fn a_join_of_skipped_and_run_parents_runs(kit: &Kit) {
    let join = need(step("join", &["b", "c"]), Need::Finished);
    let id = start(kit, vec![step("a", &[]), step("b", &["a"]), step("c", &[]), join]).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[("a", dead("no"))]).await;
    assert_eq!(ran.last().map(String::as_str), Some("join"), "b was skipped, c was not");
    assert_eq!(states(kit, id).await["b"], StepState::Skipped);
}

async fn finished_waits_for_all_however_they_end(kit: &Kit) {
    let id = start(
        kit,
        vec![
            step("good", &[]),
            step("bad", &[]),
            need(step("sum", &["good", "bad"]), Need::Finished),
        ],
    )
    .await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    let bad = claim.jobs.iter().position(|taken| taken.job.kind == "bad").unwrap();
    kit.store.settle(worker, vec![item(&claim, bad, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(states(kit, id).await["sum"], StepState::Waiting);
    kit.store.settle(worker, vec![item(&claim, 1 - bad, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["sum"]);
    assert_eq!(state(kit, id).await, FlowState::Done, "what comes after the failure ran");
}

async fn a_quorum_waits_for_no_more(kit: &Kit) {
    let id = start(
        kit,
        vec![many("vote", 5, &[]), need(step("win", &["vote"]), Need::Quorum { jobs: 3 })],
    )
    .await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(claim.jobs.len(), 5);
    let settle = |at: usize, how: Settlement| kit.store.settle(worker, vec![item(&claim, at, how)]);
    settle(0, done()).await.unwrap();
    settle(1, dead("no")).await.unwrap();
    settle(2, done()).await.unwrap();
    tend(kit).await;
    assert_eq!(states(kit, id).await["win"], StepState::Waiting);
    settle(3, done()).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["win"], "three of five are enough");
    assert_eq!(state(kit, id).await, FlowState::Running, "the fifth goes on");
    settle(4, done()).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, Vec::<String>::new(), "it fired once");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_decided_join_calls_the_rest_off(kit: &Kit) {
    let mut first = need(step("first", &["race"]), Need::Quorum { jobs: 1 });
    first.join.rest = Rest::Cancel;
    let id = start(kit, vec![many("race", 4, &[]), first]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let running = kit.view(claim.jobs[1].job.id).await;
    assert!(running.cancel_requested, "who runs is told");
    assert_eq!(run(kit, worker, &[]).await, ["first"], "who waited is called off");
    kit.store.settle(worker, vec![item(&claim, 1, super::kit::cancelled("told"))]).await.unwrap();
    tend(kit).await;
    let view = view(kit, id).await;
    assert_eq!((view.steps[0].done, view.steps[0].failed), (1, 3));
    assert_eq!(view.head.state, FlowState::Done);
}

async fn failures_are_borne_up_to_a_bound(kit: &Kit) {
    for (failures, expected) in [(2, StepState::Done), (3, StepState::Skipped)] {
        let join = need(step("sum", &["part"]), Need::All { failures_max: 2 });
        let id = start(kit, vec![many("part", 10, &[]), join]).await;
        let worker = kit.worker().await;
        let claim = kit.take(worker, 10).await;
        let end = |at: usize| if at < failures { dead("no") } else { done() };
        let items = (0..10).map(|at| item(&claim, at, end(at))).collect();
        kit.store.settle(worker, items).await.unwrap();
        tend(kit).await;
        run(kit, worker, &[]).await;
        assert_eq!(states(kit, id).await["sum"], expected, "{failures} failures");
    }
}

async fn a_late_join_is_decided_by_the_clock(kit: &Kit) {
    let within = |step: Step| Step { join: Join { within_ms: Some(60_000), ..step.join }, ..step };
    let id = start(
        kit,
        vec![
            step("fast", &[]),
            step("slow", &[]),
            within(need(step("report", &["fast", "slow"]), Need::Finished)),
            within(step("strict", &["fast", "slow"])),
        ],
    )
    .await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let fast = claim.jobs.iter().position(|taken| taken.job.kind == "fast").unwrap();
    kit.store.settle(worker, vec![item(&claim, fast, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(states(kit, id).await["report"], StepState::Waiting);
    kit.clock.advance(Duration::from_secs(61));
    tend(kit).await;
    assert_eq!(states(kit, id).await["strict"], StepState::Skipped);
    kit.store.beat(worker).await.unwrap();
    assert_eq!(run(kit, worker, &[]).await, ["report"]);
}

async fn an_empty_step_is_done_at_once(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), many("none", 0, &["a"]), step("b", &["none"])]).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_has_ended_with_the_start_is_heard_of(kit: &Kit) {
    let steps = vec![
        many("none", 0, &[]),
        step("a", &[]),
        step("b", &["a"]),
        step("c", &["none", "b"]),
        many("empty", 0, &["none"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    assert_eq!(states(kit, id).await["empty"], StepState::Done);
    let ran = run(kit, worker, &[("a", dead("no"))]).await;
    assert_eq!(ran, ["a"], "c wants b, which could not run");
    assert_eq!(states(kit, id).await["c"], StepState::Skipped);
}

async fn a_join_that_is_skipped_once_more_calls_off_what_was_replayed(kit: &Kit) {
    let mut sum = step("sum", &["part"]);
    sum.join.rest = Rest::Cancel;
    let id = start(kit, vec![many("part", 2, &[]), sum]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 1).await;
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(states(kit, id).await["part"], StepState::Failed, "the other is called off");
    let replayed = claim.jobs[0].job.id;
    assert_eq!(kit.store.dead_replay(&[replayed], "ada".into(), None).await.unwrap(), [replayed]);
    tend(kit).await;
    assert_eq!(kit.state(replayed).await, State::Cancelled, "the sum cannot come about any more");
    assert_eq!(states(kit, id).await["sum"], StepState::Skipped);
}

async fn a_retry_and_a_redelivery_count_once(kit: &Kit) {
    let id = start(kit, vec![many("part", 2, &[]), step("sum", &["part"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    kit.store.settle(worker, vec![item(&claim, 0, retry(SECOND, 1))]).await.unwrap();
    let again = item(&claim, 1, done());
    for _ in 0..3 {
        kit.store.settle(worker, vec![again.clone()]).await.unwrap();
    }
    tend(kit).await;
    assert_eq!(view(kit, id).await.steps[0].done, 1);
    kit.lose_workers().await;
    tend(kit).await;
    assert_eq!(states(kit, id).await["sum"], StepState::Waiting);
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["part", "sum"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_dead_child_that_is_replayed_lets_the_join_run_after_all(kit: &Kit) {
    let id = start(kit, vec![many("part", 3, &[]), step("sum", &["part"]), step("mail", &["sum"])])
        .await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    let items = vec![item(&claim, 0, done()), item(&claim, 1, dead("no")), item(&claim, 2, done())];
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Failed);
    let act = FlowAct::Retry { step: None, by: "ada".into(), why: None };
    assert_eq!(
        kit.store.change_flow(id, act.clone()).await.unwrap(),
        FlowAnswer::Acted { jobs: 1 }
    );
    tend(kit).await;
    let stands = states(kit, id).await;
    assert_eq!(
        (stands["part"], stands["sum"], stands["mail"]),
        (StepState::Open, StepState::Waiting, StepState::Waiting)
    );
    assert_eq!(state(kit, id).await, FlowState::Running);
    assert_eq!(run(kit, worker, &[]).await, ["part", "sum", "mail"]);
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 5, 0));
    let answer = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
}

async fn a_join_that_has_fired_does_not_fire_again(kit: &Kit) {
    let id =
        start(kit, vec![many("part", 2, &[]), need(step("sum", &["part"]), Need::Finished)]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let items = vec![item(&claim, 0, done()), item(&claim, 1, dead("no"))];
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["sum"]);
    let sent = kit.store.dead_replay(&[claim.jobs[1].job.id], "ada".into(), None).await.unwrap();
    assert_eq!(sent.len(), 1);
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["part"], "the join has fired");
    let view = view(kit, id).await;
    assert_eq!(
        (view.head.state, view.steps[0].done, view.steps[0].failed),
        (FlowState::Done, 2, 0)
    );
}
