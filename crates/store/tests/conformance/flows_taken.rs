//! Branches that are not taken, and steps that are lost because something failed: what comes after them knows the one
//! from the other.

use std::time::Duration;

use tidemill_core::flow::{After, FlowState, Join, Need, On, Rest, Step, StepState, Work};
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{many, need, output, run, start, state, states, step, tend, view};
use super::kit::{Kit, dead, done, item};
use super::sagas::{self, harmless, undoable};

over_both_stores!(
    who_comes_after_a_failure_runs_only_if_it_happened,
    who_has_a_condition_runs_only_if_it_holds,
    one_of_several_failures_is_enough,
    a_join_does_not_run_without_a_branch_that_died,
    a_branch_is_not_missed_where_its_failure_is_answered,
    what_comes_after_a_lost_step_can_answer,
    a_flow_within_tells_of_its_failure,
    a_flow_within_goes_on_without_its_optional_end,
    a_flow_within_that_answers_its_own_failure_is_well,
    a_join_that_is_late_is_a_failure,
    a_saga_bears_what_its_joins_bear,
    a_saga_turns_back_when_a_join_is_late,
    a_join_that_is_late_past_the_pivot_leaves_the_saga_failed,
    a_job_called_off_in_a_branch_that_is_not_taken_holds_up_nobody,
    what_kept_a_step_is_forgotten_when_it_is_asked_anew,
    a_quorum_goes_by_its_count_alone,
);

fn after(name: &str, edges: &[(&str, On, Option<&str>)]) -> Step {
    let edge = |(step, on, when): &(&str, On, Option<&str>)| After {
        step: (*step).to_owned(),
        on: *on,
        when: when.map(str::to_owned),
    };
    Step { after: edges.iter().map(edge).collect(), ..step(name, &[]) }
}

fn within(name: &str, after: &[&str], steps: Vec<Step>) -> Step {
    Step { work: Work::Flow(steps), ..step(name, after) }
}

fn soon(step: Step) -> Step {
    let join = Join { within_ms: Some(60_000), ..step.join };
    Step { join, ..step }
}

