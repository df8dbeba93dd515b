//! Flows as wholes: started once, built bit by bit, capped, called off, late, kept and forgotten.

use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::flow::{FlowState, Need, STEPS_MAX, Step, StepState, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{Due, FlowId, Limits, NewJob, OnDead, Settlement, State};
use tidemill_store::Settled;
use tidemill_store::flow::{FlowAct, FlowAnswer, FlowFilter, FlowView, Start};

use super::flows::{
    first_job, flow_of, many, need, run, start, start_flow, state, step, tend, view,
};
use super::kit::{HOUR, Kit, SECOND, cancelled, dead, done, item, job, json, ordered};

over_both_stores!(
    a_flow_is_started_once,
    a_flow_that_is_built_bit_by_bit_begins_when_told,
    a_flow_with_a_cap_has_no_more_under_way,
    a_large_step_is_opened_bit_by_bit,
    a_flow_is_called_off_with_all_its_jobs,
    a_flow_that_is_late_is_called_off,
    what_is_longer_than_any_time_is_for_ever,
    a_flow_that_is_tried_again_has_its_time_anew,
    a_flow_that_is_built_bit_by_bit_has_its_time_from_its_begin,
    a_blocked_job_of_a_flow_can_be_called_off,
    delays_and_lines_count_from_when_the_step_is_opened,
    a_flow_is_kept_and_forgotten_as_one,
    however_many_are_to_be_forgotten_are_at_once,
    flows_are_listed_newest_first,
    a_running_job_adds_a_step_with_its_settle,
    steps_that_are_added_get_names_of_their_own,
    a_flow_does_not_grow_beyond_its_bounds,
    a_flow_that_is_called_off_takes_no_more,
    a_join_of_a_flow_that_is_being_built_is_not_late,
    a_store_that_is_closed_has_carried_its_flows_on,
    ten_thousand_steps_are_one_call,
    what_was_called_off_runs_again_if_its_step_is_named,
    jobs_that_are_called_off_with_their_flow_say_so,
    a_flow_that_went_on_is_not_called_off_any_more,
);

async fn a_flow_is_started_once(kit: &Kit) {
    let flow = flow_of(vec![step("a", &[]), step("b", &["a"])]);
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    assert!(kit.store.start_flow(plan.clone(), Start::Now).await.unwrap());
    assert!(!kit.store.start_flow(plan, Start::Now).await.unwrap());
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b"]);
}

async fn a_flow_that_is_built_bit_by_bit_begins_when_told(kit: &Kit) {
    let flow = flow_of(vec![many("item", 0, &[]), step("sum", &["item"])]);
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Later).await.unwrap();
    let worker = kit.worker().await;
    for chunk in 0..3_u64 {
        let jobs: Vec<NewJob> = (0..400).map(|_| job("item")).collect();
        let again = jobs.clone();
        let answer = kit.store.add_to_flow(id, "item", jobs, None).await.unwrap();
        assert_eq!(answer, FlowAnswer::Acted { jobs: 400 }, "chunk {chunk}");
        let answer = kit.store.add_to_flow(id, "item", again, None).await.unwrap();
        assert_eq!(answer, FlowAnswer::Acted { jobs: 0 }, "sent again, written once");
    }
    tend(kit).await;
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "nothing starts early");
    let unknown = kit.store.add_to_flow(id, "nobody", vec![job("item")], None).await.unwrap();
    assert_eq!(unknown, FlowAnswer::StepUnknown);
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let late = kit.store.add_to_flow(id, "item", vec![job("item")], None).await.unwrap();
    assert!(matches!(late, FlowAnswer::NotNow { .. }), "{late:?}");
    let ran = run(kit, worker, &[]).await;
    assert_eq!(ran.len(), 1201);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_flow_with_a_cap_has_no_more_under_way(kit: &Kit) {
    let mut flow =
        flow_of(vec![many("part", 25, &[]), many("more", 3, &[]), step("sum", &["part", "more"])]);
    flow.options.at_once = Some(10);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    let mut ran = 0;
    loop {
        let claim = kit.take(worker, 100).await;
        assert!(claim.jobs.len() <= 10, "{} at once", claim.jobs.len());
        let Some(first) = claim.jobs.first() else { break };
        if first.job.kind == "part" && ran < 20 {
            assert_eq!(claim.jobs.len(), 10, "and no fewer while there are more");
        }
        ran += claim.jobs.len();
        let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done())).collect();
        kit.store.settle(worker, items).await.unwrap();
        tend(kit).await;
    }
    assert_eq!(ran, 29);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_large_step_is_opened_bit_by_bit(kit: &Kit) {
    let id =
        start(kit, vec![step("list", &[]), many("item", 3000, &["list"]), step("sum", &["item"])])
            .await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[]).await;
    assert_eq!(ran.len(), 3002);
    assert_eq!(ran.last().map(String::as_str), Some("sum"));
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_flow_is_called_off_with_all_its_jobs(kit: &Kit) {
    let id = start(kit, vec![many("a", 4, &[]), step("b", &["a"]), step("c", &["b"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let act = FlowAct::Cancel { reason: "changed our mind".into() };
    let answer = kit.store.change_flow(id, act.clone()).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 6 }, "all that had not ended");
    tend(kit).await;
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "nothing of it starts any more");
    assert_eq!(state(kit, id).await, FlowState::Cancelling);
    assert!(kit.view(claim.jobs[0].job.id).await.cancel_requested);
    let told = || cancelled("told");
    let items = vec![item(&claim, 0, told()), item(&claim, 1, done())];
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    let view = view(kit, id).await;
    assert_eq!(
        (view.head.state, view.head.reason.as_deref()),
        (FlowState::Cancelled, Some("changed our mind"))
    );
    assert_eq!((view.steps[0].done, view.steps[0].failed), (1, 3));
    let again = kit.store.change_flow(id, act.clone()).await.unwrap();
    assert!(matches!(again, FlowAnswer::NotNow { .. }), "{again:?}");
    let unknown = kit.store.change_flow(FlowId::new(), act).await.unwrap();
    assert_eq!(unknown, FlowAnswer::Unknown);
}

async fn a_flow_that_is_late_is_called_off(kit: &Kit) {
    let mut flow = flow_of(vec![step("a", &[]), step("b", &["a"])]);
    flow.options.finish_within_ms = Some(1000);
    let id = start_flow(kit, flow).await;
    kit.clock.advance(SECOND);
    tend(kit).await;
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Cancelled);
    assert!(view.head.reason.is_some_and(|reason| reason.contains("deadline")));
}

