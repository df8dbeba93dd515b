//! Flows that are built in parts: each part once, nothing before the last, and checked as one that is sent whole.

use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::flow::{FlowState, Need, Part, Step, StepState, UndoRule, Way, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{Due, Flow, FlowId, Limits, NewJob, OnDead, OwnRetry, State};
use tidemill_store::flow::{FlowAct, FlowAnswer, FlowFilter, Start};

use super::flows::{first_job, flow_of, many, need, run, state, step, tend, view};
use super::kit::{HOUR, Kit, done, item, job, ordered};
use super::sagas::{harmless, saga_of, undoable};

over_both_stores!(
    a_part_that_is_sent_again_is_added_once,
    a_part_that_is_sent_twice_at_once_is_added_once,
    the_key_of_a_part_stands_for_its_jobs,
    a_part_is_known_after_the_flow_has_begun_and_ended,
    a_flow_whose_builder_died_waits_and_is_built_on_by_another,
    a_flow_that_is_being_built_is_thrown_away,
    a_saga_that_is_being_built_is_thrown_away,
    what_has_begun_or_ended_takes_no_parts,
    a_quorum_is_judged_when_all_parts_are_there,
    an_undo_is_of_one_job_in_parts_too,
    what_parts_add_behind_the_pivot_is_retried_until_it_works,
    what_a_step_adds_before_the_pivot_says_that_nothing_is_to_be_undone,
    a_job_of_another_step_is_refused,
    parts_have_delays_and_lines,
);

/// Writes a flow that does not begin.
async fn build(kit: &Kit, mut flow: Flow) -> FlowId {
    flow.options.building = true;
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    assert!(kit.store.start_flow(plan, Start::Later).await.unwrap());
    id
}

fn items(number: usize) -> Vec<NewJob> {
    (0..number).map(|_| job("item")).collect()
}

async fn add(kit: &Kit, id: FlowId, step: &str, jobs: Vec<NewJob>) -> FlowAnswer {
    kit.store.add_to_flow(id, step, jobs, None).await.unwrap()
}

/// A part, with jobs that are made anew each time.
async fn add_part(kit: &Kit, id: FlowId, key: &str, jobs: Vec<NewJob>) -> FlowAnswer {
    let part = Part::new(key, "item", &jobs).unwrap();
    kit.store.add_to_flow(id, "item", jobs, Some(part)).await.unwrap()
}

async fn act(kit: &Kit, id: FlowId, act: FlowAct) -> FlowAnswer {
    kit.store.change_flow(id, act).await.unwrap()
}

fn discard() -> FlowAct {
    FlowAct::Discard { reason: "not needed".into() }
}

fn why(answer: FlowAnswer) -> String {
    match answer {
        FlowAnswer::NotNow { why } => why,
        other => panic!("{other:?}"),
    }
}

fn culprit(answer: FlowAnswer) -> (String, String) {
    match answer {
        FlowAnswer::Invalid { step, reason } => (step, reason),
        other => panic!("{other:?}"),
    }
}

async fn a_part_that_is_sent_again_is_added_once(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 0, &[]), step("sum", &["item"])])).await;
    for key in ["1", "2"] {
        let sent = add_part(kit, id, key, items(300)).await;
        assert_eq!(sent, FlowAnswer::Acted { jobs: 300 }, "{key}");
        for _ in 0..2 {
            let again = add_part(kit, id, key, items(300)).await;
            assert_eq!(again, FlowAnswer::Repeated { jobs: 300 }, "{key}");
        }
    }
    assert_eq!(view(kit, id).await.head.jobs, 601);
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[]).await;
    assert_eq!((ran.len(), ran.last().map(String::as_str)), (601, Some("sum")));
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_part_that_is_sent_twice_at_once_is_added_once(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 0, &[])])).await;
    let neighbour = kit.neighbour().await;
    let send = |store: &std::sync::Arc<dyn tidemill_store::Store>| {
        let (store, jobs) = (std::sync::Arc::clone(store), items(200));
        let part = Part::new("1", "item", &jobs).unwrap();
        async move { store.add_to_flow(id, "item", jobs, Some(part)).await.unwrap() }
    };
    let (one, two) = tokio::join!(send(&kit.store), send(&neighbour));
    let mut answers = [one, two];
    answers.sort_by_key(|answer| matches!(answer, FlowAnswer::Repeated { .. }));
    assert_eq!(answers, [FlowAnswer::Acted { jobs: 200 }, FlowAnswer::Repeated { jobs: 200 }]);
    assert_eq!(view(kit, id).await.head.jobs, 200);
    neighbour.close().await;
}

