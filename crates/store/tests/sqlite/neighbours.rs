//! Two stores on one file, and another process: each sees what the other committed, and is woken by it.

use std::sync::Arc;

use tidemill_store::{Hint, Store};
use tokio::sync::broadcast::Receiver;

use super::kit::{Place, SOON, ask, job, worker};

/// Waits for the hint by which others are told of; without it a worker would have to look.
async fn woken(heard: &mut Receiver<Hint>) {
    let any = async { while heard.recv().await.unwrap() != Hint::Any {} };
    tokio::time::timeout(SOON, any).await.expect("a hint comes");
}

async fn pair(place: &Place) -> (Arc<dyn Store>, Arc<dyn Store>) {
    (place.store().await, place.store().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_store_enqueues_the_other_is_told_of_and_claims() {
    let place = Place::new();
    let (here, there) = pair(&place).await;
    let worker = worker(&there).await;
    for _ in 0..3 {
        let mut heard = there.wake().listen();
        let id = here.enqueue(vec![job()]).await.unwrap()[0].id();
        woken(&mut heard).await;
        let claim = there.claim(ask(worker, 9)).await.unwrap();
        assert_eq!(claim.jobs.len(), 1);
        assert_eq!(claim.jobs[0].job.id, id);
    }
    assert_eq!(here.unfinished().await.unwrap().running, 3, "the first sees what the other did");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_process_enqueues_a_store_is_told_of_and_claims() {
    let place = Place::new();
    let store = place.store().await;
    let worker = worker(&store).await;
    let mut heard = store.wake().listen();
    place.enqueue_elsewhere();
    woken(&mut heard).await;
    assert_eq!(store.claim(ask(worker, 9)).await.unwrap().jobs.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_two_stores_is_claimed_once() {
    let place = Place::new();
    let (here, there) = pair(&place).await;
    let (mine, theirs) = (worker(&here).await, worker(&there).await);
    here.enqueue((0..100).map(|_| job()).collect()).await.unwrap();
    let (mut seen, mut tokens) = (std::collections::BTreeSet::new(), Vec::new());
    while seen.len() < 100 {
        let (one, two) = tokio::join!(here.claim(ask(mine, 7)), there.claim(ask(theirs, 7)));
        for claim in [one.unwrap(), two.unwrap()] {
            tokens.extend(claim.token);
            for taken in claim.jobs {
                assert!(seen.insert(taken.job.id), "{} was claimed twice", taken.job.id);
            }
        }
    }
    let count = tokens.len();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), count, "no token was given twice");
}
