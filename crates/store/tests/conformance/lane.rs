//! What is before a job: counted as claims would take it, and no further than it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_core::gate::{Counts, Per};
use tidemill_core::why::{COUNTED_MAX, LaneView};
use tidemill_core::{Due, JobId, NewJob, Priority, QueueLimit};
use tidemill_store::ClaimRequest;

use super::kit::{HOUR, Kit, SECOND, ask, done, job, retry};

over_both_stores!(
    jobs_of_its_band_that_were_due_longer_are_before_it,
    other_bands_are_counted_as_far_as_they_are_due,
    tenants_stand_in_the_order_of_their_turns,
    what_a_gate_holds_is_in_nobodys_way_but_of_those_held_behind_it,
    a_retry_is_counted_where_it_waits_now,
    nothing_is_counted_further_than_the_bound,
    what_does_not_wait_has_no_place,
);

fn of(tenant: &str) -> NewJob {
    NewJob { tenant: Some(tenant.into()), ..job("k") }
}

fn many(new: &NewJob, number: usize) -> Vec<NewJob> {
    (0..number).map(|_| NewJob { id: JobId::new(), ..new.clone() }).collect()
}

async fn put_many(kit: &Kit, new: &NewJob, number: usize) -> Vec<JobId> {
    let jobs = many(new, number);
    let ids = jobs.iter().map(|job| job.id).collect();
    kit.store.enqueue(jobs).await.unwrap();
    ids
}

async fn lane(kit: &Kit, id: JobId) -> LaneView {
    kit.store.lane(id).await.unwrap().expect("it waits")
}

async fn jobs_of_its_band_that_were_due_longer_are_before_it(kit: &Kit) {
    let together = put_many(kit, &job("k"), 250).await;
    kit.clock.advance(SECOND);
    let last = kit.put(job("other")).await;
    put_many(kit, &job("k"), 3).await;
    for (at, id) in together.iter().enumerate().step_by(83) {
        assert_eq!(lane(kit, *id).await.ahead, at as u64);
    }
    let of_last = lane(kit, last).await;
    assert_eq!((of_last.ahead, of_last.ahead_of_tenant), (250, 250));
    assert!(of_last.others.is_empty() && of_last.turns == [""], "{of_last:?}");
    let worker = kit.worker().await;
    kit.take(worker, 120).await;
    assert_eq!(lane(kit, last).await.ahead, 130, "who runs is before nobody");
    assert_eq!(lane(kit, together[120]).await.ahead, 0);
}

async fn other_bands_are_counted_as_far_as_they_are_due(kit: &Kit) {
    let with = |priority| NewJob { priority, ..job("k") };
    let own = kit.put(with(Priority::Normal)).await;
    put_many(kit, &with(Priority::Urgent), 5).await;
    put_many(kit, &NewJob { priority: Priority::Urgent, ..of("a") }, 2).await;
    put_many(kit, &NewJob { due: Due::In(HOUR), ..with(Priority::High) }, 4).await;
    put_many(kit, &with(Priority::Low), 1).await;
    put_many(kit, &NewJob { queue: "elsewhere".into(), ..with(Priority::Urgent) }, 9).await;
    let found = lane(kit, own).await;
    assert_eq!(found.others, BTreeMap::from([(Priority::Urgent, 7), (Priority::Low, 1)]));
    assert_eq!(found.ahead, 0);
}

async fn tenants_stand_in_the_order_of_their_turns(kit: &Kit) {
    let worker = kit.worker().await;
    put_many(kit, &of("a"), 5).await;
    kit.take_one(worker).await;
    put_many(kit, &of("b"), 4).await;
    kit.clock.advance(SECOND);
    let own = kit.put(of("c")).await;
    put_many(kit, &job("k"), 4).await;
    put_many(kit, &NewJob { due: Due::In(HOUR), ..of("d") }, 4).await;
    let found = lane(kit, own).await;
    assert_eq!(found.turns, ["b", "c", "", "a"], "it goes on behind the last one");
    assert_eq!((found.ahead, found.ahead_of_tenant), (8, 0));
    let second = kit.take_one(worker).await;
    assert_eq!(second.jobs[0].job.tenant.as_deref(), Some("b"));
    assert_eq!(lane(kit, own).await.turns, ["c", "", "a", "b"]);
    let third = kit.take_one(worker).await;
    assert_eq!(third.jobs[0].job.id, own, "as was said");
}

fn one_of_each_key() -> Arc<Vec<QueueLimit>> {
    Arc::new(vec![QueueLimit {
        queue: "default".into(),
        gate: "*/one".into(),
        kind: None,
        counts: Counts::Per(Per::Key),
        concurrency: Some(1),
        rate: None,
        hold: false,
        breaker: None,
    }])
}

async fn what_a_gate_holds_is_in_nobodys_way_but_of_those_held_behind_it(kit: &Kit) {
    let worker = kit.worker().await;
    let keyed = NewJob { key: Some("x".into()), ..job("k") };
    let held = put_many(kit, &keyed, 6).await;
    let wish = ClaimRequest { limits: one_of_each_key(), ..ask(worker, "default", 10) };
    assert_eq!(kit.store.claim(wish).await.unwrap().jobs.len(), 1);
    kit.clock.advance(SECOND);
    let free = kit.put(job("k")).await;
    assert_eq!(
        lane(kit, free).await,
        LaneView { turns: vec![String::new()], ..LaneView::default() }
    );
    let waiting: Vec<_> = held.into_iter().skip(1).collect();
    for (at, id) in waiting.iter().enumerate() {
        let found = lane(kit, *id).await;
        assert_eq!((found.ahead, found.ahead_at_gate), (0, at as u64));
    }
}

async fn a_retry_is_counted_where_it_waits_now(kit: &Kit) {
    let worker = kit.worker().await;
    let first = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    kit.clock.advance(SECOND);
    let second = kit.put(job("k")).await;
    kit.settle(worker, &claim, retry(SECOND, 1)).await;
    kit.clock.advance(SECOND * 2);
    assert_eq!(lane(kit, first).await.ahead, 1);
    assert_eq!(lane(kit, second).await.ahead, 0);
}

async fn nothing_is_counted_further_than_the_bound(kit: &Kit) {
    let bound = COUNTED_MAX as usize;
    for part in [bound, 500] {
        put_many(kit, &job("k"), part).await;
        put_many(kit, &NewJob { priority: Priority::High, ..of("a") }, part).await;
    }
    kit.clock.advance(SECOND);
    let last = kit.put(job("k")).await;
    let found = lane(kit, last).await;
    assert_eq!((found.ahead, found.ahead_of_tenant), (COUNTED_MAX, COUNTED_MAX));
    assert_eq!(found.others, BTreeMap::from([(Priority::High, COUNTED_MAX)]));
}

async fn what_does_not_wait_has_no_place(kit: &Kit) {
    let worker = kit.worker().await;
    assert_eq!(kit.store.lane(JobId::new()).await.unwrap(), None);
    let id = kit.put(job("k")).await;
    let claim = kit.take_one(worker).await;
    assert_eq!(kit.store.lane(id).await.unwrap(), None, "it runs");
    kit.settle(worker, &claim, done()).await;
    assert_eq!(kit.store.lane(id).await.unwrap(), None, "it is done");
}