async fn the_key_of_a_part_stands_for_its_jobs(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 0, &[])])).await;
    add_part(kit, id, "1", items(2)).await;
    assert_eq!(add_part(kit, id, "1", items(3)).await, FlowAnswer::PartReused);
    assert_eq!(add_part(kit, id, "1", vec![job("item"), job("odd")]).await, FlowAnswer::PartReused);
    assert_eq!(view(kit, id).await.head.jobs, 2, "nothing was added");
    let other = build(kit, flow_of(vec![many("item", 0, &[])])).await;
    let sent = add_part(kit, other, "1", items(3)).await;
    assert_eq!(sent, FlowAnswer::Acted { jobs: 3 }, "a key is of one flow");
}

async fn a_part_is_known_after_the_flow_has_begun_and_ended(kit: &Kit) {
    let mut flow = flow_of(vec![many("item", 0, &[])]);
    flow.options.retain_ms = Some(1000);
    let id = build(kit, flow).await;
    add_part(kit, id, "1", items(2)).await;
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    assert_eq!(add_part(kit, id, "1", items(2)).await, FlowAnswer::Repeated { jobs: 2 });
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await.len(), 2);
    assert_eq!(add_part(kit, id, "1", items(2)).await, FlowAnswer::Repeated { jobs: 2 });
    kit.clock.advance(HOUR);
    tend(kit).await;
    assert_eq!(add_part(kit, id, "1", items(2)).await, FlowAnswer::Unknown, "all is forgotten");
}

async fn a_flow_whose_builder_died_waits_and_is_built_on_by_another(kit: &Kit) {
    let builder = kit.neighbour().await;
    let flow = flow_of(vec![many("item", 1, &[]), step("sum", &["item"])]);
    let id = build(kit, flow).await;
    let jobs = items(50);
    let part = Part::new("1", "item", &jobs).unwrap();
    builder.add_to_flow(id, "item", jobs, Some(part)).await.unwrap();
    builder.close().await;
    kit.clock.advance(HOUR * 24);
    tend(kit).await;
    let worker = kit.worker().await;
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "it never starts by itself");
    let filter = FlowFilter { state: Some(FlowState::Building), ..FlowFilter::default() };
    let listed = kit.store.flows(&filter).await.unwrap();
    assert_eq!(listed.iter().map(|head| (head.id, head.jobs)).collect::<Vec<_>>(), [(id, 52)]);
    assert_eq!(kit.state(first_job(kit, id, "item").await).await, State::Blocked);
    // Whoever takes over sends all parts again.
    assert_eq!(add_part(kit, id, "1", items(50)).await, FlowAnswer::Repeated { jobs: 50 });
    assert_eq!(add_part(kit, id, "2", items(7)).await, FlowAnswer::Acted { jobs: 7 });
    for _ in 0..2 {
        let begun = kit.store.begin_flow(id).await.unwrap();
        assert!(matches!(begun, FlowAnswer::Acted { .. }), "{begun:?}");
    }
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await.len(), 59);
    assert_eq!(state(kit, id).await, FlowState::Done);
    let begun = kit.store.begin_flow(id).await.unwrap();
    assert_eq!(begun, FlowAnswer::Acted { jobs: 0 }, "it has begun, and ended");
}

async fn a_flow_that_is_being_built_is_thrown_away(kit: &Kit) {
    for cancel in [discard(), FlowAct::Cancel { reason: "not needed".into() }] {
        let id = build(kit, flow_of(vec![many("item", 0, &[]), step("sum", &["item"])])).await;
        add_part(kit, id, "1", items(5)).await;
        let blocked = first_job(kit, id, "item").await;
        assert_eq!(act(kit, id, cancel).await, FlowAnswer::Acted { jobs: 6 });
        tend(kit).await;
        let head = view(kit, id).await.head;
        let expected = (FlowState::Cancelled, Some("not needed"));
        assert_eq!((head.state, head.reason.as_deref()), expected);
        assert_eq!(kit.state(blocked).await, State::Cancelled);
        assert_eq!(act(kit, id, discard()).await, FlowAnswer::Acted { jobs: 0 }, "once more");
        let late = add(kit, id, "item", items(1)).await;
        assert_eq!(why(late), "it is cancelled");
        assert_eq!(why(kit.store.begin_flow(id).await.unwrap()), "it is cancelled");
        let worker = kit.worker().await;
        assert!(kit.take(worker, 10).await.jobs.is_empty(), "nothing of it starts");
    }
}

