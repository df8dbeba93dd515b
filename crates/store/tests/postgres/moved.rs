//! A job that is moved from one sheaf to another: whoever waited for the first one finds it in the second, and it is in
//! one of them alone.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::Waits;
use tidemill_core::{Due, NewJob, Payload, Priority, Settlement};
use tidemill_store::run::{Room, Signal, SignalAnswer};
use tidemill_store::{ClaimRequest, Lane};
use tidemill_testkit::databases::fresh_postgres_url;

use super::deadlock::waiting;
use super::kit::{ask, connect, ids, items, job, store, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_signal_reaches_a_run_that_moves_to_another_band() {
    let url = fresh_postgres_url();
    let (store, looking) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let new = job();
    let id = new.id;
    store.enqueue(vec![new]).await.unwrap();
    let claim = store.claim(ask(mine, 1)).await.unwrap();
    let waits = Waits { until: None, mail_min: 1, what: vec!["signal x".to_owned()] };
    let wait = Settlement::Wait(Box::new(Waiting { waits, read: 0, spent: 0, parked: None }));
    store.settle(mine, items(&claim, &wait)).await.unwrap();
    let mut third = connect(&url).await;
    let moving = third.transaction().await.unwrap();
    let edit = "select tidemill.edit(j.id, 1::int2, j.payload, j.options) from tidemill.job j where j.id = $1";
    assert_eq!(moving.query(edit, &[&id.0]).await.unwrap().len(), 1);
    let signalling = {
        let store = Arc::clone(&store);
        let signal = Signal { to: id, name: "x".into(), payload: Payload::null(), id: None };
        tokio::spawn(
            async move { store.signal(None, vec![signal], Room::default()).await.unwrap() },
        )
    };
    waiting(&looking, 1).await;
    moving.commit().await.unwrap();
    assert_eq!(signalling.await.unwrap().1, [SignalAnswer::Kept]);
    let lanes = vec![Lane { queue: "default".into(), priority: Priority::High }];
    let claim = store.claim(ClaimRequest { lanes, ..ask(mine, 1) }).await.unwrap();
    assert_eq!(ids(&claim), [id], "it has mail, and waits no more");
}

/// A statement that has waited for a row computes anew what it sets; what it did for that is done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_whose_row_changes_meanwhile_is_moved_once() {
    let url = fresh_postgres_url();
    let (store, looking) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let due = Due::In(Duration::from_hours(1));
    let new = NewJob { due, ..job() };
    let id = new.id;
    store.enqueue(vec![new]).await.unwrap();
    let mut third = connect(&url).await;
    // As keys that are turned over.
    let changing = third.transaction().await.unwrap();
    let change = "update tidemill.job set payload = '1' where id = $1";
    assert_eq!(changing.execute(change, &[&id.0]).await.unwrap(), 1);
    let hastening = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.run_now(id).await.unwrap() })
    };
    waiting(&looking, 1).await;
    changing.commit().await.unwrap();
    assert!(hastening.await.unwrap());
    let claim = store.claim(ask(mine, 9)).await.unwrap();
    assert_eq!(ids(&claim), [id]);
}