async fn what_is_longer_than_any_time_is_for_ever(kit: &Kit) {
    let mut sum = step("sum", &["item"]);
    sum.join.within_ms = Some(u64::MAX);
    let mut flow = flow_of(vec![step("item", &[]), sum]);
    flow.options.finish_within_ms = Some(u64::MAX);
    flow.options.retain_ms = Some(u64::MAX);
    flow.options.at_once = Some(u32::MAX);
    let ever = start_flow(kit, flow).await;
    // Kept for ever by the store's own rule.
    let flow = flow_of(vec![step("item", &[])]);
    let by_rule = flow.id;
    let rule = Retention { finished_ms: u64::MAX, dead_ms: u64::MAX, ..Retention::default() };
    let plan = flow.plan(&Limits::default(), rule).unwrap();
    assert!(kit.store.start_flow(plan, Start::Now).await.unwrap());
    let mut late = flow_of(vec![step("late", &[])]);
    late.options.finish_within_ms = Some(1000);
    let late = start_flow(kit, late).await;
    kit.clock.advance(SECOND);
    tend(kit).await;
    assert_eq!(state(kit, late).await, FlowState::Cancelled, "it is tended beside the others");
    let worker = kit.worker().await;
    run(kit, worker, &[]).await;
    assert_eq!(state(kit, ever).await, FlowState::Done);
    assert_eq!(state(kit, by_rule).await, FlowState::Done);
    kit.clock.advance(HOUR * 24 * 365 * 10);
    tend(kit).await;
    assert!(kit.store.flow(ever).await.unwrap().is_some());
    assert!(kit.store.flow(by_rule).await.unwrap().is_some());
    assert!(kit.store.flow(late).await.unwrap().is_none());
}

