//! What a saga has turned back from: what may have taken effect is undone, and nothing of it goes on.

use std::time::Duration;

use tidemill_core::flow::{Flow, FlowState, Place, Step, StepState, UndoRule, Way};
use tidemill_core::retention::Retention;
use tidemill_core::{By, ErrorClass, Failure, FlowId, Limits, NewJob, Settlement, WorkerId};
use tidemill_store::flow::{FlowAct, FlowAnswer, Start};
use tidemill_store::{CancelAnswer, Claim};

use super::flows::{first_job, flow_of, many, output, run, state, states, step, tend, view};
use super::kit::{Kit, SECOND, cancelled, dead, done, item, job, json};
use super::sagas::{booking, harmless, run_some, saga_of, start, undoable};

over_both_stores!(
    what_was_begun_and_put_off_is_undone,
    what_was_begun_and_put_off_before_it_failed_is_undone,
    what_cannot_be_kept_may_have_taken_effect,
    nothing_that_was_turned_back_from_is_marked_done,
    what_a_step_adds_to_a_stuck_saga_runs,
    a_pivot_that_runs_is_waited_for_and_decides,
    a_pivot_in_doubt_leaves_it_stuck_until_somebody_says,
    a_pivot_that_waits_is_called_off_with_its_saga,
    a_saga_whose_pivot_waits_when_its_time_is_over_says_why_it_ended,
    a_deadline_waits_for_a_pivot_that_runs,
    a_pivot_that_was_just_sent_again_is_under_way,
    late_sagas_at_their_pivot_hold_up_no_other_deadline,
    what_a_step_has_added_does_not_answer_that_it_failed,
    a_pivot_that_was_called_off_and_lost_its_worker_stays_in_doubt,
);

/// The handler wants to be called again, or its worker stops: nothing failed.
fn put_off() -> Settlement {
    Settlement::Again { delay: Duration::ZERO, spent: 0, failure: None }
}

fn resolve(step: &str) -> FlowAct {
    let (step, by, why) = (step.to_owned(), "ada".into(), "it is seen to".into());
    FlowAct::Resolve { step, output: None, by, why }
}

async fn what_was_begun_and_put_off_is_undone(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let flight = kit.take_one(worker).await;
    kit.settle(worker, &flight, put_off()).await;
    let act = FlowAct::Cancel { reason: "not wanted".into() };
    kit.store.change_flow(id, act).await.unwrap();
    tend(kit).await;
    let undo = kit.take_one(worker).await;
    let told = r#"{"step":"flight","outcome":"unknown","payload":{"why":"saga"},"output":null}"#;
    assert_eq!(undo.jobs[0].job.payload, json(told));
    kit.settle(worker, &undo, done()).await;
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn what_was_begun_and_put_off_before_it_failed_is_undone(kit: &Kit) {
    let id = start(kit, vec![undoable("card", &[])]).await;
    let worker = kit.worker().await;
    for how in [put_off(), dead("declined")] {
        let card = kit.take_one(worker).await;
        kit.settle(worker, &card, how).await;
    }
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-card"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn what_cannot_be_kept_may_have_taken_effect(kit: &Kit) {
    let worker = kit.worker().await;
    for (class, undone) in
        [(ErrorClass::InDoubt, vec!["undo-card"]), (ErrorClass::Permanent, vec![])]
    {
        let id = start(kit, vec![undoable("card", &[])]).await;
        let card = kit.take_one(worker).await;
        let failure = Failure::new("card", class, "its output cannot be kept");
        kit.settle(worker, &card, Settlement::Dead { failure }).await;
        tend(kit).await;
        assert_eq!(run(kit, worker, &[]).await, undone, "{class:?}");
        assert_eq!(state(kit, id).await, FlowState::Undone);
    }
}

async fn nothing_that_was_turned_back_from_is_marked_done(kit: &Kit) {
    let id = start(kit, booking()).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let flight = kit.take_one(worker).await;
    kit.settle(worker, &flight, dead("full")).await;
    tend(kit).await;
    let refused = async |expected: FlowState| {
        assert_eq!(state(kit, id).await, expected);
        let answer = kit.store.change_flow(id, resolve("flight")).await.unwrap();
        assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{expected:?}: {answer:?}");
        tend(kit).await;
        assert_eq!(state(kit, id).await, expected);
        assert_eq!(states(kit, id).await["price"], StepState::Skipped);
    };
    refused(FlowState::Undoing).await;
    let undo = kit.take_one(worker).await;
    kit.settle(worker, &undo, dead("closed")).await;
    tend(kit).await;
    refused(FlowState::Stuck).await;
    let answer = kit.store.change_flow(id, resolve("undo hotel")).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 1 });
    tend(kit).await;
    refused(FlowState::Undone).await;
    let history = kit.store.attempts(undo.jobs[0].job.id).await.unwrap();
    let last = history.last().expect("how it died is kept");
    assert_eq!((last.error.as_deref(), last.attempt), (Some("closed"), 1), "{history:?}");
    assert!(last.class.is_some() && last.started_at.is_some(), "{last:?}");
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "nothing goes on");
}

