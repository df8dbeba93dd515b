//! A step and everything behind it run again: fresh jobs under the old names, history beside them, joins that fire
//! once more and once only.

use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::flow::{FlowState, Need, Rest, Step, StepState};
use tidemill_core::{FlowId, Settlement, State};
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{
    first_job, flow_of, many, need, output, run, start, start_flow, state, states, step, tend, view,
};
use super::kit::{HOUR, Kit, dead, done, item, job, json};

over_both_stores!(
    a_step_and_all_behind_it_run_again,
    a_rerun_takes_the_place_of_a_failure,
    a_join_hears_those_that_do_not_run_again,
    a_join_that_is_run_again_fires_once_though_others_still_run,
    what_running_jobs_added_is_added_again_by_them,
    history_does_not_come_back,
    what_has_not_ended_is_not_run_again,
    a_saga_is_not_run_again,
    a_rerun_has_its_time_anew,
    delays_count_anew_and_caps_hold,
);

async fn rerun(kit: &Kit, id: FlowId, step: &str) -> FlowAnswer {
    let answer = kit.store.change_flow(id, FlowAct::Rerun { step: step.to_owned() }).await.unwrap();
    tend(kit).await;
    answer
}

fn jobs(jobs: u64) -> FlowAnswer {
    FlowAnswer::Acted { jobs }
}

fn why(answer: FlowAnswer) -> String {
    match answer {
        FlowAnswer::NotNow { why } => why,
        answer => panic!("{answer:?}"),
    }
}

fn diamond() -> Vec<Step> {
    vec![
        step("a", &[]),
        step("b", &["a"]),
        many("c", 2, &["a"]),
        step("d", &["b", "c"]),
        step("e", &["d"]),
    ]
}

async fn a_step_and_all_behind_it_run_again(kit: &Kit) {
    let id = start(kit, diamond()).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("b", output("1"))]).await;
    let old = first_job(kit, id, "b").await;
    assert_eq!(rerun(kit, id, "b").await, jobs(3));
    assert_eq!(state(kit, id).await, FlowState::Running);
    assert_eq!(run(kit, worker, &[("b", output("2"))]).await, ["b", "d", "e"]);
    let flow = view(kit, id).await;
    assert_eq!((flow.head.state, flow.head.steps_left), (FlowState::Done, 0));
    assert_eq!((flow.head.jobs, flow.head.done, flow.head.steps_all), (6, 6, 5), "as it is now");
    let names: Vec<&str> = flow.steps.iter().map(|step| step.name.as_str()).collect();
    let history = ["a", "b (run 1)", "c", "d (run 1)", "e (run 1)", "b", "d", "e"];
    assert_eq!(names, history, "what has run is still there");
    let superseded = flow.steps.iter().filter(|step| step.superseded).map(|step| step.number);
    assert_eq!(superseded.collect::<Vec<_>>(), [1, 3, 4]);
    assert_eq!(kit.view(old).await.output, Some(json("1")));
    assert_ne!(first_job(kit, id, "b").await, old);
    let inputs = kit.store.inputs(&[(id, 6), (id, 3)]).await.unwrap();
    let read =
        |at: usize| inputs[at].iter().map(|input| (input.step.as_str(), input.output.clone()));
    assert_eq!(read(0).collect::<Vec<_>>(), [("c", None), ("b", Some(json("2")))]);
    assert_eq!(read(1).collect::<Vec<_>>(), [("b (run 1)", Some(json("1"))), ("c", None)]);
    assert_eq!(rerun(kit, id, "a").await, jobs(6), "and again, all of it");
    assert_eq!(run(kit, worker, &[]).await.len(), 6);
    let flow = view(kit, id).await;
    assert_eq!((flow.head.state, flow.head.done, flow.steps.len()), (FlowState::Done, 6, 13));
    assert!(flow.steps.iter().any(|step| step.name == "b (run 2)"));
}

