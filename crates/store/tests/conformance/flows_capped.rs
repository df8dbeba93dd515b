//! Flows that may have only so many jobs under way: who gets the next place, and that nobody does in one that is
//! called off.

use tidemill_core::flow::{After, FlowState, Need, On, Rest, Step};
use tidemill_core::{FlowId, WorkerId};
use tidemill_store::flow::{FlowAct, FlowAnswer};

use super::flows::{flow_of, many, need, run, start_flow, state, step, tend, view};
use super::kit::{Kit, SECOND, dead, done, item};

over_both_stores!(
    a_flow_that_is_called_off_lets_no_more_go,
    what_the_rest_is_called_off_of_lets_no_more_go,
    a_step_that_opens_gets_the_next_place,
    steps_that_open_together_go_in_their_order,
);

/// Starts a flow that may have so many jobs under way.
async fn start_capped(kit: &Kit, at_once: u32, steps: Vec<Step>) -> FlowId {
    let mut flow = flow_of(steps);
    flow.options.at_once = Some(at_once);
    start_flow(kit, flow).await
}

/// Counts what has ended, and tends nothing: whoever asks for something of a flow does so first.
async fn count(kit: &Kit, id: FlowId, step: &str) {
    let (step, by, why) = (step.to_owned(), "ada".to_owned(), "none is dead".to_owned());
    let act = FlowAct::Resolve { step, output: None, by, why };
    let answer = kit.store.change_flow(id, act).await.unwrap();
    assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
}

async fn is_idle(kit: &Kit, worker: WorkerId) -> bool {
    kit.take(worker, 100).await.jobs.is_empty()
}

async fn a_flow_that_is_called_off_lets_no_more_go(kit: &Kit) {
    let id = start_capped(kit, 4, vec![many("a", 20, &[]), many("b", 20, &[])]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 3).await;
    let cancel = FlowAct::Cancel { reason: "enough".into() };
    let answer = kit.store.change_flow(id, cancel).await.unwrap();
    assert_eq!(answer, FlowAnswer::Acted { jobs: 40 });
    let items = vec![item(&claim, 0, done()), item(&claim, 1, done())];
    kit.store.settle(worker, items).await.unwrap();
    count(kit, id, "a").await;
    let last = kit.take(worker, 100).await;
    assert_eq!(last.jobs.len(), 1, "the one that was let go before");
    kit.store.settle(worker, vec![item(&last, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    kit.store.settle(worker, vec![item(&claim, 2, done())]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    assert_eq!(state(kit, id).await, FlowState::Cancelled);
    let view = view(kit, id).await;
    assert_eq!((view.head.done, view.head.failed), (3, 37));
}

async fn what_the_rest_is_called_off_of_lets_no_more_go(kit: &Kit) {
    let mut first = need(step("first", &["a"]), Need::Quorum { jobs: 1 });
    first.join.rest = Rest::Cancel;
    let id = start_capped(kit, 4, vec![many("a", 20, &[]), first]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 4).await;
    kit.store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
    count(kit, id, "a").await;
    let join = kit.take(worker, 100).await;
    assert_eq!((join.jobs.len(), join.jobs[0].job.kind.as_str()), (1, "first"));
    let items = vec![item(&claim, 1, done()), item(&claim, 2, done())];
    kit.store.settle(worker, items).await.unwrap();
    count(kit, id, "a").await;
    assert!(is_idle(kit, worker).await, "called off, and not let go");
    tend(kit).await;
    kit.store.settle(worker, vec![item(&join, 0, done())]).await.unwrap();
    kit.store.settle(worker, vec![item(&claim, 3, done())]).await.unwrap();
    tend(kit).await;
    assert!(is_idle(kit, worker).await);
    let view = view(kit, id).await;
    assert_eq!((view.head.state, view.head.done, view.head.failed), (FlowState::Done, 5, 16));
}

async fn a_step_that_opens_gets_the_next_place(kit: &Kit) {
    let after = After { on: On::Failure, ..After::success("p") };
    let alarm = Step { after: vec![after], ..many("alarm", 3, &[]) };
    let alarm = need(alarm, Need::Quorum { jobs: 1 });
    let id = start_capped(kit, 2, vec![many("p", 10, &[]), alarm]).await;
    let worker = kit.worker().await;
    let claim = kit.take(worker, 2).await;
    kit.clock.advance(SECOND);
    kit.store.settle(worker, vec![item(&claim, 0, dead("no"))]).await.unwrap();
    tend(kit).await;
    let alarm = kit.take(worker, 100).await;
    assert_eq!((alarm.jobs.len(), alarm.jobs[0].job.kind.as_str()), (1, "alarm"));
    let items = vec![item(&claim, 1, done())];
    kit.store.settle(worker, items).await.unwrap();
    kit.store.settle(worker, vec![item(&alarm, 0, done())]).await.unwrap();
    tend(kit).await;
    assert_eq!(run(kit, worker, &[]).await.len(), 10, "who was passed goes on");
    assert_eq!(state(kit, id).await, FlowState::Done);
}

async fn steps_that_open_together_go_in_their_order(kit: &Kit) {
    let id = start_capped(kit, 2, vec![many("a", 3, &[]), many("b", 2, &[])]).await;
    let worker = kit.worker().await;
    assert_eq!(run(kit, worker, &[]).await, ["a", "a", "a", "b", "b"]);
    assert_eq!(state(kit, id).await, FlowState::Done);
}
