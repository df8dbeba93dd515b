//! Watermarks: crossed once on the way up and once on the way down, whoever looks and however many do.

use std::time::Duration;

use tidemill_core::{NewJob, Overflow, QueueRules};
use tidemill_store::Hint;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;

use super::depth::depth;
use super::kit::{Kit, SECOND, ask, hears, job};
use super::plain_sql::run;

over_both_stores!(
    a_queue_is_above_from_high_to_low,
    each_crossing_is_told_once,
    a_neighbour_hears_of_a_crossing,
    rules_that_go_take_the_watermark_with_them,
    who_waits_for_room_is_told,
);

async fn marks(kit: &Kit, high: u64, low: u64) {
    let (high_water, low_water) = (Some(high), Some(low));
    let rules = QueueRules { high_water, low_water, ..QueueRules::default() };
    assert!(kit.store.set_queue("default", Some(rules)).await.unwrap());
}

async fn fill(kit: &Kit, jobs: usize) {
    kit.store.enqueue((0..jobs).map(|_| job("k")).collect()).await.unwrap();
}

async fn is_above(kit: &Kit) -> bool {
    depth(kit, "default").await.above_since.is_some()
}

fn crossings(heard: &mut Receiver<Hint>) -> usize {
    let mut count = 0;
    loop {
        match heard.try_recv() {
            Ok(Hint::Watermark { queue }) if queue == "default" => count += 1,
            Ok(_) => {}
            Err(TryRecvError::Empty) => return count,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn a_queue_is_above_from_high_to_low(kit: &Kit) {
    marks(kit, 4, 1).await;
    let worker = kit.worker().await;
    fill(kit, 3).await;
    assert!(!is_above(kit).await, "below high");
    fill(kit, 1).await;
    let since = kit.clock.now();
    assert_eq!(depth(kit, "default").await.above_since, Some(since));
    kit.clock.advance(SECOND);
    kit.take(worker, 2).await;
    assert_eq!(depth(kit, "default").await.above_since, Some(since), "between the two it stays");
    kit.take(worker, 1).await;
    assert!(!is_above(kit).await, "down at low");
    fill(kit, 2).await;
    assert!(!is_above(kit).await, "between the two it stays so too");
    let insert = "INSERT INTO tidemill_enqueue (kind) VALUES ('k')";
    run(kit, insert).await.unwrap();
    assert!(is_above(kit).await, "by plain SQL");
    let views = kit.store.queues().await.unwrap();
    assert!(views.iter().any(|queue| queue.name == "default" && queue.above_since.is_some()));
}

async fn each_crossing_is_told_once(kit: &Kit) {
    marks(kit, 5, 2).await;
    let mut heard = kit.store.wake().listen();
    let worker = kit.worker().await;
    for round in 0..3 {
        for _ in 0..8 {
            kit.put(job("k")).await;
            depth(kit, "default").await;
        }
        assert_eq!(crossings(&mut heard), 1, "up, round {round}");
        while !kit.take(worker, 1).await.jobs.is_empty() {
            depth(kit, "default").await;
        }
        assert_eq!(crossings(&mut heard), 1, "down, round {round}");
    }
}

async fn a_neighbour_hears_of_a_crossing(kit: &Kit) {
    marks(kit, 2, 1).await;
    let other = kit.neighbour().await;
    let mut heard = other.wake().listen();
    // SQLite tells its neighbours that something has changed; they look for themselves.
    let told = |hint: &Hint| matches!(hint, Hint::Watermark { .. } | Hint::Any);
    fill(kit, 2).await;
    depth(kit, "default").await;
    hears(&mut heard, told).await;
    let seen = other.depths(&["default".to_owned()]).await.unwrap().remove(0);
    assert!(seen.above_since.is_some());
    other.close().await;
}

async fn rules_that_go_take_the_watermark_with_them(kit: &Kit) {
    let rules =
        QueueRules { depth_max: Some(10), overflow: Overflow::Reject, ..QueueRules::default() };
    kit.store.set_queue("d*", Some(rules)).await.unwrap();
    fill(kit, 8).await;
    assert!(is_above(kit).await, "80 % of its bound");
    kit.store.set_queue("d*", None).await.unwrap();
    assert!(!is_above(kit).await);
}

async fn who_waits_for_room_is_told(kit: &Kit) {
    let mut heard = kit.store.wake().listen();
    let worker = kit.worker().await;
    kit.store.hint(Hint::Wanted { queue: "q".into() });
    let of = |queue: &str| NewJob { queue: queue.into(), ..job("k") };
    kit.store.enqueue(vec![of("p"), of("q"), of("q")]).await.unwrap();
    kit.store.claim(ask(worker, "p", 1)).await.unwrap();
    kit.store.claim(ask(worker, "q", 1)).await.unwrap();
    let room = |queue: &str| Hint::Room { queue: queue.into() };
    let listening = async {
        loop {
            let hint = heard.recv().await.unwrap();
            assert_ne!(hint, room("p"), "nobody waits for that");
            if hint == room("q") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), listening).await.expect("it is told");
}
