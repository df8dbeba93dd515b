//! Flows whose time is over go with their jobs, page after page; nothing of them goes on meanwhile, and those of which
//! something must stay hold up no other.

use tidemill_core::flow::FlowState;
use tidemill_core::retention::Retention;
use tidemill_core::{By, FlowId, Limits};
use tidemill_store::flow::{FlowAct, FlowAnswer, Start};

use super::flows::{first_job, flow_of, many, output, run, start_flow, state, step, tend};
use super::kit::{Kit, SECOND, dead, json};
use super::plain_sql;

over_both_stores!(
    nothing_goes_on_of_a_flow_that_is_being_forgotten,
    what_a_job_still_needs_that_was_sent_again_by_itself_stays,
    flows_of_which_something_must_stay_hold_up_no_other,
);

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

async fn what_a_job_still_needs_that_was_sent_again_by_itself_stays(kit: &Kit) {
    let mut flow = flow_of(vec![step("a", &[]), step("b", &["a"])]);
    flow.options.retain_ms = Some(1000);
    let id = start_flow(kit, flow).await;
    let worker = kit.worker().await;
    run(kit, worker, &[("a", output("1")), ("b", dead("no"))]).await;
    let old = first_job(kit, id, "b").await;
    kit.store.change_flow(id, FlowAct::Rerun { step: "b".to_owned() }).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await, ["b"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
    let by = By { who: "ada", why: None };
    assert_eq!(kit.store.dead_replay(&[old], by, None).await.unwrap(), [old]);
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    let inputs = kit.store.inputs(&[(id, 1)]).await.unwrap();
    assert_eq!(inputs[0][0].output, Some(json("1")), "what it runs with");
    assert_eq!(run(kit, worker, &[]).await, ["b"]);
    kit.clock.advance(SECOND * 2);
    tend(kit).await;
    assert!(kit.store.flow(id).await.unwrap().is_none());
}

/// Starts a flow of one job of this kind, which is kept for so long.
async fn kept(kit: &Kit, kind: &str, retain_ms: u64) -> FlowId {
    let mut flow = flow_of(vec![step(kind, &[])]);
    flow.options.retain_ms = Some(retain_ms);
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    let id = plan.id;
    assert!(kit.store.start_flow(plan, Start::Now).await.unwrap());
    id
}

async fn flows_of_which_something_must_stay_hold_up_no_other(kit: &Kit) {
    let mut owing = Vec::new();
    for _ in 0..100 {
        owing.push(kept(kit, "owes", 1000).await);
    }
    let sound = kept(kit, "owes nothing", 1001).await;
    let worker = kit.worker().await;
    run(kit, worker, &[]).await;
    let dot = if kit.store.backend() == "sqlite" { "_" } else { "." };
    let owe = format!(
        "insert into tidemill{dot}debt (job) select id from tidemill{dot}job where kind = 'owes'"
    );
    plain_sql::run(kit, &owe).await.unwrap();
    kit.clock.advance(SECOND * 2);
    tokio::time::timeout(SECOND * 20, tend(kit)).await.expect("there is an end to it");
    assert!(kit.store.flow(sound).await.unwrap().is_none());
    assert!(kit.store.flow(owing[0]).await.unwrap().is_some());
    plain_sql::run(kit, &format!("delete from tidemill{dot}debt")).await.unwrap();
    tend(kit).await;
    for id in owing {
        assert!(kit.store.flow(id).await.unwrap().is_none(), "it is paid");
    }
}
