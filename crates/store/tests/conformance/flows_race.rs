//! Many stores, as many processes have them, end the last children of a join in the same moment: it fires once,
//! and at once, by those ends alone. Nobody tends the flows here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::WorkerId;
use tidemill_core::flow::{FlowState, StepState};
use tidemill_store::{Claim, Store};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Barrier;

use super::flows::{flow_of, many, start_flow, step, view};
use super::kit::{Kit, ask, card, done, item};

const ROUNDS: usize = 20;
const SOON: Duration = Duration::from_secs(20);

/// So many stores on the same database, each with a worker of its own.
async fn neighbours(kit: &Kit, number: usize) -> Vec<(Arc<dyn Store>, WorkerId)> {
    let mut all = Vec::new();
    for _ in 0..number {
        let (store, worker) = (kit.neighbour().await, WorkerId::new());
        store.register(card(worker)).await.unwrap();
        all.push((store, worker));
    }
    all
}

/// Each takes one child; then all settle theirs when the last of them is ready to.
async fn last_children_end_in_one_moment(kit: &Kit, processes: usize) {
    let all = neighbours(kit, processes).await;
    for round in 0..ROUNDS {
        let steps =
            vec![many("part", processes, &[]), step("sum", &["part"]), step("end", &["sum"])];
        let id = start_flow(kit, flow_of(steps)).await;
        let start = Arc::new(Barrier::new(processes));
        let mut settling = Vec::new();
        for (store, worker) in &all {
            let claim = store.claim(ask(*worker, "default", 1)).await.unwrap();
            assert_eq!(claim.jobs[0].job.kind, "part");
            let (store, worker, start) = (Arc::clone(store), *worker, Arc::clone(&start));
            settling.push(tokio::spawn(async move {
                start.wait().await;
                store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
            }));
        }
        for task in settling {
            task.await.unwrap();
        }
        let (store, worker) = &all[round % processes];
        for kind in ["sum", "end"] {
            let claim = taken(&**store, *worker).await;
            let kinds: Vec<_> = claim.jobs.iter().map(|taken| taken.job.kind.as_str()).collect();
            assert_eq!(kinds, [kind], "round {round}");
            store.settle(*worker, vec![item(&claim, 0, done())]).await.unwrap();
        }
        eventually("the flow to end", SOON, async || {
            (view(kit, id).await.head.state == FlowState::Done).then_some(())
        })
        .await;
        let view = view(kit, id).await;
        assert!(view.steps.iter().all(|step| step.state == StepState::Done), "{view:?}");
        let done: BTreeMap<_, _> = view.steps.iter().map(|step| (&*step.name, step.done)).collect();
        assert_eq!(done, [("part", processes as u64), ("sum", 1), ("end", 1)].into());
    }
    for (store, _) in all {
        store.close().await;
    }
}

/// What comes next, as soon as it is there.
async fn taken(store: &dyn Store, worker: WorkerId) -> Claim {
    eventually("the next step to be let go", SOON, async || {
        let claim = store.claim(ask(worker, "default", 100)).await.unwrap();
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ten_processes_end_the_last_children_and_the_join_fires_once_on_postgres() {
    let kit = Kit::postgres().await;
    last_children_end_in_one_moment(&kit, 10).await;
    kit.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_processes_end_the_last_children_and_the_join_fires_once_on_sqlite() {
    let kit = Kit::sqlite().await;
    last_children_end_in_one_moment(&kit, 2).await;
    kit.store.close().await;
}
