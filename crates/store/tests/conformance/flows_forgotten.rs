//! Flows whose time is over go with their jobs, page after page; nothing of them goes on meanwhile.

use tidemill_core::By;
use tidemill_core::flow::FlowState;
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{first_job, flow_of, many, run, start_flow, state, step, tend};
use super::kit::{Kit, SECOND, dead};

over_both_stores!(nothing_goes_on_of_a_flow_that_is_being_forgotten);

/// What lets a flow go on that has ended.
fn acts(step: &str) -> [FlowAct; 4] {
    let (step, by, why) = (step.to_owned(), "ada".to_owned(), "it is mended".to_owned());
    [
        FlowAct::Retry { step: None, by: by.clone(), why: Some(why.clone()) },
        FlowAct::Retry { step: Some(step.clone()), by: by.clone(), why: Some(why.clone()) },
        FlowAct::Rerun { step: step.clone() },
        FlowAct::Resolve { step, output: None, by, why },
    ]
}

async fn nothing_goes_on_of_a_flow_that_is_being_forgotten(kit: &Kit) {
    let mut flow = flow_of(vec![many("a", 1000, &[]), step("b", &["a"])]);
    flow.options.retain_ms = Some(1000);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("b", dead("no"))]).await;
    let b = first_job(kit, id, "b").await;
    kit.clock.advance(SECOND);
    assert!(
        kit.store.tend_flows().await.unwrap(),
        "a page of its jobs has gone, and there are more"
    );
    for act in acts("b") {
        let answer = kit.store.change_flow(id, act.clone()).await.unwrap();
        assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{act:?}: {answer:?}");
    }
    let by = By { who: "ada", why: Some("it is mended") };
    assert_eq!(kit.store.dead_replay(&[b], by, None).await.unwrap(), []);
    assert_eq!(state(kit, id).await, FlowState::Failed);
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_none());
}