async fn a_flow_that_is_tried_again_has_its_time_anew(kit: &Kit) {
    let mut sum = need(step("sum", &["a"]), Need::All { failures_max: 0 });
    sum.join.within_ms = Some(1000);
    let mut flow = flow_of(vec![step("a", &[]), sum]);
    flow.options.finish_within_ms = Some(2000);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("a", dead("no"))]).await;
    assert_eq!(state(kit, id).await, FlowState::Failed);
    for _ in 0..2 {
        kit.clock.advance(HOUR);
        kit.store.beat(worker).await.unwrap();
        let retry = FlowAct::Retry { step: None, by: "ada".into(), why: None };
        assert_eq!(kit.store.change_flow(id, retry).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
        tend(kit).await;
        assert_eq!(state(kit, id).await, FlowState::Running, "it is not called off at once");
        assert_eq!(view(kit, id).await.steps[1].state, StepState::Waiting);
        kit.clock.advance(SECOND / 2);
        tend(kit).await;
        run(kit, worker, &[("a", dead("no, again"))]).await;
        assert_eq!(state(kit, id).await, FlowState::Failed);
    }
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    kit.store
        .change_flow(id, FlowAct::Retry { step: None, by: "ada".into(), why: None })
        .await
        .unwrap();
    assert_eq!(run(kit, worker, &[]).await, ["a", "sum"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_flow_that_is_built_bit_by_bit_has_its_time_from_its_begin(kit: &Kit) {
    let mut sum = need(step("sum", &["item"]), Need::Finished);
    sum.join.within_ms = Some(1000);
    let mut flow = flow_of(vec![step("item", &[]), sum]);
    flow.options.finish_within_ms = Some(2000);
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Later).await.unwrap();
    kit.clock.advance(HOUR);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Building, "no time passes for it yet");
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let states = |view: FlowView| [view.steps[0].state, view.steps[1].state];
    assert_eq!(states(view(kit, id).await), [StepState::Open, StepState::Waiting]);
    kit.clock.advance(SECOND);
    tend(kit).await;
    assert_eq!(states(view(kit, id).await), [StepState::Open; 2], "it has waited for a second");
    kit.clock.advance(SECOND);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Cancelled, "its two seconds are over");
}

async fn a_blocked_job_of_a_flow_can_be_called_off(kit: &Kit) {
    let id = start(
        kit,
        vec![step("a", &[]), many("b", 2, &["a"]), need(step("c", &["b"]), Need::Finished)],
    )
    .await;
    let blocked = first_job(kit, id, "b").await;
    kit.store.cancel(vec![blocked], "not this one").await.unwrap();
    tend(kit).await;
    assert_eq!(kit.state(blocked).await, State::Cancelled);
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b", "c"], "the other one runs");
    let view = view(kit, id).await;
    assert_eq!((view.steps[1].done, view.steps[1].failed), (1, 1));
}

async fn delays_and_lines_count_from_when_the_step_is_opened(kit: &Kit) {
    let delayed = Step {
        work: Work::Jobs(vec![NewJob { due: Due::In(HOUR), ..job("late") }]),
        ..step("late", &["a"])
    };
    let lined = || NewJob { kind: "lined".into(), ..ordered("k:1", OnDead::Block) };
    let in_line = Step { work: Work::Jobs(vec![lined(), lined()]), ..step("lined", &["a"]) };
    let id = start(kit, vec![step("a", &[]), delayed, in_line]).await;
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let one = kit.take(worker, 10).await;
    assert_eq!(one.jobs.len(), 1, "one of the line at a time, and the other an hour from now");
    assert_eq!(one.next_due, Some(kit.clock.now() + HOUR));
    kit.store.settle(worker, vec![item(&one, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["lined"]);
    kit.clock.advance(HOUR);
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["late"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_flow_is_kept_and_forgotten_as_one(kit: &Kit) {
    let mut flow = flow_of(vec![step("a", &[]), step("b", &["a"]), step("c", &["b"])]);
    flow.options.retain_ms = Some(3_600_000);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    let job = first_job(kit, id, "a").await;
    run(kit, worker, &[("b", dead("no"))]).await;
    let page = kit.store.finished_after(None, 100).await.unwrap();
    assert!(page.is_empty(), "jobs of flows are not swept one by one: {page:?}");
    kit.clock.advance(SECOND * 3599);
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_some());
    kit.clock.advance(SECOND);
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_none());
    assert!(kit.store.job(job).await.unwrap().is_none());
}

async fn however_many_are_to_be_forgotten_are_at_once(kit: &Kit) {
    for _ in 0..120 {
        let mut flow = flow_of(vec![step("a", &[])]);
        flow.options.retain_ms = Some(1000);
        start_flow(kit, flow).await;
    }
    let worker = kit.worker().await;
    run(kit, worker, &[]).await;
    kit.clock.advance(SECOND);
    // Whoever tends goes on while he is told to, and then waits for a second.
    tend(kit).await;
    let left = kit.store.flows(&FlowFilter::default()).await.unwrap();
    assert!(left.is_empty(), "{} are left", left.len());
}

async fn flows_are_listed_newest_first(kit: &Kit) {
    let one = start(kit, vec![step("a", &[])]).await;
    let two = start(kit, vec![step("b", &[])]).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("b", dead("no"))]).await;
    let list = |filter: FlowFilter| async move {
        let page = kit.store.flows(&filter).await.unwrap();
        page.into_iter().map(|head| head.id).collect::<Vec<_>>()
    };
    assert_eq!(list(FlowFilter::default()).await, [two, one]);
    let failed = FlowFilter { state: Some(FlowState::Failed), ..FlowFilter::default() };
    assert_eq!(list(failed).await, [two]);
    let before = FlowFilter { before: Some(two), limit: 1, ..FlowFilter::default() };
    assert_eq!(list(before).await, [one]);
    let other = FlowFilter { name: Some("other".into()), ..FlowFilter::default() };
    assert_eq!(list(other).await, []);
}