async fn a_saga_that_is_being_built_is_thrown_away(kit: &Kit) {
    let id = build(kit, saga_of(vec![undoable("hotel", &[]), harmless("item", &["hotel"])])).await;
    add_part(kit, id, "1", items(3)).await;
    assert_eq!(act(kit, id, discard()).await, FlowAnswer::Acted { jobs: 5 });
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Undone);
    assert_eq!(why(kit.store.begin_flow(id).await.unwrap()), "it is undone");
    assert_eq!(act(kit, id, discard()).await, FlowAnswer::Acted { jobs: 0 }, "once more");
    let worker = kit.worker().await;
    assert!(kit.take(worker, 10).await.jobs.is_empty(), "there is nothing to undo");
}

async fn what_has_begun_or_ended_takes_no_parts(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 1, &[])])).await;
    assert_eq!(add(kit, id, "nobody", items(1)).await, FlowAnswer::StepUnknown);
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    assert_eq!(why(add(kit, id, "item", items(1)).await), "it has begun");
    assert_eq!(why(act(kit, id, discard()).await), "it has begun");
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["item"]);
    assert_eq!(why(add(kit, id, "item", items(1)).await), "it is done");
    assert_eq!(why(act(kit, id, discard()).await), "it is done");
    assert_eq!(view(kit, id).await.head.jobs, 1);
    let unknown = FlowId::new();
    assert_eq!(add(kit, unknown, "item", items(1)).await, FlowAnswer::Unknown);
    assert_eq!(act(kit, unknown, discard()).await, FlowAnswer::Unknown);
    assert_eq!(kit.store.begin_flow(unknown).await.unwrap(), FlowAnswer::Unknown);
}

async fn a_quorum_is_judged_when_all_parts_are_there(kit: &Kit) {
    let sum = need(step("sum", &["item"]), Need::Quorum { jobs: 3 });
    let whole = flow_of(vec![many("item", 0, &[]), sum.clone()]);
    let refused = whole.plan(&Limits::default(), Retention::default()).unwrap_err().to_string();
    assert!(refused.contains("sum") && refused.contains("quorum"), "{refused}");
    let id = build(kit, flow_of(vec![many("item", 0, &[]), sum])).await;
    add_part(kit, id, "1", items(2)).await;
    let (step, reason) = culprit(kit.store.begin_flow(id).await.unwrap());
    assert_eq!(step, "sum");
    assert!(reason.contains("its quorum is 3, but it comes after 2 jobs"), "{reason}");
    assert_eq!(state(kit, id).await, FlowState::Building, "and it can still be put right");
    add_part(kit, id, "2", items(1)).await;
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await.len(), 4);
}

