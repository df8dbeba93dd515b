//! A server that goes away and comes back: the store says so, and recovers by itself.

use tidemill_core::JobId;
use tidemill_store::Hint;
use tidemill_testkit::Cluster;
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::kit::{SOON, ask, ids, job, store, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_recovers_by_itself_after_a_crash_of_the_server() {
    let mut cluster = tokio::task::spawn_blocking(|| Cluster::start().unwrap()).await.unwrap();
    let (store, other) =
        (store(&cluster.url("postgres")).await, store(&cluster.url("postgres")).await);
    let worker = worker(&store).await;
    let kept = job().id;
    store.enqueue(vec![tidemill_core::NewJob { id: kept, ..job() }]).await.unwrap();
    assert!(!store.beat(worker).await.unwrap().lost);

    cluster.kill_9().unwrap();
    let error = store.enqueue(vec![job()]).await.map(|_| ()).unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    assert!(store.beat(worker).await.is_err());
    cluster.restart().unwrap();

    let claim = eventually("a claim after the restart", SOON, async || {
        store.claim(ask(worker, 9)).await.ok()
    });
    let claimed: Vec<JobId> = ids(&claim.await);
    assert!(claimed.contains(&kept), "what was acknowledged is there");
    assert!(!store.beat(worker).await.unwrap().lost);
    let mut heard = other.wake().listen();
    eventually("a hint from another process", SOON, async || {
        store.hint(Hint::Ready { queue: "again".into() });
        let hint = tokio::time::timeout(std::time::Duration::from_millis(50), heard.recv()).await;
        matches!(hint, Ok(Ok(Hint::Ready { queue })) if queue == "again").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_tells_at_its_end_is_heard() {
    let url = fresh_postgres_url();
    let other = store(&url).await;
    let mut heard = other.wake().listen();
    // Until it listens, it can hear nothing.
    eventually("a last hint of another process", SOON, async || {
        let short_lived = store(&url).await;
        short_lived.hint(Hint::Ready { queue: "at last".into() });
        short_lived.close().await;
        while let Ok(hint) = heard.try_recv() {
            if matches!(hint, Hint::Ready { queue } if queue == "at last") {
                return Some(());
            }
        }
        None
    })
    .await;
}