async fn a_running_job_adds_a_step_with_its_settle(kit: &Kit) {
    let id = start(kit, vec![step("list", &[]), step("sum", &["list"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    let child = || plan::grow(job("child"), Growth::new(&place, "child")).unwrap();
    let stale = item(&claim, 0, grown(vec![child()]));
    let how = grown((0..250).map(|_| child()).collect());
    kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
    kit.store.settle(worker, vec![stale]).await.unwrap();
    tend(kit).await;
    let ran = run(kit, worker, &[]).await;
    assert_eq!(ran.len(), 251, "what was settled before adds nothing");
    assert_eq!(ran.last().map(String::as_str), Some("sum"), "the join waits for the children");
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.jobs), (FlowState::Done, 252));
    let inputs = kit.store.inputs(&[(id, 1)]).await.unwrap();
    let names: Vec<_> = inputs[0].iter().map(|input| input.step.as_str()).collect();
    assert_eq!(names, ["list", "child"]);
}

async fn steps_that_are_added_get_names_of_their_own(kit: &Kit) {
    let id = start(kit, vec![many("list", 2, &[]), step("sum", &["list"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    let child = || plan::grow(job("child"), Growth::new(&place, "child")).unwrap();
    let items = (0..2).map(|at| item(&claim, at, grown(vec![child()]))).collect();
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["child", "child", "sum"]);
    let view = view(kit, id).await;
    let names: Vec<_> = view.steps.iter().map(|step| step.name.as_str()).collect();
    assert!(
        names == ["list", "sum", "child"] || names == ["list", "sum", "child", "child#2"],
        "{names:?}"
    );
    assert_eq!(view.head.state, FlowState::Done);
}

async fn a_flow_does_not_grow_beyond_its_bounds(kit: &Kit) {
    let others = (2..STEPS_MAX).map(|n| many(&format!("s{n}"), usize::from(n > 2), &["a"]));
    let id = start(kit, std::iter::once(many("a", 3, &[])).chain(others).collect()).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    let adds = |name: &str| {
        grown(vec![plan::grow(job("child"), Growth::new(&place, name)).unwrap(), job("plain")])
    };
    let items = vec![item(&claim, 0, adds("first")), item(&claim, 1, adds("second"))];
    let answers = kit.store.settle(worker, items).await.unwrap();
    assert_eq!(answers, [Settled::Accepted; 2], "one that grows too much takes no other with it");
    kit.store.settle(worker, vec![item(&claim, 2, done())]).await.unwrap();
    tend(kit).await;
    let ends: Vec<_> = claim.jobs.iter().map(|taken| taken.job.id).collect();
    assert_eq!(kit.state(ends[0]).await, State::Done);
    assert_eq!(kit.state(ends[2]).await, State::Done);
    let dead = kit.view(ends[1]).await;
    assert_eq!(dead.state, State::Dead, "what was to follow is not lost without a word");
    let why = dead.error.unwrap();
    assert!(why.contains("its outcome cannot be kept: the flow has 10001 steps, 10000"), "{why}");
    let view = view(kit, id).await;
    assert_eq!((view.head.steps_all, view.steps[0].failed), (STEPS_MAX as u64, 1));
    let mut ran = run(kit, worker, &[]).await;
    ran.sort_unstable();
    assert_eq!(ran, ["child", "plain"], "of the first, and nothing of the second");
    assert_eq!(state(kit, id).await, FlowState::Failed);
}

async fn a_flow_that_is_called_off_takes_no_more(kit: &Kit) {
    let id = start(kit, vec![step("list", &[]), step("sum", &["list"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    kit.store.change_flow(id, FlowAct::Cancel { reason: "no".into() }).await.unwrap();
    let how = grown(vec![plan::grow(job("child"), Growth::new(&place, "child")).unwrap()]);
    kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
    tend(kit).await;
    assert!(run(kit, worker, &[]).await.is_empty());
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
}

async fn a_join_of_a_flow_that_is_being_built_is_not_late(kit: &Kit) {
    let mut late = need(step("sum", &["item"]), Need::Finished);
    late.join.within_ms = Some(1000);
    let flow = flow_of(vec![step("item", &[]), late]);
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Later).await.unwrap();
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    let worker = kit.worker().await;
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "nothing starts early");
    assert_eq!(state(kit, id).await, FlowState::Building);
}

async fn a_store_that_is_closed_has_carried_its_flows_on(kit: &Kit) {
    let id = start(kit, vec![many("a", 2, &[]), many("b", 100, &["a"]), step("c", &["b"])]).await;
    let neighbour = kit.neighbour().await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    for at in 0..2 {
        kit.store.settle(worker, vec![item(&claim, at, done())]).await.unwrap();
    }
    kit.store.close().await;
    let view = neighbour.flow(id).await.unwrap().unwrap();
    assert_eq!(view.steps[1].state, StepState::Open, "nobody has tended it");
    neighbour.close().await;
}

async fn ten_thousand_steps_are_one_call(kit: &Kit) {
    let name = |n: usize| format!("s{n}");
    let chained = |n: usize| match n {
        0 => step(&name(n), &[]),
        n => step(&name(n), &[&name(n - 1)]),
    };
    let id = start(kit, (0..10_000).map(chained).collect()).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("s0", dead("no"))]).await;
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.steps_all), (FlowState::Failed, 10_000));
    let skipped = view.steps.iter().filter(|step| step.state == StepState::Skipped);
    assert_eq!(skipped.count(), 9999);
    let retry = FlowAct::Retry { step: None, by: "ada".into(), why: None };
    kit.store.change_flow(id, retry).await.unwrap();
    tend(kit).await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(
        kit.take_one(worker).await.jobs[0].job.kind,
        "s1",
        "what was skipped runs after all"
    );
}

fn grown(follow_ups: Vec<NewJob>) -> Settlement {
    Settlement::Done { output: json("null"), follow_ups }
}

async fn what_was_called_off_runs_again_if_its_step_is_named(kit: &Kit) {
    let id = start(kit, vec![many("part", 3, &[]), step("sum", &["part"])]).await;
    let worker = kit.worker().await;
    let part = first_job(kit, id, "part").await;
    kit.store.cancel(vec![part], "by mistake").await.unwrap();
    assert_eq!(run(kit, worker, &[]).await, ["part", "part"]);
    assert_eq!(state(kit, id).await, FlowState::Failed);
    let retry = |step: Option<&str>| FlowAct::Retry {
        step: step.map(str::to_owned),
        by: "ada".into(),
        why: None,
    };
    let answer = kit.store.change_flow(id, retry(None)).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
    // What was skipped for it has jobs that were called off, too: they wait for their turn.
    let answer = kit.store.change_flow(id, retry(Some("sum"))).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
    assert_eq!(kit.state(part).await, State::Cancelled);
    let answer = kit.store.change_flow(id, retry(Some("part"))).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["part", "sum"]);
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.done, head.failed), (FlowState::Done, 4, 0));
}