async fn an_undo_is_of_one_job_in_parts_too(kit: &Kit) {
    let hotel = Step { work: Work::Jobs(Vec::new()), ..undoable("hotel", &[]) };
    let id = build(kit, saga_of(vec![hotel, harmless("item", &["hotel"])])).await;
    let (step, reason) = culprit(kit.store.begin_flow(id).await.unwrap());
    assert_eq!(step, "hotel");
    assert!(reason.contains("not exactly one job"), "{reason}");
    let (step, _) = culprit(add(kit, id, "hotel", vec![job("hotel"), job("hotel")]).await);
    assert_eq!((step.as_str(), view(kit, id).await.head.jobs), ("hotel", 1), "none was added");
    let hotel = job("hotel");
    let answer = add(kit, id, "hotel", vec![hotel.clone()]).await;
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    let answer = add(kit, id, "hotel", vec![hotel]).await;
    assert_eq!(answer, FlowAnswer::Acted { jobs: 0 }, "sent again, it is the one");
    culprit(add(kit, id, "hotel", vec![job("hotel")]).await);
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["hotel", "item"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn what_parts_add_behind_the_pivot_is_retried_until_it_works(kit: &Kit) {
    let pay = Step { pivot: true, undo: UndoRule::Missing, ..many("pay", 0, &["item"]) };
    let steps = vec![harmless("item", &[]), pay, many("ship", 0, &["pay"])];
    let id = build(kit, saga_of(steps)).await;
    let own = NewJob {
        options: tidemill_core::Options {
            retry: Some(OwnRetry::attempts(3)),
            ..Default::default()
        },
        ..job("ship")
    };
    add(kit, id, "pay", vec![job("pay")]).await;
    add(kit, id, "ship", vec![job("ship"), own]).await;
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    let mut seen = Vec::new();
    loop {
        let claim = kit.take(worker, 10).await;
        if claim.jobs.is_empty() {
            break;
        }
        for taken in &claim.jobs {
            let options = &taken.job.options;
            let way = options.flow.as_ref().unwrap().way;
            let attempts = options.retry.as_ref().and_then(|retry| retry.attempts_max);
            seen.push((taken.job.kind.clone(), way, attempts));
        }
        let items = (0..claim.jobs.len()).map(|at| item(&claim, at, done())).collect();
        kit.store.settle(worker, items).await.unwrap();
        tend(kit).await;
    }
    seen.sort_by_key(|(kind, _, attempts)| (kind.clone(), *attempts));
    let expected = [
        ("item", Way::Back, None),
        ("pay", Way::Forward, None),
        ("ship", Way::Forward, Some(3)),
        ("ship", Way::Forward, Some(u16::MAX)),
    ];
    assert_eq!(seen, expected.map(|(kind, way, attempts)| (kind.to_owned(), way, attempts)));
}

async fn what_a_step_adds_before_the_pivot_says_that_nothing_is_to_be_undone(kit: &Kit) {
    let pay = Step { pivot: true, undo: UndoRule::Missing, ..step("pay", &["item"]) };
    let id = build(kit, saga_of(vec![harmless("item", &[]), pay])).await;
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    let growth = Growth::new(&place, "more");
    let refused = plan::grow(job("more"), growth).unwrap_err();
    assert_eq!(refused.code(), "flow_invalid");
    assert!(refused.to_string().contains("more"), "{refused}");
    let said = Growth { nothing_to_undo: true, ..growth };
    plan::grow(job("more"), said).unwrap();
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let claim = kit.take_one(worker).await;
    let place = claim.jobs[0].job.options.flow.clone().unwrap();
    let more = plan::grow(job("more"), Growth::new(&place, "more")).unwrap();
    let attempts = more.options.retry.and_then(|retry| retry.attempts_max);
    assert_eq!(attempts, Some(u16::MAX), "what the pivot adds goes forward");
}

async fn a_job_of_another_step_is_refused(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 0, &[]), many("other", 0, &[])])).await;
    let taken = job("item");
    add(kit, id, "other", vec![taken.clone()]).await;
    let lone = job("item");
    kit.enqueue(lone.clone()).await;
    for taken in [taken, lone] {
        let (step, reason) = culprit(add(kit, id, "item", vec![job("item"), taken]).await);
        assert_eq!(step, "item");
        assert!(reason.contains("the id of another job"), "{reason}");
    }
    assert_eq!(view(kit, id).await.steps[0].jobs, 0, "none of them was added");
}

async fn parts_have_delays_and_lines(kit: &Kit) {
    let id = build(kit, flow_of(vec![many("item", 0, &[])])).await;
    let lined = || NewJob { kind: "item".into(), ..ordered("k:1", OnDead::Block) };
    add(kit, id, "item", items(3)).await;
    let late = NewJob { due: Due::In(HOUR), ..job("item") };
    add(kit, id, "item", vec![lined(), lined(), late]).await;
    add(kit, id, "item", items(1)).await;
    kit.clock.advance(HOUR);
    kit.store.begin_flow(id).await.unwrap();
    tend(kit).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 10).await;
    assert_eq!(claim.jobs.len(), 5, "all but the second of the line, and the one in an hour");
    let items = (0..5).map(|at| item(&claim, at, done())).collect();
    kit.store.settle(worker, items).await.unwrap();
    assert_eq!(run(kit, worker, &[]).await.len(), 1, "its turn in the line has come");
    kit.clock.advance(HOUR);
    kit.store.beat(worker).await.unwrap();
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await.len(), 1);
    assert_eq!(view(kit, id).await.steps[0].state, StepState::Done);
}
