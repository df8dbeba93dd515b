//! What a saga has turned back from: what may have taken effect is undone, and nothing of it goes on.

use std::time::Duration;

use tidemill_core::flow::{FlowState, Place, Step, StepState};
use tidemill_core::{FlowId, NewJob, Settlement};
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{first_job, output, run, state, states, step, tend, view};
use super::kit::{Kit, dead, done, item, job, json};
use super::sagas::{booking, run_some, start, undoable};

over_both_stores!(
    what_was_begun_and_put_off_is_undone,
    what_was_begun_and_put_off_before_it_failed_is_undone,
    nothing_that_was_turned_back_from_is_marked_done,
    what_a_step_adds_to_a_stuck_saga_runs,
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
    assert!(kit.take(worker, 9).await.jobs.is_empty(), "nothing goes on");
}

/// A job that a job of this step adds to its flow.
fn added(flow: FlowId, behind: u32) -> NewJob {
    let (name, due) = ("parcel".to_owned(), None);
    let place = Place { id: flow, step: behind, name, joins: true, grows: true, due };
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
    let how = Settlement::Done { output, follow_ups: vec![added(id, pack)] };
    kit.store.settle(worker, vec![item(&claim, 1 - bill, how)]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["parcel", "ship"], "the parcel is not dropped");
    assert_eq!(state(kit, id).await, FlowState::Stuck, "the bill is still to be seen to");
    let bill = first_job(kit, id, "bill").await;
    kit.store.dead_replay(&[bill], "ada", None).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["bill"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}
