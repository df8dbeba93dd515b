//! Flows that are built in parts over the wire.

use tidemill::core::flow::FlowState;
use tidemill::{Enqueue, Flow, FlowFilter, FlowId};

use super::kit::Kit;

over_both_stores!(
    a_flow_of_any_size_is_started_and_goes_on_where_it_was_stopped,
    parts_are_added_once_and_nothing_starts_before_the_end,
    what_is_discarded_never_begins,
);

fn campaign(id: FlowId) -> Flow {
    Flow::new("campaign")
        .id(id)
        .fan_out("mail", Vec::<Enqueue>::new())
        .step("report", Enqueue::raw("report", "{}"))
        .after("mail")
}

fn mails(users: std::ops::Range<u32>) -> impl Iterator<Item = Enqueue> {
    users.map(|user| Enqueue::raw("mail", user.to_string()))
}

async fn a_flow_of_any_size_is_started_and_goes_on_where_it_was_stopped(kit: Kit) {
    let id = FlowId::new();
    // The first sender got so far: a part was added, and it died before it had the answer to the second.
    let building = kit.client.build(campaign(id)).await.unwrap();
    for (part, users) in [("1", 0..1000), ("2", 1000..2000)] {
        assert_eq!(building.add_once(part, "mail", mails(users)).await.unwrap(), 1000);
    }
    drop(building);
    for _ in 0..2 {
        let started = kit.client.start_with(campaign(id), "mail", mails(0..2345)).await.unwrap();
        assert_eq!(started, id);
        let head = kit.mill.flow(id).await.unwrap().unwrap().head;
        assert_eq!((head.state, head.jobs), (FlowState::Running, 2346));
    }
    let other = kit.client.start_with(campaign(id), "mail", mails(1..2345)).await.unwrap_err();
    assert_eq!(other.code(), "idempotency_key_reused", "other jobs are another flow");
    kit.close().await;
}

async fn parts_are_added_once_and_nothing_starts_before_the_end(kit: Kit) {
    let building = kit.client.build(campaign(FlowId::new())).await.unwrap();
    let id = building.id();
    for _ in 0..2 {
        assert_eq!(building.add_once("a", "mail", mails(0..10)).await.unwrap(), 10);
    }
    let error = building.add_once("a", "mail", mails(0..9)).await.unwrap_err();
    assert_eq!(error.code(), "idempotency_key_reused");
    let named: Vec<Enqueue> = mails(10..20).map(|job| job.id(tidemill::JobId::new())).collect();
    assert_eq!(building.add("mail", named.clone()).await.unwrap(), 10);
    assert_eq!(building.add("mail", named).await.unwrap(), 0, "each of them is there");
    let error = building.add_once("b", "nothing", mails(0..1)).await.unwrap_err();
    assert_eq!(error.code(), "step_unknown");
    let filter = FlowFilter { state: Some(FlowState::Building), ..FlowFilter::default() };
    assert_eq!(kit.client.flows(&filter).await.unwrap()[0].id, id);
    // Whoever takes over lets it begin, more than once if an answer was lost.
    for _ in 0..2 {
        assert_eq!(kit.client.building(id).begin().await.unwrap(), id);
    }
    let error = building.add_once("c", "mail", mails(0..1)).await.unwrap_err();
    assert_eq!(error.code(), "flow_not_now");
    let head = kit.mill.flow(id).await.unwrap().unwrap().head;
    assert_eq!((head.state, head.jobs), (FlowState::Running, 21));
    kit.close().await;
}

async fn what_is_discarded_never_begins(kit: Kit) {
    let building = kit.client.build(campaign(FlowId::new())).await.unwrap();
    let id = building.id();
    building.add_once("a", "mail", mails(0..10)).await.unwrap();
    assert_eq!(building.discard("not this year").await.unwrap(), 11);
    let error = kit.client.building(id).begin().await.unwrap_err();
    assert_eq!(error.code(), "flow_not_now");
    let error = kit.client.building(FlowId::new()).begin().await.unwrap_err();
    assert_eq!(error.code(), "flow_unknown");
    kit.close().await;
}
