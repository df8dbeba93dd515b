//! Sagas: what was done is undone in reverse, nothing is dropped, and there is a point of no return.

use std::time::Duration;

use tidemill_core::dead::DeadFilter;
use tidemill_core::flow::{After, FlowOptions, FlowState, On, Step, StepState, UndoRule};
use tidemill_core::retention::Retention;
use tidemill_core::{
    By, ErrorClass, Failure, Flow, FlowId, JobId, Limits, Settlement, State, WorkerId,
};
use tidemill_store::CancelAnswer;
use tidemill_store::flow::{FlowAct, FlowAnswer, Start};

use super::flows::{first_job, many, output, run, state, states, step, tend, view};
use super::kit::{Kit, SECOND, cancelled, dead, done, item, job, json, with_payload};

over_both_stores!(
    a_saga_that_goes_well_undoes_nothing,
    what_was_done_is_undone_in_reverse,
    a_saga_that_turns_back_says_what_is_left_to_undo,
    one_that_is_undone_is_kept_as_long_as_one_that_failed,
    an_undo_is_told_what_became_of_its_step,
    branches_are_undone_on_their_own,
    what_runs_is_waited_for_before_anything_is_undone,
    a_step_in_doubt_is_undone_and_its_undo_is_told,
    a_saga_that_is_called_off_is_undone,
    an_undo_that_dies_leaves_it_stuck_until_somebody_acts,
    an_undo_that_is_called_off_can_be_sent_again,
    an_undo_that_is_called_off_can_be_sent_with_another_payload,
    an_undo_that_is_called_off_can_be_marked_done,
    after_the_pivot_it_goes_forward_only,
    what_is_called_off_after_the_pivot_can_be_sent_again,
    a_failure_that_is_answered_turns_nothing_back,
    a_failure_whose_answer_never_runs_turns_it_back,
    a_saga_without_undos_is_refused,
    a_deadline_past_the_pivot_calls_nothing_off,
    a_saga_with_a_cap_stays_stuck_while_it_is_tended,
    what_waits_behind_a_held_step_waits_until_all_of_it_is_seen_to,
    who_sends_a_stuck_saga_on_says_why,
);

/// A step with an undo of kind `undo-NAME`, after these.
pub(super) fn undoable(name: &str, after: &[&str]) -> Step {
    let undo = with_payload(job(&format!("undo-{name}")), r#"{"why":"saga"}"#);
    Step { undo: UndoRule::Job(Box::new(undo.into())), ..step(name, after) }
}

pub(super) fn harmless(name: &str, after: &[&str]) -> Step {
    Step { undo: UndoRule::Nothing, ..step(name, after) }
}

pub(super) fn saga_of(steps: Vec<Step>) -> Flow {
    let options = FlowOptions { saga: true, ..FlowOptions::default() };
    Flow { id: FlowId::new(), name: "booking".to_owned(), steps, options }
}

pub(super) async fn start(kit: &Kit, steps: Vec<Step>) -> FlowId {
    let flow = saga_of(steps);
    let id = flow.id;
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    assert!(kit.store.start_flow(plan, Start::Now).await.unwrap());
    id
}

pub(super) fn booking() -> Vec<Step> {
    vec![
        undoable("hotel", &[]),
        undoable("flight", &["hotel"]),
        harmless("price", &["flight"]),
        undoable("card", &["price"]),
        undoable("mail", &["card"]),
    ]
}

async fn a_saga_that_goes_well_undoes_nothing(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["hotel", "flight", "price", "card", "mail"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
    assert_eq!(view(kit, id).await.steps.len(), 5);
}

async fn what_was_done_is_undone_in_reverse(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[("card", dead("declined"))]).await;
    assert_eq!(ran, ["hotel", "flight", "price", "card", "undo-flight", "undo-hotel"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Undone);
    assert!(view.head.finished_at.is_some());
    let names: Vec<_> = view.steps[5..].iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["undo hotel", "undo flight"]);
    assert_eq!(states(kit, id).await["mail"], StepState::Skipped);
}

async fn a_saga_that_turns_back_says_what_is_left_to_undo(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    let left = async || {
        let view = view(kit, id).await;
        view.would_undo().iter().map(|step| step.name.clone()).collect::<Vec<_>>()
    };
    let ends = [("card", dead("declined")), ("undo-flight", dead("no")), ("undo-hotel", done())];
    assert_eq!(run(kit, worker, &ends).await.last().unwrap(), "undo-flight");
    let head = view(kit, id).await.head;
    let stuck_at = kit.store.now().await.unwrap();
    assert_eq!((head.state, head.since), (FlowState::Stuck, Some(stuck_at)));
    kit.clock.advance(SECOND);
    assert_eq!(view(kit, id).await.head.since, Some(stuck_at), "since it is");
    assert_eq!(left().await, ["flight", "hotel"], "neither is undone");
    let again = FlowAct::Retry {
        step: Some("undo flight".into()),
        by: "ada".into(),
        why: Some("mended".into()),
    };
    kit.store.change_flow(id, again).await.unwrap();
    tend(kit).await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!((state(kit, id).await, left().await), (FlowState::Undoing, vec!["hotel".into()]));
    assert_eq!(view(kit, id).await.head.since, Some(stuck_at + SECOND));
    run(kit, worker, &[]).await;
    assert_eq!((state(kit, id).await, left().await), (FlowState::Undone, vec![]));
    assert_eq!(view(kit, id).await.head.since, None, "it has ended");
}

async fn one_that_is_undone_is_kept_as_long_as_one_that_failed(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("card", dead("declined"))]).await;
    assert_eq!(state(kit, id).await, FlowState::Undone);
    kit.clock.advance(Duration::from_millis(Retention::default().dead_ms - 1000));
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_some());
    kit.clock.advance(SECOND);
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_none());
}

