//! A flow that cannot be tended holds up no other.

use tidemill_core::flow::{Flow, FlowOptions, FlowState, Step, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{FlowId, Limits, NewJob, Payload};
use tidemill_store::flow::{FlowAct, Start};
use tidemill_testkit::databases::fresh_postgres_url;

use super::kit::{connect, store};

fn flow(options: FlowOptions) -> Flow {
    let work = Work::Jobs(vec![NewJob::new("a", Payload::null())]);
    Flow { id: FlowId::new(), name: "flow".into(), steps: vec![Step::new("a", work)], options }
}

#[tokio::test]
async fn what_one_flow_cannot_do_is_told_when_the_others_were_tended() {
    let url = fresh_postgres_url();
    let (store, other) = (store(&url).await, connect(&url).await);
    let (broken, sound) = (flow(FlowOptions::default()), flow(FlowOptions::default()));
    let late = flow(FlowOptions { finish_within_ms: Some(1), ..FlowOptions::default() });
    let ids = [broken.id, sound.id, late.id];
    for flow in [broken, sound, late] {
        let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
        assert!(store.start_flow(plan, Start::Now).await.unwrap());
    }
    let act = || FlowAct::Cancel { reason: "enough".into() };
    store.change_flow(ids[0], act()).await.unwrap();
    store.change_flow(ids[1], act()).await.unwrap();
    // A span that no time can be reckoned with, as a hand in the database might leave it.
    let spoil = "update tidemill.flow set retain_ms = 9223372036854775807 where id = $1";
    other.execute(spoil, &[&ids[0].0]).await.unwrap();
    other
        .execute("update tidemill.flow set expires_at = now() where within_ms = 1", &[])
        .await
        .unwrap();

    let fault = store.tend_flows().await.unwrap_err();
    assert!(fault.to_string().contains("out of range"), "{fault}");
    // What was called off in this round may be for the next to carry on.
    let _ = store.tend_flows().await;
    let state = async |id| store.flow(id).await.unwrap().unwrap().head.state;
    assert_ne!(state(ids[0]).await, FlowState::Cancelled);
    assert_eq!(state(ids[1]).await, FlowState::Cancelled);
    assert_eq!(state(ids[2]).await, FlowState::Cancelled);
}
