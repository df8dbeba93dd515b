//! Settles of one worker: a second one goes beside the first where much waits for it.

use std::sync::Arc;

use tidemill::{JobFilter, State};
use tidemill_testkit::eventually::eventually;
use tokio::sync::Semaphore;

use super::kit::{Echo, Kit, SOON};

#[tokio::test]
async fn what_has_another_lease_does_not_wait_for_a_settle_that_takes_its_time() {
    let kit = Kit::postgres();
    let mill = kit.open().await;
    let held = [Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0))];
    let let_go = held.clone();
    let echo = move |job: Echo, _cx| {
        let held = Arc::clone(&held[usize::from(job.text == "second")]);
        async move {
            held.acquire().await.expect("nobody closes it").forget();
            Ok(job.text)
        }
    };
    let running = mill.worker().slots(400).handle(echo).start().await.unwrap();
    let all = async |state, number| {
        eventually("so many", SOON, async || {
            let filter = JobFilter { state: Some(state), limit: 1000, ..JobFilter::default() };
            (mill.jobs(&filter).await.unwrap().len() >= number).then_some(())
        })
        .await;
    };
    mill.enqueue_many((0..120).map(|_| Echo::new("first"))).await.unwrap();
    all(State::Running, 120).await;
    let mut client = kit.client().await;
    // Their settle waits for these.
    let slow = client.transaction().await.unwrap();
    slow.execute("select from tidemill.lease for update", &[]).await.unwrap();
    mill.enqueue_many((0..150).map(|_| Echo::new("second"))).await.unwrap();
    all(State::Running, 270).await;
    let_go[0].add_permits(120);
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    let other = kit.client().await;
    eventually("the first settle to wait", SOON, async || {
        let waiting: i64 = other.query_one(waits, &[]).await.unwrap().get(0);
        (waiting == 1).then_some(())
    })
    .await;
    let_go[1].add_permits(150);
    all(State::Done, 100).await;
    let first = "select count(*) from tidemill.outcome o join tidemill.job j using (id)
        where j.payload ->> 'text' = 'first'";
    assert_eq!(other.query_one(first, &[]).await.unwrap().get::<_, i64>(0), 0);
    slow.rollback().await.unwrap();
    all(State::Done, 270).await;
    running.stop().await;
    mill.close().await;
}