async fn an_undo_is_told_what_became_of_its_step(kit: &Kit) {
    start(kit, vec![undoable("hotel", &[]), undoable("card", &["hotel"])]).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let how = output(r#"{"booking":9007199254740993}"#);
    kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
    tend(kit).await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    let undo = kit.take_one(worker).await;
    let told = r#"{"step":"hotel","outcome":"done","payload":{"why":"saga"},"output":{"booking":9007199254740993}}"#;
    assert_eq!(undo.jobs[0].job.payload, json(told));
}

async fn branches_are_undone_on_their_own(kit: &Kit) {
    let steps = vec![
        undoable("a1", &[]),
        undoable("a2", &["a1"]),
        undoable("b1", &[]),
        undoable("b2", &["b1"]),
        harmless("end", &["a2", "b2"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let mut ends = vec![("end", dead("no")), ("undo-a2", dead("stuck"))];
    let ran = run(kit, worker, &ends).await;
    let place = |name: &str| ran.iter().position(|kind| kind == name);
    assert!(place("undo-b2") < place("undo-b1"), "{ran:?}");
    assert!(
        place("undo-b1").is_some(),
        "one branch that is stuck does not hold the other: {ran:?}"
    );
    assert_eq!(place("undo-a1"), None, "{ran:?}");
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    ends.pop();
    kit.store
        .change_flow(
            id,
            FlowAct::Retry {
                step: Some("undo a2".into()),
                by: "ada".into(),
                why: Some("mended".into()),
            },
        )
        .await
        .unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &ends).await, ["undo-a2", "undo-a1"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn what_runs_is_waited_for_before_anything_is_undone(kit: &Kit) {
    let steps =
        vec![undoable("first", &[]), undoable("slow", &["first"]), undoable("bad", &["first"])];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    let claim = kit.take(worker, 2).await;
    let bad = claim.jobs.iter().position(|taken| taken.job.kind == "bad").unwrap();
    kit.store.settle(worker, vec![item(&claim, bad, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Undoing);
    assert!(kit.view(claim.jobs[1 - bad].job.id).await.cancel_requested, "it is told");
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "nothing is undone while it runs");
    kit.store.settle(worker, vec![item(&claim, 1 - bad, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-slow", "undo-first"], "it was done after all");
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn a_step_in_doubt_is_undone_and_its_undo_is_told(kit: &Kit) {
    let doubt = |kind: &str| Settlement::Dead {
        failure: Failure::new(kind, ErrorClass::Ambiguous, "the line broke"),
    };
    for (how, expected) in
        [(doubt("card"), true), (cancelled("told"), true), (dead("declined"), false)]
    {
        start(kit, vec![undoable("card", &[])]).await;
        let worker = kit.worker().await;
        let claim = kit.take_one(worker).await;
        kit.store.settle(worker, vec![item(&claim, 0, how)]).await.unwrap();
        tend(kit).await;
        let undo = kit.take(worker, 1).await;
        assert_eq!(undo.jobs.len(), usize::from(expected));
        if expected {
            let told =
                r#"{"step":"card","outcome":"unknown","payload":{"why":"saga"},"output":null}"#;
            assert_eq!(undo.jobs[0].job.payload, json(told));
            kit.store.settle(worker, vec![item(&undo, 0, done())]).await.unwrap();
            tend(kit).await;
        }
    }
}

pub(super) async fn run_some(kit: &Kit, worker: WorkerId, steps: usize) {
    for _ in 0..steps {
        let claim = kit.take_one(worker).await;
        kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
        tend(kit).await;
    }
}

async fn a_saga_that_is_called_off_is_undone(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 2).await;
    let act = FlowAct::Cancel { reason: "not wanted".into() };
    kit.store.change_flow(id, act.clone()).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-flight", "undo-hotel"]);
    let view = view(kit, id).await;
    assert_eq!(
        (view.head.state, view.head.reason.as_deref()),
        (FlowState::Undone, Some("not wanted"))
    );
    let again = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(again, FlowAnswer::NotNow { .. }), "{again:?}");
}

async fn an_undo_that_dies_leaves_it_stuck_until_somebody_acts(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    let ends = [("card", dead("declined")), ("undo-flight", dead("the airline is closed"))];
    let ran = run(kit, worker, &ends).await;
    assert_eq!(ran.last().map(String::as_str), Some("undo-flight"));
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let act = FlowAct::Resolve {
        step: "undo flight".into(),
        output: Some(json(r#""by phone""#)),
        by: "ada".into(),
        why: "called the airline".into(),
    };
    assert_eq!(
        kit.store.change_flow(id, act.clone()).await.unwrap(),
        FlowAnswer::Acted { jobs: 1 }
    );
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Undone);
    let flight = view.steps.iter().find(|step| step.name == "undo flight").unwrap();
    let job = kit.view(flight.first.unwrap()).await;
    assert_eq!((job.state, job.output), (State::Done, Some(json(r#""by phone""#))));
    let letters = kit
        .store
        .dead(&DeadFilter { archived: true, ..DeadFilter::default() }, None, 10)
        .await
        .unwrap();
    let letter = letters.iter().find(|letter| letter.id == flight.first.unwrap());
    let notes: Vec<_> =
        letter.unwrap().notes.iter().map(|n| (n.by.as_str(), n.text.as_str())).collect();
    assert_eq!(notes, [("ada", "marked done: called the airline")]);
    let again = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(again, FlowAnswer::NotNow { .. }), "{again:?}");
}

/// A saga of which the undo of the flight is the next job, and that job.
pub(super) async fn with_undo(kit: &Kit, worker: WorkerId) -> (FlowId, JobId) {
    let id = start(kit, booking()).await;
    run_some(kit, worker, 3).await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, dead("declined"))]).await.unwrap();
    tend(kit).await;
    (id, first_job(kit, id, "undo flight").await)
}

async fn an_undo_that_is_called_off_can_be_sent_again(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, undo) = with_undo(kit, worker).await;
    assert_eq!(kit.store.cancel(vec![undo], "enough").await.unwrap(), [CancelAnswer::Cancelled]);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let job = kit.view(undo).await;
    assert_eq!((job.state, job.error.as_deref()), (State::Dead, Some("enough")));
    let letters = kit.store.dead(&DeadFilter::default(), None, 10).await.unwrap();
    let letter = letters.iter().find(|letter| letter.id == undo).expect("it has a dead letter");
    assert_eq!(letter.error, "called off: enough");
    let act = FlowAct::Retry {
        step: Some("undo flight".into()),
        by: "ada".into(),
        why: Some("mended".into()),
    };
    assert_eq!(kit.store.change_flow(id, act).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-flight", "undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn an_undo_that_is_called_off_can_be_sent_with_another_payload(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, undo) = with_undo(kit, worker).await;
    let claim = kit.take_one(worker).await;
    assert_eq!(kit.store.cancel(vec![undo], "enough").await.unwrap(), [CancelAnswer::Requested]);
    kit.store.settle(worker, vec![item(&claim, 0, cancelled("told"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let other = json(r#"{"by":"phone"}"#);
    let sent = kit
        .store
        .dead_replay(&[undo], By::from("ada").because("mended"), Some(other.clone()))
        .await
        .unwrap();
    assert_eq!(sent, [undo]);
    tend(kit).await;
    let claim = kit.take_one(worker).await;
    assert_eq!(claim.jobs[0].job.payload, other);
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn an_undo_that_is_called_off_can_be_marked_done(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, undo) = with_undo(kit, worker).await;
    kit.store.cancel(vec![undo], "enough").await.unwrap();
    tend(kit).await;
    let (step, by, why) = ("undo flight".into(), "ada".into(), "left out".into());
    let act = FlowAct::Resolve { step, output: None, by, why };
    assert_eq!(kit.store.change_flow(id, act).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
    let archived = DeadFilter { archived: true, ..DeadFilter::default() };
    let letters = kit.store.dead(&archived, None, 10).await.unwrap();
    let letter = letters.iter().find(|letter| letter.id == undo).expect("it has a dead letter");
    let notes: Vec<_> = letter.notes.iter().map(|n| (n.by.as_str(), n.text.as_str())).collect();
    assert_eq!(notes, [("ada", "marked done: left out")]);
}

async fn what_is_called_off_after_the_pivot_can_be_sent_again(kit: &Kit) {
    let steps = vec![Step { pivot: true, ..step("pay", &[]) }, step("ship", &["pay"])];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let ship = first_job(kit, id, "ship").await;
    assert_eq!(kit.store.cancel(vec![ship], "enough").await.unwrap(), [CancelAnswer::Cancelled]);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    send_on(kit, id).await;
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["ship"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

/// Somebody has seen to what a saga is stuck at.
async fn send_on(kit: &Kit, id: FlowId) {
    let act = FlowAct::Retry { step: None, by: "ada".into(), why: Some("mended".into()) };
    kit.store.change_flow(id, act).await.unwrap();
}

async fn after_the_pivot_it_goes_forward_only(kit: &Kit) {
    let steps = vec![
        undoable("hotel", &[]),
        Step { pivot: true, ..step("pay", &["hotel"]) },
        step("ship", &["pay"]),
        step("mail", &["ship"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[("ship", dead("no"))]).await;
    assert_eq!(ran, ["hotel", "pay", "ship"], "nothing is undone");
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    assert_eq!(states(kit, id).await["mail"], StepState::Waiting, "and nothing is skipped");
    let act = FlowAct::Cancel { reason: "no".into() };
    let answer = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
    send_on(kit, id).await;
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["ship", "mail"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_failure_that_is_answered_turns_nothing_back(kit: &Kit) {
    let answer = Step {
        after: vec![After { on: On::Failure, ..After::success("card") }],
        ..harmless("voucher", &[])
    };
    let id = start(kit, vec![undoable("hotel", &[]), undoable("card", &["hotel"]), answer]).await;
    let worker = kit.worker().await;
    let ran = run(kit, worker, &[("card", dead("declined"))]).await;
    assert_eq!(ran, ["hotel", "card", "voucher"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

/// What was to answer it was skipped: the price that it needs too was not found.
async fn a_failure_whose_answer_never_runs_turns_it_back(kit: &Kit) {
    let failure_of = |name: &str| After { on: On::Failure, ..After::success(name) };
    let guess = Step { after: vec![failure_of("price")], ..harmless("guess", &[]) };
    let waiver = Step {
        after: vec![After::success("price"), failure_of("guess")],
        ..harmless("waiver", &[])
    };
    let id = start(kit, vec![undoable("hotel", &[]), harmless("price", &["hotel"]), guess, waiver]);
    let (id, worker) = (id.await, kit.worker().await);
    let deaths = [("price", dead("unknown")), ("guess", dead("no idea"))];
    assert_eq!(run(kit, worker, &deaths).await, ["hotel", "price", "guess", "undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn a_deadline_past_the_pivot_calls_nothing_off(kit: &Kit) {
    let mut saga = saga_of(vec![Step { pivot: true, ..step("pay", &[]) }, step("ship", &["pay"])]);
    saga.options.finish_within_ms = Some(1000);
    let id = saga.id;
    let plan = saga.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Now).await.unwrap();
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    kit.clock.advance(SECOND * 2);
    tokio::time::timeout(SECOND * 20, tend(kit)).await.expect("there is an end to it");
    assert_eq!(state(kit, id).await, FlowState::Running);
    assert_eq!(run(kit, worker, &[]).await, ["ship"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_saga_with_a_cap_stays_stuck_while_it_is_tended(kit: &Kit) {
    let mut saga = saga_of(vec![undoable("hotel", &[]), undoable("flight", &["hotel"])]);
    saga.options.at_once = Some(5);
    let id = saga.id;
    let plan = saga.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Now).await.unwrap();
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let flight = kit.take_one(worker).await;
    kit.store.change_flow(id, FlowAct::Cancel { reason: "no".into() }).await.unwrap();
    kit.store.settle(worker, vec![item(&flight, 0, cancelled("told"))]).await.unwrap();
    // Nobody has tended it since: whoever does finds it stuck.
    let undo = async {
        loop {
            let claim = kit.take(worker, 5).await;
            if !claim.jobs.is_empty() {
                return claim;
            }
        }
    };
    let undo = tokio::time::timeout(SECOND * 20, undo).await.expect("the settle carries it on");
    assert_eq!(undo.jobs[0].job.kind, "undo-flight");
    kit.store.settle(worker, vec![item(&undo, 0, dead("closed"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
}

async fn what_waits_behind_a_held_step_waits_until_all_of_it_is_seen_to(kit: &Kit) {
    let steps = vec![
        Step { pivot: true, ..step("pay", &[]) },
        many("ship", 2, &["pay"]),
        step("mail", &["ship"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let claim = kit.take(worker, 2).await;
    let items = vec![item(&claim, 0, dead("no")), item(&claim, 1, dead("no"))];
    kit.store.settle(worker, items).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    kit.store
        .dead_replay(&[claim.jobs[0].job.id], By::from("ada").because("mended"), None)
        .await
        .unwrap();
    tend(kit).await;
    assert_eq!(states(kit, id).await["mail"], StepState::Waiting, "the other one is dead still");
    assert_eq!(run(kit, worker, &[]).await, ["ship"]);
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    kit.store
        .dead_replay(&[claim.jobs[1].job.id], By::from("ada").because("mended"), None)
        .await
        .unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["ship", "mail"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn a_saga_without_undos_is_refused(_kit: &Kit) {
    let check =
        |flow: Flow| flow.plan(&Limits::default(), Retention::default()).unwrap_err().to_string();
    let missing = check(saga_of(vec![undoable("a", &[]), step("b", &["a"])]));
    assert!(missing.contains("\"b\"") && missing.contains("undo"), "{missing}");
    let mut flow = saga_of(vec![undoable("a", &[])]);
    flow.options.saga = false;
    assert!(check(flow).contains("no saga"));
    let pivot = |name: &str| Step { pivot: true, ..step(name, &[]) };
    assert!(check(saga_of(vec![pivot("a"), pivot("b")])).contains("point of no return"));
}

async fn who_sends_a_stuck_saga_on_says_why(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, undo) = with_undo(kit, worker).await;
    let die = async || {
        let claim = kit.take_one(worker).await;
        kit.store.settle(worker, vec![item(&claim, 0, dead("closed"))]).await.unwrap();
        tend(kit).await;
        assert_eq!(state(kit, id).await, FlowState::Stuck);
    };
    let retry = |why: Option<&str>| FlowAct::Retry {
        step: Some("undo flight".into()),
        by: "ada".into(),
        why: why.map(str::to_owned),
    };
    die().await;
    assert_eq!(kit.store.change_flow(id, retry(None)).await.unwrap(), FlowAnswer::WhyMissing);
    let by = By::from("ada");
    assert!(kit.store.dead_replay(&[undo], by, None).await.unwrap().is_empty());
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let answer = kit.store.change_flow(id, retry(Some("it is back"))).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    die().await;
    let because = by.because("by phone");
    let sent = kit.store.dead_replay(&[undo], because, Some(json("1"))).await.unwrap();
    assert_eq!(sent, [undo]);
    tend(kit).await;
    die().await;
    let letters = kit.store.dead(&DeadFilter::default(), None, 10).await.unwrap();
    let letter = letters.iter().find(|letter| letter.id == undo).unwrap();
    let notes: Vec<_> = letter.notes.iter().map(|n| (n.by.as_str(), n.text.as_str())).collect();
    let expected =
        [("ada", "replayed: it is back"), ("ada", "replayed with another payload: by phone")];
    assert_eq!(notes, expected);
    // A flow that is not stuck asks nobody.
    let plain = super::flows::start(kit, vec![step("alone", &[])]).await;
    let claim = kit.take_one(worker).await;
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    let act = FlowAct::Retry { step: None, by: "ada".into(), why: None };
    assert_eq!(kit.store.change_flow(plain, act).await.unwrap(), FlowAnswer::Acted { jobs: 1 });
}