async fn who_comes_after_a_failure_runs_only_if_it_happened(kit: &Kit) {
    let steps = || {
        vec![
            step("reserve", &[]),
            step("pay", &["reserve"]),
            step("ship", &["pay"]),
            after("release", &[("pay", On::Failure, None), ("reserve", On::Success, None)]),
        ]
    };
    let worker = kit.worker().await;
    let id = start(kit, steps()).await;
    assert_eq!(run(kit, worker, &[]).await, ["reserve", "pay", "ship"]);
    assert_eq!(states(kit, id).await["release"], StepState::Skipped);
    assert_eq!(state(kit, id).await, FlowState::Done);
    let id = start(kit, steps()).await;
    assert_eq!(run(kit, worker, &[("pay", dead("no"))]).await, ["reserve", "pay", "release"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn who_has_a_condition_runs_only_if_it_holds(kit: &Kit) {
    let worker = kit.worker().await;
    for (total, ran) in [("7", vec!["a", "b"]), ("70", vec!["a", "b", "large"])] {
        let large =
            after("large", &[("a", On::Success, Some("output > 10")), ("b", On::Success, None)]);
        let id = start(kit, vec![step("a", &[]), step("b", &["a"]), large]).await;
        assert_eq!(run(kit, worker, &[("a", output(total))]).await, ran);
        assert_eq!(state(kit, id).await, FlowState::Done);
    }
}

async fn one_of_several_failures_is_enough(kit: &Kit) {
    let worker = kit.worker().await;
    let alarm = || after("alarm", &[("a", On::Failure, None), ("b", On::Failure, None)]);
    let steps = || vec![step("a", &[]), step("b", &[]), alarm()];
    start(kit, steps()).await;
    assert!(!run(kit, worker, &[]).await.contains(&"alarm".to_owned()));
    start(kit, steps()).await;
    assert!(run(kit, worker, &[("b", dead("no"))]).await.contains(&"alarm".to_owned()));
}

async fn a_join_does_not_run_without_a_branch_that_died(kit: &Kit) {
    let worker = kit.worker().await;
    let steps = vec![
        step("fetch", &[]),
        step("parse", &["fetch"]),
        step("other", &[]),
        step("report", &["parse", "other"]),
        step("send", &["report"]),
    ];
    let id = start(kit, steps).await;
    let mut ran = run(kit, worker, &[("fetch", dead("away"))]).await;
    ran.sort_unstable();
    assert_eq!(ran, ["fetch", "other"]);
    assert_eq!(state(kit, id).await, FlowState::Failed);
    let report = view(kit, id).await.steps.into_iter().find(|step| step.name == "report").unwrap();
    assert_eq!(report.reason.as_deref(), Some("parse could not run"));
    let retry = FlowAct::Retry { step: None, by: "ada".into(), why: None };
    assert_eq!(kit.store.change_flow(id, retry).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["fetch", "parse", "report", "send"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_branch_is_not_missed_where_its_failure_is_answered(kit: &Kit) {
    let worker = kit.worker().await;
    let steps = vec![
        step("pay", &[]),
        step("ship", &["pay"]),
        after("release", &[("pay", On::Failure, None)]),
        step("tell", &["ship", "release"]),
    ];
    let id = start(kit, steps).await;
    assert_eq!(run(kit, worker, &[("pay", dead("no"))]).await, ["pay", "release", "tell"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_comes_after_a_lost_step_can_answer(kit: &Kit) {
    let worker = kit.worker().await;
    let steps = vec![
        step("a", &[]),
        step("b", &["a"]),
        step("c", &["b"]),
        after("plan b", &[("c", On::Failure, None)]),
        need(step("report", &["b", "c"]), Need::Finished),
    ];
    let id = start(kit, steps).await;
    let mut ran = run(kit, worker, &[("a", dead("no"))]).await;
    ran.sort_unstable();
    assert_eq!(ran, ["a", "plan b", "report"]);
    assert_eq!(state(kit, id).await, FlowState::Done, "somebody has seen to it");
}

async fn a_flow_within_tells_of_its_failure(kit: &Kit) {
    let worker = kit.worker().await;
    let steps = vec![
        within("in", &[], vec![step("p", &[]), step("q", &["p"])]),
        step("on", &["in"]),
        after("failed", &[("in", On::Failure, None)]),
        after("either", &[("in", On::Either, None)]),
        need(step("finished", &["in"]), Need::Finished),
    ];
    let id = start(kit, steps).await;
    let mut ran = run(kit, worker, &[("p", dead("no"))]).await;
    ran.sort_unstable();
    assert_eq!(ran, ["either", "failed", "finished", "p"]);
    assert_eq!(states(kit, id).await["on"], StepState::Skipped);
}

async fn a_flow_within_goes_on_without_its_optional_end(kit: &Kit) {
    let worker = kit.worker().await;
    let inner = || {
        let extra = after("extra", &[("price", On::Success, Some("output > 10"))]);
        let more = Step { after: extra.after.clone(), ..step("more", &[]) };
        let last = step("last", &["more"]);
        vec![step("price", &[]), Step { name: "extra".into(), ..extra }, more, last]
    };
    for (total, ran) in
        [("7", vec!["after", "price"]), ("70", vec!["after", "extra", "last", "more", "price"])]
    {
        let id = start(kit, vec![within("in", &[], inner()), step("after", &["in"])]).await;
        let mut started = run(kit, worker, &[("price", output(total))]).await;
        started.sort_unstable();
        assert_eq!(started, ran);
        assert_eq!(state(kit, id).await, FlowState::Done);
    }
}

async fn a_flow_within_that_answers_its_own_failure_is_well(kit: &Kit) {
    let worker = kit.worker().await;
    let release = || after("release", &[("pay", On::Failure, None)]);
    let inner = || vec![step("pay", &[]), step("ship", &["pay"]), release()];
    for (how, ran) in [(dead("no"), ["pay", "release", "tell"]), (done(), ["pay", "ship", "tell"])]
    {
        let id = start(kit, vec![within("in", &[], inner()), step("tell", &["in"])]).await;
        assert_eq!(run(kit, worker, &[("pay", how)]).await, ran);
        assert_eq!(state(kit, id).await, FlowState::Done);
    }
    let only = || vec![step("pay", &[]), release(), step("note", &["release"])];
    for (how, ran) in
        [(dead("no"), vec!["pay", "release", "note", "tell"]), (done(), vec!["pay", "tell"])]
    {
        start(kit, vec![within("in", &[], only()), step("tell", &["in"])]).await;
        assert_eq!(run(kit, worker, &[("pay", how)]).await, ran);
    }
}

async fn a_join_that_is_late_is_a_failure(kit: &Kit) {
    let worker = kit.worker().await;
    let id = start(kit, vec![step("a", &[]), soon(step("b", &["a"])), step("c", &["b"])]).await;
    let slow = kit.take_one(worker).await;
    kit.clock.advance(Duration::from_secs(61));
    tend(kit).await;
    kit.store.beat(worker).await.unwrap();
    kit.settle(worker, &slow, done()).await;
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Failed);
    let rerun = FlowAct::Rerun { step: "b".into() };
    let answer = kit.store.change_flow(id, rerun).await.unwrap();
    assert!(matches!(answer, FlowAnswer::Acted { .. }), "{answer:?}");
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["b", "c"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_saga_bears_what_its_joins_bear(kit: &Kit) {
    let worker = kit.worker().await;
    let mut use_one = need(harmless("use", &["hotel a", "hotel b"]), Need::Quorum { jobs: 1 });
    use_one.join.rest = Rest::Cancel;
    let pay = Step { pivot: true, ..step("pay", &["use"]) };
    let steps = vec![undoable("hotel a", &[]), undoable("hotel b", &[]), use_one, pay];
    let id = sagas::start(kit, steps).await;
    let both = kit.take(worker, 2).await;
    let a = both.jobs.iter().position(|taken| taken.job.kind == "hotel a").unwrap();
    kit.store.settle(worker, vec![item(&both, a, done())]).await.unwrap();
    tend(kit).await;
    let called_off = super::kit::cancelled("called off");
    kit.store.settle(worker, vec![item(&both, 1 - a, called_off)]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["use", "pay"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
    let most = need(harmless("most", &["part"]), Need::All { failures_max: 1 });
    let parts = Step { undo: harmless("x", &[]).undo, ..many("part", 3, &[]) };
    let id = sagas::start(kit, vec![parts, most]).await;
    let three = kit.take(worker, 3).await;
    let end = |at: usize| item(&three, at, if at == 0 { dead("no") } else { done() });
    kit.store.settle(worker, (0..3).map(end).collect()).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["most"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_saga_turns_back_when_a_join_is_late(kit: &Kit) {
    let worker = kit.worker().await;
    let pay = soon(Step { pivot: true, ..step("pay", &["hotel", "check"]) });
    let id = sagas::start(kit, vec![undoable("hotel", &[]), harmless("check", &[]), pay]).await;
    let both = kit.take(worker, 2).await;
    let hotel = both.jobs.iter().position(|taken| taken.job.kind == "hotel").unwrap();
    kit.store.settle(worker, vec![item(&both, hotel, done())]).await.unwrap();
    tend(kit).await;
    kit.clock.advance(Duration::from_secs(61));
    tend(kit).await;
    kit.store.beat(worker).await.unwrap();
    kit.store.settle(worker, vec![item(&both, 1 - hotel, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn a_join_that_is_late_past_the_pivot_leaves_the_saga_failed(kit: &Kit) {
    let worker = kit.worker().await;
    let pay = Step { pivot: true, ..step("pay", &[]) };
    let id =
        sagas::start(kit, vec![pay, step("pack", &["pay"]), soon(step("ship", &["pack"]))]).await;
    let claim = kit.take_one(worker).await;
    kit.settle(worker, &claim, done()).await;
    tend(kit).await;
    let pack = kit.take_one(worker).await;
    kit.clock.advance(Duration::from_secs(61));
    tend(kit).await;
    kit.store.beat(worker).await.unwrap();
    assert_eq!(state(kit, id).await, FlowState::Running, "what runs goes on");
    kit.settle(worker, &pack, done()).await;
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Failed);
    assert_eq!(states(kit, id).await["ship"], StepState::Skipped);
}

async fn a_job_called_off_in_a_branch_that_is_not_taken_holds_up_nobody(kit: &Kit) {
    let worker = kit.worker().await;
    let approve = Step {
        undo: harmless("x", &[]).undo,
        ..after("approve", &[("price", On::Success, Some("output > 100"))])
    };
    let notify = harmless("notify", &["approve"]);
    let id = sagas::start(kit, vec![harmless("price", &[]), approve, notify]).await;
    let price = kit.take_one(worker).await;
    let job = super::flows::first_job(kit, id, "approve").await;
    kit.store.cancel(vec![job], "not needed").await.unwrap();
    tend(kit).await;
    kit.settle(worker, &price, output("50")).await;
    tend(kit).await;
    assert_eq!(states(kit, id).await["notify"], StepState::Skipped);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_kept_a_step_is_forgotten_when_it_is_asked_anew(kit: &Kit) {
    let steps = vec![
        step("price", &[]),
        step("stock", &[]),
        after("book", &[("price", On::Either, Some("output.x > 1")), ("stock", On::Success, None)]),
    ];
    let (id, worker) = (start(kit, steps).await, kit.worker().await);
    let claim = kit.take(worker, 2).await;
    let at = |kind: &str| claim.jobs.iter().position(|taken| taken.job.kind == kind).unwrap();
    let reason = async || view(kit, id).await.steps[2].reason.clone();
    kit.store.settle(worker, vec![item(&claim, at("price"), dead("no"))]).await.unwrap();
    tend(kit).await;
    let says = reason().await.expect("it has no output to be judged by");
    assert!(says.starts_with("the condition after price cannot be judged: "), "{says}");
    let retry = FlowAct::Retry { step: Some("price".into()), by: "ada".into(), why: None };
    assert_eq!(kit.store.change_flow(id, retry).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    assert_eq!(reason().await, None, "it waits for the price again");
    kit.store.settle(worker, vec![item(&claim, at("stock"), done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[("price", output(r#"{"x":2}"#))]).await, ["price", "book"]);
    assert_eq!((reason().await, state(kit, id).await), (None, FlowState::Done));
}

async fn a_quorum_goes_by_its_count_alone(kit: &Kit) {
    let edges = [
        ("a", On::Success, Some("output > 9")),
        ("b", On::Failure, None),
        ("c", On::Success, None),
    ];
    let first = need(after("first", &edges), Need::Quorum { jobs: 1 });
    let steps = vec![step("a", &[]), step("b", &[]), step("c", &[]), first];
    let (id, worker) = (start(kit, steps).await, kit.worker().await);
    let ran = run(kit, worker, &[("a", output("1"))]).await;
    assert_eq!(ran.last().unwrap(), "first", "neither a nor b came as wished, and c is enough");
    assert_eq!(state(kit, id).await, FlowState::Done);
}
