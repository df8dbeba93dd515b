//! What a store says of itself in numbers.

use tidemill_core::flow::FlowState;
use tidemill_core::{NewJob, OnDead, Options, Overflow};

use super::bounds::bound;
use super::flows::{start, step};
use super::kit::{Kit, SECOND, ask, dead, item, job};

over_both_stores!(
    what_came_and_went_is_counted_for_every_queue,
    what_ever_came_or_went_never_becomes_less,
    the_oldest_of_those_that_run_and_died_are_known,
    flows_are_counted_by_state,
    the_way_to_the_database_is_measured,
    the_database_has_figures,
);

async fn what_came_and_went_is_counted_for_every_queue(kit: &Kit) {
    assert!(kit.store.passed().await.unwrap().is_empty());
    let of = |queue: &str| NewJob { queue: queue.into(), ..job("k") };
    kit.store.enqueue(vec![of("a"), of("a"), of("b")]).await.unwrap();
    let worker = kit.worker().await;
    kit.store.claim(ask(worker, "a", 2)).await.unwrap();
    let passed = kit.store.passed().await.unwrap();
    let counts: Vec<_> =
        passed.iter().map(|seen| (&*seen.queue, seen.now.came, seen.now.went)).collect();
    assert_eq!(counts, [("a", 2, 2), ("b", 1, 0)], "also of one that is empty");
    // A minute later there is a sample of now to compare with.
    kit.store.depths(&[]).await.unwrap();
    kit.clock.advance(61 * SECOND);
    kit.store.enqueue(vec![of("a")]).await.unwrap();
    let passed = kit.store.passed().await.unwrap();
    let before = passed[0].before.expect("a sample was taken");
    assert_eq!((before.came, before.went, passed[0].now.came), (2, 2, 3));
}

async fn what_ever_came_or_went_never_becomes_less(kit: &Kit) {
    let ever = async || {
        let passed = kit.store.passed().await.unwrap().remove(0);
        (passed.now.came + passed.dropped, passed.now.went + passed.dropped)
    };
    bound(kit, "default", 5, Overflow::DropOldest).await;
    kit.store.enqueue((0..5).map(|_| job("k")).collect()).await.unwrap();
    assert_eq!(ever().await, (5, 0));
    kit.clock.advance(SECOND);
    bound(kit, "default", 2, Overflow::DropOldest).await;
    kit.put(job("k")).await;
    assert_eq!(ever().await, (6, 4), "four went to make room under the lower bound");
    kit.store.depths(&[]).await.unwrap();
    assert_eq!(ever().await, (6, 4), "also once it is written down");
    kit.store.set_queue("default", None).await.unwrap();
    let options = Options { ordered: Some(OnDead::Skip), ..Options::default() };
    let lined = || NewJob { key: Some("a".into()), options: options.clone(), ..job("k") };
    let jobs = [lined(), lined()];
    let behind = jobs[1].id;
    kit.store.enqueue(jobs.to_vec()).await.unwrap();
    assert_eq!(ever().await, (8, 4));
    kit.store.cancel(vec![behind], "no").await.unwrap();
    assert_eq!(ever().await, (8, 5), "one that waited behind another of its line left");
}

async fn the_oldest_of_those_that_run_and_died_are_known(kit: &Kit) {
    let start = kit.clock.now();
    kit.put(job("k")).await;
    kit.put(job("k")).await;
    kit.put(job("k")).await;
    let worker = kit.worker().await;
    let first = kit.store.claim(ask(worker, "default", 1)).await.unwrap();
    kit.clock.advance(SECOND);
    let second = kit.store.claim(ask(worker, "default", 2)).await.unwrap();
    let oldest = async || {
        let queue = kit.store.queues().await.unwrap().remove(0);
        (queue.oldest_running_at, queue.oldest_dead_at)
    };
    assert_eq!(oldest().await, (Some(start), None));
    kit.store.settle(worker, vec![item(&first, 0, dead("x"))]).await.unwrap();
    let died = kit.clock.now();
    assert_eq!(oldest().await, (Some(died), Some(died)));
    kit.clock.advance(SECOND);
    kit.store
        .settle(worker, vec![item(&second, 0, dead("x")), item(&second, 1, dead("x"))])
        .await
        .unwrap();
    assert_eq!(oldest().await, (None, Some(died)));
}

async fn flows_are_counted_by_state(kit: &Kit) {
    assert!(kit.store.count_flows().await.unwrap().is_empty());
    start(kit, vec![step("a", &[])]).await;
    start(kit, vec![step("a", &[])]).await;
    let counted = kit.store.count_flows().await.unwrap();
    assert_eq!(counted.len(), 1);
    let one = counted[0];
    assert_eq!((one.state, one.is_saga, one.flows), (FlowState::Running, false, 2));
}

async fn the_way_to_the_database_is_measured(kit: &Kit) {
    kit.put(job("k")).await;
    let way = kit.store.way();
    assert!(way.batches.iter().any(|(_, seen)| seen.count() > 0), "{way:?}");
    assert!(way.waits.iter().any(|(_, seen)| seen.count() > 0), "{way:?}");
    let is_sqlite = kit.store.backend() == "sqlite";
    assert_eq!(way.commits.is_some_and(|seen| seen.count() > 0), is_sqlite);
    assert_eq!(way.connections.is_empty(), is_sqlite);
}

async fn the_database_has_figures(kit: &Kit) {
    kit.put(job("k")).await;
    let figures = kit.store.figures().await.unwrap();
    let of = |name: &str| {
        let found = figures.iter().find(|figure| figure.name == name);
        found.unwrap_or_else(|| panic!("no {name} in {figures:?}")).value
    };
    if kit.store.backend() == "sqlite" {
        assert!(of("pages") > 10.0 && of("page_bytes") >= 4096.0 && of("wal_bytes") > 0.0);
        assert!(of("free_pages") >= 0.0);
    } else {
        assert!(of("wal_bytes_total") > 0.0 && of("database_bytes") > 0.0);
        assert!(of("oldest_transaction_seconds") >= 0.0);
        let tables = figures.iter().filter(|figure| figure.name == "dead_rows");
        assert_eq!(tables.count(), 6);
    }
}