/// A job that a job of this step adds to its flow.
fn added(flow: FlowId, behind: u32, way: Way) -> NewJob {
    let (name, due) = ("parcel".to_owned(), None);
    let place = Place { id: flow, step: behind, name, joins: true, grows: true, due, way };
    let mut parcel = job("parcel");
    parcel.options.flow = Some(Box::new(place));
    parcel
}

async fn what_a_step_adds_to_a_stuck_saga_runs(kit: &Kit) {
    let steps = vec![
        Step { pivot: true, ..step("pay", &[]) },
        step("bill", &["pay"]),
        step("pack", &["pay"]),
        step("ship", &["pack"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let claim = kit.take(worker, 2).await;
    let bill = claim.jobs.iter().position(|taken| taken.job.kind == "bill").unwrap();
    kit.store.settle(worker, vec![item(&claim, bill, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let pack = view(kit, id).await.steps.iter().find(|step| step.name == "pack").unwrap().number;
    let Settlement::Done { output, .. } = output("1") else { unreachable!() };
    let how = Settlement::Done { output, follow_ups: vec![added(id, pack, Way::Forward)] };
    kit.store.settle(worker, vec![item(&claim, 1 - bill, how)]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["parcel", "ship"], "the parcel is not dropped");
    assert_eq!(state(kit, id).await, FlowState::Stuck, "the bill is still to be seen to");
    let bill = first_job(kit, id, "bill").await;
    kit.store.dead_replay(&[bill], By::from("ada").because("mended"), None).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["bill"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}

/// A hotel, and beside it a card that is charged for good; then a mail.
fn trip() -> Vec<Step> {
    vec![
        undoable("hotel", &[]),
        Step { pivot: true, ..step("card", &["hotel"]) },
        undoable("flight", &["hotel"]),
        step("mail", &["card"]),
    ]
}

fn cancel() -> FlowAct {
    FlowAct::Cancel { reason: "not wanted".into() }
}

/// The trip with its card and its flight under way: where they stand in the claim.
async fn under_way(kit: &Kit, worker: WorkerId) -> (FlowId, Claim, usize) {
    let id = start(kit, trip()).await;
    run_some(kit, worker, 1).await;
    let claim = kit.take(worker, 2).await;
    let card = claim.jobs.iter().position(|taken| taken.job.kind == "card").unwrap();
    (id, claim, card)
}

async fn a_pivot_that_runs_is_waited_for_and_decides(kit: &Kit) {
    let worker = kit.worker().await;
    for by_failure in [true, false] {
        for (how, expected) in [
            (done(), FlowState::Stuck),
            (dead("declined"), FlowState::Undone),
            (cancelled("told"), FlowState::Stuck),
        ] {
            let (id, claim, card) = under_way(kit, worker).await;
            if by_failure {
                kit.store.settle(worker, vec![item(&claim, 1 - card, dead("full"))]).await.unwrap();
            } else {
                let answer = kit.store.change_flow(id, cancel()).await.unwrap();
                assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
            }
            tend(kit).await;
            assert_eq!(state(kit, id).await, FlowState::Running, "nothing is decided yet");
            assert!(kit.view(claim.jobs[card].job.id).await.cancel_requested, "it is told");
            kit.store.settle(worker, vec![item(&claim, card, how.clone())]).await.unwrap();
            if !by_failure {
                kit.store.settle(worker, vec![item(&claim, 1 - card, dead("full"))]).await.unwrap();
            }
            tend(kit).await;
            let ran = run(kit, worker, &[]).await;
            assert_eq!(state(kit, id).await, expected, "{how:?}");
            match how {
                Settlement::Done { .. } => assert_eq!(ran, ["mail"], "there is no way back"),
                Settlement::Dead { .. } => assert_eq!(ran, ["undo-hotel"]),
                _ => assert!(ran.is_empty(), "nobody knows whether it was charged: {ran:?}"),
            }
        }
    }
}

async fn a_pivot_in_doubt_leaves_it_stuck_until_somebody_says(kit: &Kit) {
    let worker = kit.worker().await;
    let retry =
        FlowAct::Retry { step: Some("card".into()), by: "ada".into(), why: Some("mended".into()) };
    for (act, expected, end) in [
        (resolve("card"), vec!["mail"], FlowState::Done),
        (retry, vec!["card", "mail"], FlowState::Done),
        (cancel(), vec!["undo-flight", "undo-hotel"], FlowState::Undone),
    ] {
        let (id, claim, card) = under_way(kit, worker).await;
        kit.store.settle(worker, vec![item(&claim, 1 - card, done())]).await.unwrap();
        kit.store.settle(worker, vec![item(&claim, card, cancelled("told"))]).await.unwrap();
        tend(kit).await;
        assert_eq!(state(kit, id).await, FlowState::Stuck);
        assert_eq!(states(kit, id).await["mail"], StepState::Waiting, "nothing is dropped");
        assert!(kit.take(worker, 9).await.jobs.is_empty(), "nothing is undone");
        let answer = kit.store.change_flow(id, act).await.unwrap();
        assert!(matches!(answer, FlowAnswer::Acted { .. }), "{answer:?}");
        tend(kit).await;
        let mut ran = run(kit, worker, &[]).await;
        ran.sort_unstable();
        assert_eq!(ran, expected);
        assert_eq!(state(kit, id).await, end);
    }
}

async fn a_pivot_that_waits_is_called_off_with_its_saga(kit: &Kit) {
    let id = start(kit, trip()).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let answer = kit.store.change_flow(id, cancel()).await.unwrap();
    assert!(matches!(answer, FlowAnswer::Acted { .. }), "{answer:?}");
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Undone);
    assert_eq!(view.head.reason.as_deref(), Some("not wanted"));
}

/// Starts the trip with a second's time.
async fn start_hurried(kit: &Kit) -> FlowId {
    let mut saga = saga_of(trip());
    saga.options.finish_within_ms = Some(1000);
    let id = saga.id;
    let plan = saga.plan(&Limits::default(), Retention::default()).unwrap();
    kit.store.start_flow(plan, Start::Now).await.unwrap();
    id
}

async fn a_saga_whose_pivot_waits_when_its_time_is_over_says_why_it_ended(kit: &Kit) {
    let id = start_hurried(kit).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"]);
    let view = view(kit, id).await;
    assert_eq!(view.head.state, FlowState::Undone);
    assert_eq!(view.head.reason.as_deref(), Some("it did not finish within its deadline"));
}

async fn a_deadline_waits_for_a_pivot_that_runs(kit: &Kit) {
    let id = start_hurried(kit).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let claim = kit.take(worker, 2).await;
    let card = claim.jobs.iter().position(|taken| taken.job.kind == "card").unwrap();
    kit.clock.advance(SECOND * 2);
    tokio::time::timeout(SECOND * 20, tend(kit)).await.expect("there is an end to it");
    assert_eq!(state(kit, id).await, FlowState::Running);
    assert!(kit.view(claim.jobs[card].job.id).await.cancel_requested, "it is told");
    kit.store.settle(worker, vec![item(&claim, card, dead("told"))]).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, 1 - card, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-flight", "undo-hotel"]);
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn a_pivot_that_was_just_sent_again_is_under_way(kit: &Kit) {
    let worker = kit.worker().await;
    let (id, claim, card) = under_way(kit, worker).await;
    kit.store.settle(worker, vec![item(&claim, 1 - card, done())]).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, card, cancelled("told"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck);
    let card = claim.jobs[card].job.id;
    kit.store.dead_replay(&[card], By::from("ada").because("mended"), None).await.unwrap();
    let again = kit.take_one(worker).await;
    assert_eq!(again.jobs[0].job.id, card);
    // Nobody has counted yet that it runs again.
    let answer = kit.store.change_flow(id, cancel()).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
    assert!(kit.view(card).await.cancel_requested, "it is told");
    kit.settle(worker, &again, done()).await;
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["mail"], "nothing is undone");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn late_sagas_at_their_pivot_hold_up_no_other_deadline(kit: &Kit) {
    let worker = kit.worker().await;
    let begin = async |mut flow: Flow| {
        flow.options.finish_within_ms = Some(1000);
        let id = flow.id;
        let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
        kit.store.start_flow(plan, Start::Now).await.unwrap();
        id
    };
    for _ in 0..101 {
        begin(saga_of(vec![Step { pivot: true, ..step("card", &[]) }])).await;
    }
    assert_eq!(kit.take(worker, 200).await.jobs.len(), 101);
    kit.clock.advance(SECOND);
    let last = begin(flow_of(vec![step("mail", &[])])).await;
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    assert_eq!(state(kit, last).await, FlowState::Cancelled);
}

async fn what_a_step_has_added_does_not_answer_that_it_failed(kit: &Kit) {
    let pack = Step { undo: UndoRule::Nothing, ..many("pack", 2, &[]) };
    let steps = vec![
        undoable("hotel", &[]),
        pack,
        Step { pivot: true, ..step("pay", &["hotel"]) },
        harmless("seal", &["pack"]),
    ];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 9).await;
    let at = |kind: &str| claim.jobs.iter().position(|taken| taken.job.kind == kind).unwrap();
    let (hotel, first) = (at("hotel"), at("pack"));
    let last = (first + 1..3).find(|at| *at != hotel).unwrap();
    let parcel = added(id, 1, Way::Back);
    let more = Settlement::Done { output: json("1"), follow_ups: vec![parcel] };
    kit.store.settle(worker, vec![item(&claim, first, more)]).await.unwrap();
    tend(kit).await;
    kit.store.settle(worker, vec![item(&claim, last, dead("torn"))]).await.unwrap();
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Undoing, "nobody sees to the failure");
    kit.store.settle(worker, vec![item(&claim, hotel, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["undo-hotel"], "nothing is charged");
    assert_eq!(state(kit, id).await, FlowState::Undone);
}

async fn a_pivot_that_was_called_off_and_lost_its_worker_stays_in_doubt(kit: &Kit) {
    let steps = vec![undoable("hotel", &[]), Step { pivot: true, ..step("pay", &["hotel"]) }];
    let id = start(kit, steps).await;
    let worker = kit.worker().await;
    run_some(kit, worker, 1).await;
    let pay = kit.take_one(worker).await.jobs[0].job.id;
    assert_eq!(kit.store.cancel(vec![pay], "enough").await.unwrap(), [CancelAnswer::Requested]);
    assert_eq!(kit.lose_workers().await.cancelled, 1);
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck, "nobody knows whether it was paid");
    let by = By::from("ada").because("the network is back");
    assert_eq!(kit.store.dead_replay(&[pay], by, None).await.unwrap(), [pay]);
    tend(kit).await;
    let worker = kit.worker().await;
    let claim = kit.take_one(worker).await;
    let failure = Failure::new("pay", ErrorClass::Permanent, "declined");
    kit.settle(worker, &claim, Settlement::Dead { failure }).await;
    tend(kit).await;
    assert_eq!(state(kit, id).await, FlowState::Stuck, "the first attempt may have been paid");
    let history = kit.store.attempts(pay).await.unwrap();
    assert!(history.iter().any(|past| past.class == Some(ErrorClass::Lost)), "{history:?}");
}
