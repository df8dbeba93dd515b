//! How flows are tended in the one writer: what a reader found is looked at once more, and others have their turns
//! between.

use std::sync::Arc;

use tidemill_core::flow::{Flow, FlowOptions, FlowState, Step, Work};
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

fn literal(id: FlowId) -> String {
    format!("x'{}'", id.0.simple())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_is_given_more_time_before_its_act_goes_on() {
    let place = Place::new();
    let store = place.store().await;
    let (one, two) = (start(&store, 1).await, start(&store, 1).await);
    // Both are found, and then the act of the first gives the second more time.
    let meanwhile = format!(
        "update tidemill_flow set expires_at = iif(id = {one}, 1, 2);
        create trigger meanwhile after update of state on tidemill_flow when new.id = {one} begin
            update tidemill_flow set expires_at = 9000000000000000 where id = {two};
        end",
        one = literal(one),
        two = literal(two)
    );
    place.connect().execute_batch(&meanwhile).unwrap();
    tend(&store).await;
    assert_eq!(store.flow(one).await.unwrap().unwrap().head.state, FlowState::Cancelled);
    assert_eq!(store.flow(two).await.unwrap().unwrap().head.state, FlowState::Running);
    store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_that_is_to_be_kept_for_longer_before_its_act_stays() {
    let place = Place::new();
    let store = place.store().await;
    let ids = called_off(&store, 2, 1).await;
    let meanwhile = format!(
        "update tidemill_flow set forget_at = iif(id = {one}, 1, 2);
        create trigger meanwhile after delete on tidemill_job when old.flow = {one} begin
            update tidemill_flow set forget_at = 9000000000000000 where id = {two};
        end",
        one = literal(ids[0]),
        two = literal(ids[1])
    );
    place.connect().execute_batch(&meanwhile).unwrap();
    tend(&store).await;
    assert!(store.flow(ids[0]).await.unwrap().is_none());
    let kept = store.flow(ids[1]).await.unwrap().unwrap();
    let job = kept.steps[0].first.expect("its job is there");
    assert!(store.job(job).await.unwrap().is_some());
    store.close().await;
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
