//! Claims of one limit side by side: nobody waits at a gate, nobody gets in twice, and nobody is forgotten there.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tidemill_core::gate::{Counts, Per, QueueLimit};
use tidemill_core::{NewJob, Priority, WorkerId};
use tidemill_store::{Claim, ClaimRequest, Lane, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;
use tokio_postgres::Client;

use super::deadlock::{count, deadlocks, waiting};
use super::kit::{SOON, ask, connect, done, ids, items, job, store, worker};

fn of_key(key: &str) -> NewJob {
    NewJob { key: Some(key.into()), ..job() }
}

/// One of each key at a time.
fn one_of_each() -> Arc<Vec<QueueLimit>> {
    Arc::new(vec![QueueLimit {
        queue: "default".into(),
        gate: "default/\u{1c}key".into(),
        kind: None,
        counts: Counts::Per(Per::Key),
        concurrency: Some(1),
        rate: None,
        hold: false,
        breaker: None,
    }])
}

fn wish(worker: WorkerId, jobs_max: usize) -> ClaimRequest {
    ClaimRequest { limits: one_of_each(), ..ask(worker, jobs_max) }
}

/// Takes the one job that is left; fails if nobody lets it through.
async fn take_last(store: &Arc<dyn Store>, worker: WorkerId) -> Claim {
    eventually("the last job", SOON, async || {
        let claim = store.claim(wish(worker, 5)).await.unwrap();
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await
}

/// Waits until the look that follows a settle is over.
async fn looked(client: &Client) {
    const LOOKED: &str = "select count(*) from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and state = 'idle' and query like '%tidemill.come_out(%'";
    eventually("the look after the settle", SOON, async || {
        (count(client, LOOKED).await == 1).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_is_held_while_the_one_inside_leaves_is_not_forgotten() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let (mine, other) = (worker(&one).await, worker(&two).await);
    let last = of_key("a");
    let held = last.id;
    one.enqueue(vec![of_key("a")]).await.unwrap();
    let first = one.claim(wish(mine, 1)).await.unwrap();
    one.enqueue(vec![last, of_key("b")]).await.unwrap();
    // Deltas are counted when the gates were looked at, and before those are held who did not pass.
    let mut third = connect(&url).await;
    let holding = third.transaction().await.unwrap();
    holding.batch_execute("lock table tidemill.depth_delta in share mode").await.unwrap();
    let claiming = {
        let two = Arc::clone(&two);
        tokio::spawn(async move { two.claim(wish(other, 5)).await.unwrap() })
    };
    let looking = connect(&url).await;
    waiting(&looking, 1).await;
    one.settle(mine, items(&first, &done())).await.unwrap();
    looked(&looking).await;
    holding.rollback().await.unwrap();
    let second = claiming.await.unwrap();
    assert_eq!(second.jobs[0].job.key.as_deref(), Some("b"));
    assert_eq!(second.jobs.len(), 1, "the other was held, because of one who had left");
    assert_eq!(ids(&take_last(&two, other).await), [held]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gates_in_other_hands_are_passed_over_and_asked_for_again() {
    let url = fresh_postgres_url();
    let (store, mut third) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let (keyed, free) = (of_key("a"), job());
    let (held, taken) = (keyed.id, free.id);
    store.enqueue(vec![keyed, free]).await.unwrap();
    let holding = third.transaction().await.unwrap();
    holding.execute("select from tidemill.turn for update", &[]).await.unwrap();
    let first = store.claim(wish(mine, 5)).await.unwrap();
    assert_eq!(ids(&first), [taken], "it has no key, and needs no turn");
    assert!(first.next_due.is_some_and(|at| at <= first.now), "ask again at once");
    let second = store.claim(wish(mine, 5)).await.unwrap();
    assert!(second.jobs.is_empty(), "nobody is waited for");
    assert!(second.next_due.is_some(), "ask again soon");
    holding.rollback().await.unwrap();
    assert_eq!(ids(&take_last(&store, mine).await), [held]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_gate_that_somebody_else_looks_at_is_asked_for_again_at_once() {
    const OPENED: &str = "select count(*) from tidemill.gate where opens_at is not null";
    let url = fresh_postgres_url();
    let (store, mut third) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    store.enqueue(vec![of_key("a"), of_key("a")]).await.unwrap();
    let first = store.claim(wish(mine, 5)).await.unwrap();
    assert_eq!(first.jobs.len(), 1, "the other is held");
    store.settle(mine, items(&first, &done())).await.unwrap();
    eventually("the look after the settle", SOON, async || {
        (count(&third, OPENED).await == 1).then_some(())
    })
    .await;
    // As whoever looks back for a claim of before.
    let holding = third.transaction().await.unwrap();
    holding.execute("select from tidemill.gate for update", &[]).await.unwrap();
    let second = store.claim(wish(mine, 5)).await.unwrap();
    assert!(second.jobs.is_empty(), "nobody is waited for");
    assert!(second.next_due.is_some_and(|at| at <= second.now), "ask again at once");
    holding.rollback().await.unwrap();
    assert_eq!(take_last(&store, mine).await.jobs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_that_has_not_committed_keeps_others_from_its_keys() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let (mine, other) = (worker(&one).await, worker(&two).await);
    // In sheaves of their own.
    for key in ["a", "a", "b"] {
        one.enqueue(vec![of_key(key)]).await.unwrap();
    }
    let mut third = connect(&url).await;
    let holding = third.transaction().await.unwrap();
    // Its lease is the last that a claim writes.
    holding.batch_execute("lock table tidemill.lease in share mode").await.unwrap();
    let claiming = {
        let one = Arc::clone(&one);
        tokio::spawn(async move { one.claim(wish(mine, 1)).await.unwrap() })
    };
    let looking = connect(&url).await;
    waiting(&looking, 1).await;
    let overtaking = {
        let two = Arc::clone(&two);
        tokio::spawn(async move { two.claim(wish(other, 5)).await.unwrap() })
    };
    waiting(&looking, 2).await;
    holding.rollback().await.unwrap();
    let (first, second) = (claiming.await.unwrap(), overtaking.await.unwrap());
    let key =
        |claim: &Claim| claim.jobs.iter().map(|taken| taken.job.key.clone()).collect::<Vec<_>>();
    assert_eq!(key(&first), [Some("a".to_owned())]);
    assert_eq!(key(&second), [Some("b".to_owned())], "it went by the other job of the key a");
    one.settle(mine, items(&first, &done())).await.unwrap();
    assert_eq!(key(&take_last(&two, other).await), [Some("a".to_owned())]);
}

/// Claims from one band and then the other, and settles, until all is done; asserts that it is alone.
async fn drain(store: Arc<dyn Store>, bands: [Priority; 2], inside: Arc<Mutex<BTreeSet<String>>>) {
    let mine = worker(&store).await;
    let lanes = bands.map(|priority| Lane { queue: "default".into(), priority });
    while store.unfinished().await.unwrap() != tidemill_store::view::Unfinished::default() {
        let wish = ClaimRequest { lanes: lanes.to_vec(), ..wish(mine, 50) };
        let claim = store.claim(wish).await.unwrap();
        let keys = || claim.jobs.iter().filter_map(|taken| taken.job.key.clone());
        for key in keys() {
            assert!(inside.lock().unwrap().insert(key), "somebody else has this key");
        }
        if claim.jobs.is_empty() {
            continue;
        }
        inside.lock().unwrap().retain(|inside| keys().all(|key| key != *inside));
        store.settle(mine, items(&claim, &done())).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_of_the_same_keys_in_opposite_order_meet_without_a_deadlock() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let looking = connect(&url).await;
    let in_band = |priority, key: usize| NewJob { priority, ..of_key(&format!("key {key}")) };
    for _ in 0..10 {
        let up = (0..40).map(|n| in_band(Priority::Normal, n % 20));
        let down = (0..40).map(|n| in_band(Priority::Low, 19 - n % 20));
        one.enqueue(up.chain(down).collect()).await.unwrap();
        let inside = Arc::new(Mutex::new(BTreeSet::new()));
        let (first, second) = (Priority::Normal, Priority::Low);
        tokio::join!(
            drain(Arc::clone(&one), [first, second], Arc::clone(&inside)),
            drain(Arc::clone(&two), [second, first], Arc::clone(&inside)),
        );
    }
    one.close().await;
    two.close().await;
    assert_eq!(deadlocks(&looking).await, 0);
}
