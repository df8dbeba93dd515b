//! Many stores, as many processes have them, end the last children of a join in the same moment: it fires once,
//! and at once, by those ends alone. Nobody tends the flows there. And flows that are started in the same moment, or
//! tried again while what is sent again dies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::flow::{FlowState, Plan, StepState};
use tidemill_core::retention::Retention;
use tidemill_core::{Flow, FlowId, Limits, WorkerId};
use tidemill_store::flow::{FlowAct, FlowAnswer, Start};
use tidemill_store::{Claim, Store};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Barrier;

use super::flows::{flow_of, many, run, start_flow, step, view};
use super::kit::{Kit, ask, card, dead, done, item, job};

over_both_stores!(
    flows_that_start_together_are_each_whole,
    a_view_is_of_one_moment,
    a_retry_sends_each_dead_job_once_however_fast_they_die_again,
);

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

/// They share commits. One was started before, and one has the id of a job that is there: that is theirs alone.
async fn flows_that_start_together_are_each_whole(kit: &Kit) {
    let (flows, children) = (40, 3);
    let (other, worker) = (job("other"), kit.worker().await);
    kit.store.enqueue(vec![other.clone()]).await.unwrap();
    let flow = || flow_of(vec![many("part", children, &[]), step("sum", &["part"])]);
    let plan = |flow: Flow| flow.plan(&Limits::default(), Retention::default()).unwrap();
    let mut plans: Vec<Plan> = (0..flows).map(|_| plan(flow())).collect();
    plans.push(plans[0].clone());
    let mut colliding = plan(flow());
    colliding.jobs[0].job.id = other.id;
    let (twice, collides) = (plans[0].id, colliding.id);
    plans.insert(flows / 2, colliding);
    let starting = plans.into_iter().map(|plan| {
        let (id, store) = (plan.id, Arc::clone(&kit.store));
        tokio::spawn(async move { (id, store.start_flow(plan, Start::Now).await) })
    });
    let mut started: BTreeMap<FlowId, usize> = BTreeMap::new();
    for task in starting.collect::<Vec<_>>() {
        let (id, answer) = task.await.unwrap();
        assert_eq!(answer.is_err(), id == collides, "{answer:?}");
        *started.entry(id).or_default() += usize::from(answer.unwrap_or(false));
    }
    assert_eq!(started.remove(&collides), Some(0));
    assert!(kit.store.flow(collides).await.unwrap().is_none(), "nothing of it is there");
    assert_eq!(started[&twice], 1, "started once, whoever was first");
    assert!(started.len() == flows && started.values().all(|times| *times == 1), "{started:?}");
    let ran = run(kit, worker, &[]).await;
    let of = |kind: &str| ran.iter().filter(|ran| *ran == kind).count();
    assert_eq!((of("part"), of("sum"), of("other")), (flows * children, flows, 1));
    for id in started.keys() {
        assert_eq!(view(kit, *id).await.head.state, FlowState::Done);
    }
}

/// Jobs end while somebody looks: what is told of the whole is what its steps say.
async fn a_view_is_of_one_moment(kit: &Kit) {
    let jobs = 300;
    let id = start_flow(kit, flow_of(vec![many("part", jobs, &[])])).await;
    let (store, worker) = (Arc::clone(&kit.store), kit.worker().await);
    let ending = tokio::spawn(async move {
        for _ in 0..jobs {
            let claim = store.claim(ask(worker, "default", 1)).await.unwrap();
            store.settle(worker, vec![item(&claim, 0, done())]).await.unwrap();
        }
    });
    while !ending.is_finished() {
        let view = view(kit, id).await;
        assert_eq!(view.head.done, view.steps[0].done);
    }
    ending.await.unwrap();
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

async fn a_retry_sends_each_dead_job_once_however_fast_they_die_again(kit: &Kit) {
    const JOBS: usize = 2500;
    let worker = kit.worker().await;
    for at_once in [None, Some(2000)] {
        let mut flow = flow_of(vec![many("a", JOBS, &[])]);
        flow.options.at_once = at_once;
        let id = start_flow(kit, flow).await;
        run(kit, worker, &[("a", dead("no"))]).await;
        assert_eq!(view(kit, id).await.head.failed, JOBS as u64);
        let act = FlowAct::Retry { step: None, by: "ada".into(), why: None };
        let dying = async {
            loop {
                let claim = kit.take(worker, 1000).await;
                let items = (0..claim.jobs.len()).map(|at| item(&claim, at, dead("no")));
                kit.store.settle(worker, items.collect()).await.unwrap();
            }
        };
        let sending = async {
            tokio::select! {
                sent = kit.store.change_flow(id, act) => sent.unwrap(),
                () = dying => unreachable!("it goes on as long as there is something to send"),
            }
        };
        let sent = tokio::time::timeout(SOON, sending).await.expect("there is an end to it");
        assert_eq!(sent, FlowAnswer::Acted { jobs: JOBS as u64 });
        run(kit, worker, &[]).await;
    }
}