async fn a_flow_that_went_on_is_not_called_off_any_more(kit: &Kit) {
    let id = start(kit, vec![step("a", &[]), step("b", &["a"])]).await;
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    kit.store.change_flow(id, cancel).await.unwrap();
    tend(kit).await;
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.reason.as_deref()), (FlowState::Cancelled, Some("enough")));
    let retry = FlowAct::Retry { step: Some("a".into()), by: "ada".into(), why: None };
    let answer = kit.store.change_flow(id, retry).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "b"]);
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.reason), (FlowState::Done, None));
}

async fn jobs_that_are_called_off_with_their_flow_say_so(kit: &Kit) {
    let steps = vec![step("runs", &[]), step("ready", &[]), step("waits", &["runs"])];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 1).await;
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    kit.store.change_flow(id, cancel).await.unwrap();
    tend(kit).await;
    kit.store.settle(worker, vec![item(&claim, 0, cancelled("told to stop"))]).await.unwrap();
    tend(kit).await;
    let mut said = Vec::new();
    for name in ["runs", "ready", "waits"] {
        let job = kit.view(first_job(kit, id, name).await).await;
        assert_eq!(job.state, State::Cancelled, "{name}");
        said.push(job.error.unwrap());
    }
    let with_it = "called off with its flow";
    assert_eq!(said, [with_it, with_it, "skipped: enough"]);
    let head = view(kit, id).await.head;
    assert_eq!((head.state, head.reason.as_deref()), (FlowState::Cancelled, Some("enough")));
}
