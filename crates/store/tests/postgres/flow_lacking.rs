//! A flow for which the server lacks something holds up no other.

use std::time::Instant;

use tidemill_core::flow::{Flow, FlowOptions, FlowState, Step, Work};
use tidemill_core::retention::Retention;
use tidemill_core::{FlowId, Limits, NewJob, Payload};
use tidemill_store::flow::{FlowAct, Start};
use tidemill_testkit::databases::fresh_postgres_url;

use super::kit::{SOON, connect, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_for_which_something_is_lacking_holds_up_no_other() {
    let url = fresh_postgres_url();
    let (store, other) = (store(&url).await, connect(&url).await);
    let mut flows = Vec::new();
    for _ in 0..2 {
        let work = Work::Jobs(vec![NewJob::new("a", Payload::null())]);
        let options = FlowOptions::default();
        let steps = vec![Step::new("a", work)];
        let flow = Flow { id: FlowId::new(), name: "one".into(), steps, options };
        let plan = flow.plan(&Limits::default(), Retention::default()).unwrap();
        flows.push(plan.id);
        assert!(store.start_flow(plan, Start::Now).await.unwrap());
        let act = FlowAct::Cancel { reason: "enough".into() };
        store.change_flow(*flows.last().unwrap(), act).await.unwrap();
    }
    let lack = format!(
        "create function lack() returns trigger language plpgsql as
            $$ begin raise 'a limit is reached' using errcode = '53400'; end $$;
        create trigger lack before update on tidemill.flow_step
            for each row when (new.flow = '{}') execute function lack()",
        flows[0]
    );
    other.batch_execute(&lack).await.unwrap();
    let begun = Instant::now();
    let fault = loop {
        match store.tend_flows().await {
            Ok(has_more) => assert!(has_more, "what cannot be done is told"),
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.code(), "store_unavailable", "{fault}");
    assert!(begun.elapsed() < SOON, "it is tried again in a second anyway");
    let state = async |id| store.flow(id).await.unwrap().unwrap().head.state;
    assert_eq!(state(flows[0]).await, FlowState::Cancelling);
    assert_eq!(state(flows[1]).await, FlowState::Cancelled);
}
