//! A flow that cannot be tended holds up no other.

use tidemill_core::FlowId;
use tidemill_core::flow::{Flow, FlowOptions, FlowState, StepState};
use tidemill_store::Error;
use tidemill_store::flow::FlowAct;

use super::flows::{flow_of, start_flow, state, states, step};
use super::flows_late::within;
use super::kit::{Kit, SECOND};
use super::plain_sql::run;

over_both_stores!(
    what_one_flow_cannot_do_is_told_when_the_others_were_tended,
    joins_that_cannot_be_decided_hold_up_no_other,
    one_that_is_spoiled_does_not_bring_the_others_a_page_a_second,
    flows_that_cannot_be_called_off_hold_up_no_other,
    flows_of_which_nothing_can_be_counted_hold_up_no_other,
);

fn named(name: &str, flow: Flow) -> Flow {
    Flow { name: name.to_owned(), ..flow }
}

/// Leaves in all steps of flows of this name what no store writes, as a hand in the database might.
async fn spoil(kit: &Kit, name: &str) {
    let dot = if kit.store.backend() == "sqlite" { "_" } else { "." };
    let spoil = format!(
        r#"update tidemill{dot}flow_step set joined = '"spoiled"'
        where flow in (select id from tidemill{dot}flow where name = '{name}')"#
    );
    run(kit, &spoil).await.unwrap();
}

/// Tends until nothing is left but what cannot be done; answers what is told of that.
async fn fault(kit: &Kit) -> Error {
    let tending = async {
        loop {
            match kit.store.tend_flows().await {
                Ok(has_more) => assert!(has_more, "what cannot be done is told"),
                Err(fault) => return fault,
            }
        }
    };
    tokio::time::timeout(SECOND * 60, tending).await.expect("there is an end to it")
}

async fn call_off(kit: &Kit, flow: FlowId) {
    let act = FlowAct::Cancel { reason: "enough".to_owned() };
    kit.store.change_flow(flow, act).await.unwrap();
}

/// Three flows of this name: one to be called off, one with a join that is soon late, one that soon has no more time.
async fn three(kit: &Kit, name: &str) -> [FlowId; 3] {
    let off = start_flow(kit, named(name, flow_of(vec![step("a", &[])]))).await;
    let late = within(step("late", &["slow"]), 1000);
    let late = start_flow(kit, named(name, flow_of(vec![step("slow", &[]), late]))).await;
    let options = FlowOptions { finish_within_ms: Some(1000), ..FlowOptions::default() };
    let over = Flow { options, ..named(name, flow_of(vec![step("a", &[])])) };
    let over = start_flow(kit, over).await;
    [off, late, over]
}

async fn what_one_flow_cannot_do_is_told_when_the_others_were_tended(kit: &Kit) {
    let [spoiled, ..] = three(kit, "spoiled").await;
    let [off, late, over] = three(kit, "sound").await;
    for flow in [spoiled, off] {
        call_off(kit, flow).await;
    }
    spoil(kit, "spoiled").await;
    kit.clock.advance(SECOND * 2);
    let told = fault(kit).await;
    assert_eq!(told.code(), "store_refused", "{told}");
    // What was called off in this round may be for the next to carry on.
    fault(kit).await;
    assert_eq!(state(kit, off).await, FlowState::Cancelled);
    assert_eq!(states(kit, late).await["late"], StepState::Skipped);
    assert_eq!(state(kit, over).await, FlowState::Cancelled);
}

async fn joins_that_cannot_be_decided_hold_up_no_other(kit: &Kit) {
    let names: Vec<String> = (0..100).map(|n| format!("late {n}")).collect();
    let late = names.iter().map(|name| within(step(name, &["slow"]), 1000));
    let steps = [step("slow", &[])].into_iter().chain(late).collect();
    start_flow(kit, named("spoiled", flow_of(steps))).await;
    let behind = within(step("late", &["slow"]), 1001);
    let sound = start_flow(kit, flow_of(vec![step("slow", &[]), behind])).await;
    spoil(kit, "spoiled").await;
    kit.clock.advance(SECOND * 2);
    fault(kit).await;
    assert_eq!(states(kit, sound).await["late"], StepState::Skipped);
}

async fn one_that_is_spoiled_does_not_bring_the_others_a_page_a_second(kit: &Kit) {
    let late = within(step("late", &["slow"]), 1000);
    start_flow(kit, named("spoiled", flow_of(vec![step("slow", &[]), late]))).await;
    let names: Vec<String> = (0..250).map(|n| format!("late {n}")).collect();
    let late = names.iter().map(|name| within(step(name, &["slow"]), 1001));
    let steps = [step("slow", &[])].into_iter().chain(late).collect();
    let sound = start_flow(kit, flow_of(steps)).await;
    spoil(kit, "spoiled").await;
    kit.clock.advance(SECOND * 2);
    // Whoever tends goes on while he is told to, and then waits for a second.
    fault(kit).await;
    let states = states(kit, sound).await;
    let waiting = names.iter().filter(|name| states[*name] == StepState::Waiting).count();
    assert_eq!(waiting, 0, "nobody waits for the next second");
}

/// Starts a page of flows of one step, spoiled ones, and then a sound one.
async fn a_page_before(kit: &Kit) -> (Vec<FlowId>, FlowId) {
    let mut spoiled = Vec::new();
    for _ in 0..100 {
        spoiled.push(start_flow(kit, named("spoiled", flow_of(vec![step("a", &[])]))).await);
    }
    (spoiled, start_flow(kit, flow_of(vec![step("a", &[])])).await)
}

async fn flows_that_cannot_be_called_off_hold_up_no_other(kit: &Kit) {
    let (spoiled, sound) = a_page_before(kit).await;
    for flow in spoiled.into_iter().chain([sound]) {
        call_off(kit, flow).await;
    }
    spoil(kit, "spoiled").await;
    fault(kit).await;
    assert_eq!(state(kit, sound).await, FlowState::Cancelled);
}

async fn flows_of_which_nothing_can_be_counted_hold_up_no_other(kit: &Kit) {
    let (_, sound) = a_page_before(kit).await;
    spoil(kit, "spoiled").await;
    // As who ended their jobs leaves them if he dies.
    let dot = if kit.store.backend() == "sqlite" { "_" } else { "." };
    let arrive = format!(
        "insert into tidemill{dot}flow_arrival (flow, step, ok, failed)
        select id, 0, 1, 0 from tidemill{dot}flow order by id"
    );
    run(kit, &arrive).await.unwrap();
    fault(kit).await;
    assert_eq!(state(kit, sound).await, FlowState::Done);
}
