//! Claims under a rate that has room: they go side by side, and what they take is taken from the rate at their end.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_core::gate::{Counts, Per, QueueLimit, Rate};
use tidemill_core::{NewJob, Priority, WorkerId};
use tidemill_store::{ClaimRequest, Lane};
use tidemill_testkit::databases::fresh_postgres_url;

use super::deadlock::{count, deadlocks, waiting};
use super::kit::{SOON, ask, connect, job, store, worker};

const GATE: &str = "default/\u{1c}pace";
const TENANT: &str = "default/\u{1c}pace\u{1f}a";

/// So many at once, and then one an hour.
fn pace(per: Per, burst: u32) -> QueueLimit {
    QueueLimit {
        queue: "default".into(),
        gate: GATE.into(),
        kind: None,
        counts: Counts::Per(per),
        concurrency: None,
        rate: Some(Rate { jobs: 1, per_ms: 3_600_000, burst }),
        hold: false,
        breaker: None,
    }
}

fn wish(worker: WorkerId, limit: &QueueLimit, jobs_max: usize) -> ClaimRequest {
    ClaimRequest { limits: Arc::new(vec![limit.clone()]), ..ask(worker, jobs_max) }
}

fn of_tenant() -> NewJob {
    NewJob { tenant: Some("a".into()), ..job() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_of_a_rate_that_has_room_wait_for_none_beside_them() {
    for (per, gate) in [(Per::All, GATE), (Per::Tenant, TENANT)] {
        let url = fresh_postgres_url();
        let store = store(&url).await;
        let (mine, limit) = (worker(&store).await, pace(per, 5));
        store.enqueue((0..8).map(|_| of_tenant()).collect()).await.unwrap();
        let (mut third, looking) = (connect(&url).await, connect(&url).await);
        // As another claim does that has not come to its end.
        let claiming = third.transaction().await.unwrap();
        let turn = "select tidemill.take_turns('{}', array[$1::text])";
        claiming.execute(turn, &[&GATE]).await.unwrap();
        let beside = tokio::time::timeout(SOON, store.claim(wish(mine, &limit, 3))).await;
        let claim = beside.expect("a claim that waits for nobody").unwrap();
        assert_eq!(claim.jobs.len(), 3);
        assert!(claim.jobs.iter().all(|taken| taken.gates.iter().any(|name| &**name == gate)));
        let ahead = "select round(extract(epoch from tat - now()) / 3600)::int8 from tidemill.gate";
        assert_eq!(count(&looking, ahead).await, 3, "its cells are taken");
        // What is left is less than it asks for, or than it finds: that is judged, in turn.
        let rest = tokio::spawn(async move { store.claim(wish(mine, &limit, 5)).await.unwrap() });
        waiting(&looking, 1).await;
        claiming.commit().await.unwrap();
        assert_eq!(rest.await.unwrap().jobs.len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_others_take_of_a_rate_meanwhile_is_not_taken_twice() {
    for (per, gate) in [(Per::All, GATE), (Per::Tenant, TENANT)] {
        let url = fresh_postgres_url();
        let store = store(&url).await;
        let (mine, limit) = (worker(&store).await, pace(per, 5));
        store.enqueue((0..8).map(|_| of_tenant()).collect()).await.unwrap();
        let (mut third, looking) = (connect(&url).await, connect(&url).await);
        // As another claim does that comes to its end first, with three of five.
        let claiming = third.transaction().await.unwrap();
        let turn = "select tidemill.take_turns('{}', array[$1::text])";
        claiming.execute(turn, &[&GATE]).await.unwrap();
        let charge = "insert into tidemill.gate (name, base, tat)
            values ($1, $2, now() + interval '3 hours')";
        claiming.execute(charge, &[&gate, &GATE]).await.unwrap();
        let wish = wish(mine, &limit, 5);
        let (claimed, again) = (Arc::clone(&store), wish.clone());
        let claimed = tokio::spawn(async move { claimed.claim(wish).await.unwrap() });
        waiting(&looking, 1).await;
        claiming.commit().await.unwrap();
        assert_eq!(claimed.await.unwrap().jobs.len(), 2, "what the other has left");
        assert_eq!(count(&looking, "select count(*) from tidemill.lease").await, 1);
        let waits = "select sum(cardinality(ids) - taken)::int8 from tidemill.ready";
        assert_eq!(count(&looking, waits).await, 6, "the others wait as before");
        let none = store.claim(again).await.unwrap();
        assert!(none.jobs.is_empty() && none.next_due.is_some(), "until the next cell is free");
    }
}

/// Many claims at once, of lanes in any order, under two rates: each is kept to the last cell, and nobody waits for
/// somebody who waits for him.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rates_are_kept_by_claims_side_by_side() {
    const CLAIMERS: usize = 6;
    const TENANTS: usize = 8;
    let url = fresh_postgres_url();
    let store = store(&url).await;
    let bands = [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low];
    let limits = Arc::new(vec![
        pace(Per::Tenant, 9),
        QueueLimit { gate: "default/\u{1c}all".into(), ..pace(Per::All, 60) },
    ]);
    let jobs = (0..400).map(|n| NewJob {
        tenant: Some(format!("t{}", n % TENANTS)),
        priority: bands[n / TENANTS % bands.len()],
        ..job()
    });
    store.enqueue(jobs.collect()).await.unwrap();
    let claimers = (0..CLAIMERS).map(|first| {
        let (store, limits) = (Arc::clone(&store), Arc::clone(&limits));
        tokio::spawn(async move {
            let mine = worker(&store).await;
            let lane = |priority| Lane { queue: "default".into(), priority };
            let mut lanes: Vec<Lane> = bands.into_iter().map(lane).collect();
            lanes.rotate_left(first % bands.len());
            let mut taken = Vec::new();
            // A claim may pass by what is in other hands; then it says when to ask again.
            for _ in 0..40 {
                let wish = ClaimRequest {
                    lanes: lanes.clone(),
                    limits: Arc::clone(&limits),
                    ..ask(mine, 5)
                };
                taken.extend(store.claim(wish).await.unwrap().jobs);
            }
            taken
        })
    });
    let claimers: Vec<_> = claimers.collect();
    let mut by_tenant = BTreeMap::new();
    for claimer in claimers {
        for taken in claimer.await.unwrap() {
            *by_tenant.entry(taken.job.tenant.clone()).or_insert(0) += 1;
        }
    }
    assert!(by_tenant.values().all(|taken| *taken <= 9), "{by_tenant:?}");
    assert_eq!(by_tenant.values().sum::<u32>(), 60, "{by_tenant:?}");
    drop(store);
    assert_eq!(deadlocks(&connect(&url).await).await, 0);
}