async fn a_rerun_takes_the_place_of_a_failure(kit: &Kit) {
    let id = start(kit, diamond()).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("b", dead("no"))]).await;
    assert_eq!(state(kit, id).await, FlowState::Failed);
    assert_eq!(rerun(kit, id, "b").await, jobs(3));
    assert_eq!(run(kit, worker, &[("b", dead("no, again"))]).await, ["b"]);
    assert_eq!(state(kit, id).await, FlowState::Failed, "it may fail again");
    rerun(kit, id, "b").await;
    assert_eq!(run(kit, worker, &[]).await, ["b", "d", "e"]);
    let flow = view(kit, id).await;
    assert_eq!((flow.head.state, flow.head.failed), (FlowState::Done, 0));
    assert_eq!(states(kit, id).await["b (run 1)"], StepState::Failed);
}

async fn a_join_hears_those_that_do_not_run_again(kit: &Kit) {
    let mut after_both = step("sum", &["list", "tax"]);
    after_both.after[1].when = Some("output.rate > 10".to_owned());
    let quorum = need(step("some", &["list", "many"]), Need::Quorum { jobs: 3 });
    let steps = vec![step("list", &[]), step("tax", &[]), many("many", 2, &[]), after_both, quorum];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let ends = [("tax", output(r#"{"rate":19}"#))];
    run(kit, worker, &ends).await;
    assert_eq!(rerun(kit, id, "list").await, jobs(3));
    assert_eq!(run(kit, worker, &ends).await.len(), 3, "the list, the sum, and some");
    assert_eq!(state(kit, id).await, FlowState::Done);
    assert_eq!(rerun(kit, id, "sum").await, jobs(1), "the last one alone");
    assert_eq!(run(kit, worker, &[]).await, ["sum"]);
}

async fn a_join_that_is_run_again_fires_once_though_others_still_run(kit: &Kit) {
    let mut any = need(step("any", &["quick", "slow"]), Need::Quorum { jobs: 1 });
    any.join.rest = Rest::GoOn;
    let id = start(kit, vec![step("quick", &[]), step("slow", &[]), any]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let at = |kind: &str| claim.jobs.iter().position(|taken| taken.job.kind == kind).unwrap();
    kit.store.settle(worker, vec![item(&claim, at("quick"), done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["any"]);
    assert_eq!(rerun(kit, id, "quick").await, jobs(2));
    assert_eq!(run(kit, worker, &[]).await, ["quick", "any"]);
    kit.store.settle(worker, vec![item(&claim, at("slow"), done())]).await.unwrap();
    tend(kit).await;
    assert!(run(kit, worker, &[]).await.is_empty(), "it has fired");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_running_jobs_added_is_added_again_by_them(kit: &Kit) {
    let id = start(kit, vec![step("list", &[]), step("sum", &["list"])]).await;
    let worker = kit.worker().await;
    for round in 0..2 {
        let claim = kit.take_one(worker).await;
        let place = claim.jobs[0].job.options.flow.clone().unwrap();
        let child = || plan::grow(job("child"), Growth::new(&place, "child")).unwrap();
        let follow_ups = (0..2).map(|_| child()).collect();
        let how = Settlement::Done { output: json("null"), follow_ups };
        kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
        tend(kit).await;
        assert_eq!(run(kit, worker, &[]).await, ["child", "child", "sum"], "round {round}");
        let names: Vec<_> = states(kit, id).await.into_keys().collect();
        assert!(names.contains(&"child".to_owned()), "{names:?}");
        if round == 0 {
            assert_eq!(rerun(kit, id, "list").await, jobs(2));
        }
    }
    let flow = view(kit, id).await;
    assert_eq!((flow.head.state, flow.head.jobs), (FlowState::Done, 4));
    assert_eq!(rerun(kit, id, "child").await, jobs(3), "a step that was added can be, too");
    assert_eq!(run(kit, worker, &[]).await, ["child", "child", "sum"]);
}

async fn history_does_not_come_back(kit: &Kit) {
    let id = start(kit, diamond()).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("b", dead("no"))]).await;
    let old = first_job(kit, id, "b").await;
    rerun(kit, id, "b").await;
    run(kit, worker, &[("b", dead("no, again"))]).await;
    assert_eq!(kit.store.dead_replay(&[old], "ada".into(), None).await.unwrap(), [old]);
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["b"], "that job, and nothing behind it");
    assert_eq!(kit.state(old).await, State::Done);
    assert_eq!(state(kit, id).await, FlowState::Failed, "the flow goes by the one that ran last");
    let retry = FlowAct::Retry { step: None, by: "ada".into(), why: None };
    assert_eq!(kit.store.change_flow(id, retry).await.unwrap(), jobs(1));
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["b", "d", "e"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_has_not_ended_is_not_run_again(kit: &Kit) {
    let id = start(kit, diamond()).await;
    let worker = kit.worker().await;
    let refused = why(rerun(kit, id, "a").await);
    assert!(refused.contains("\"a\" has not ended: it is open"), "{refused}");
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let refused = why(rerun(kit, id, "a").await);
    assert!(refused.contains("\"b\" has not ended: it is open"), "{refused}");
    run(kit, worker, &[("d", dead("no"))]).await;
    let refused = why(rerun(kit, id, "e").await);
    assert!(refused.contains("\"e\" was skipped"), "{refused}");
    assert_eq!(rerun(kit, id, "nobody").await, FlowAnswer::StepUnknown);
    assert_eq!(rerun(kit, FlowId::new(), "a").await, FlowAnswer::Unknown);
    rerun(kit, id, "d").await;
    let refused = why(rerun(kit, id, "d").await);
    assert!(refused.contains("\"d\" has not ended"), "{refused}");
    run(kit, worker, &[]).await;
    let refused = why(rerun(kit, id, "d (run 1)").await);
    assert!(refused.contains("is history"), "{refused}");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_saga_is_not_run_again(kit: &Kit) {
    let mut only = step("only", &[]);
    only.undo = tidemill_core::flow::UndoRule::Nothing;
    let mut saga = flow_of(vec![only]);
    saga.options.saga = true;
    let id = start_flow(kit, saga).await;
    let worker = kit.worker().await;
    run(kit, worker, &[]).await;
    let refused = why(rerun(kit, id, "only").await);
    assert!(refused.contains("saga"), "{refused}");
}

async fn a_rerun_has_its_time_anew(kit: &Kit) {
    let mut sum = need(step("sum", &["list"]), Need::Finished);
    sum.join.within_ms = Some(60_000);
    let mut flow = flow_of(vec![step("list", &[]), sum]);
    flow.options.finish_within_ms = Some(120_000);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    run(kit, worker, &[]).await;
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    assert_eq!(rerun(kit, id, "list").await, jobs(2));
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Running, "it is not late at once");
    assert_eq!(run(kit, worker, &[]).await, ["list", "sum"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    rerun(kit, id, "list").await;
    kit.clock.advance(HOUR);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Cancelled, "but it can be");
}

async fn delays_count_anew_and_caps_hold(kit: &Kit) {
    let mut later = job("later");
    later.due = tidemill_core::Due::In(HOUR);
    let later = Step::new("later", tidemill_core::flow::Work::Jobs(vec![later]));
    let mut flow = flow_of(vec![later, many("many", 5, &["later"])]);
    flow.options.at_once = Some(2);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    for _ in 0..2 {
        assert!(kit.take(worker, 10).await.jobs.is_empty(), "its hour has not passed");
        kit.clock.advance(HOUR);
        kit.store.beat(worker).await.unwrap();
        assert_eq!(run(kit, worker, &[]).await.len(), 6);
        assert_eq!(state(kit, id).await, FlowState::Done);
        assert_eq!(rerun(kit, id, "later").await, jobs(6));
    }
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(kit.take(worker, 10).await.jobs.len(), 2, "no more than two at once");
}
