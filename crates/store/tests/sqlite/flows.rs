//! How flows are tended in the one writer: others have their turns between.

use std::sync::Arc;

use tidemill_core::flow::{Flow, FlowOptions, Step, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{FlowId, Limits, NewJob, Payload};
use tidemill_store::Store;
use tidemill_store::flow::{FlowAct, Start};

use super::kit::Place;

/// Starts a flow of so many jobs.
async fn start(store: &Arc<dyn Store>, jobs: usize) -> FlowId {
    let jobs = (0..jobs).map(|_| NewJob::new("a", Payload::null())).collect();
    let steps = vec![Step::new("a", Work::Jobs(jobs))];
    let options = FlowOptions { finish_within_ms: Some(3_600_000), ..FlowOptions::default() };
    let flow = Flow { id: FlowId::new(), name: "one".into(), steps, options };
    let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
    let id = plan.id;
    assert!(store.start_flow(plan, Start::Now).await.unwrap());
    id
}

async fn tend(store: &Arc<dyn Store>) {
    while store.tend_flows().await.unwrap() {}
}

/// Starts flows of so many jobs, which are called off at once.
async fn called_off(store: &Arc<dyn Store>, flows: usize, jobs: usize) -> Vec<FlowId> {
    let mut ids = Vec::new();
    for _ in 0..flows {
        ids.push(start(store, jobs).await);
        let act = FlowAct::Cancel { reason: "enough".into() };
        store.change_flow(ids[ids.len() - 1], act).await.unwrap();
    }
    tend(store).await;
    ids
}

/// What is forgotten in one commit is what all others wait for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_forgets_no_more_than_a_page_of_jobs() {
    let place = Place::new();
    let store = place.store().await;
    called_off(&store, 10, 500).await;
    place.connect().execute("update tidemill_flow set forget_at = 1", []).unwrap();
    let commits = || store.way().commits.unwrap().count();
    let before = commits();
    assert!(store.tend_flows().await.unwrap());
    assert!(commits() - before >= 5, "{} commits forgot 5,000 jobs", commits() - before);
    tend(&store).await;
    store.close().await;
}
