//! Races between row locks: whoever comes second must see what the first one did.

use std::collections::HashSet;
use std::sync::Arc;

use tidemill_core::{ErrorClass, Failure, JobId, Settlement, State, WorkerId};
use tidemill_store::request::RescueRules;
use tidemill_store::{CancelAnswer, Settled, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::kit::{SOON, ask, connect, done, ids, items, job, retry, store, worker};

/// Claims and settles until a claim is empty; answers what was claimed, in all rounds.
async fn drain(store: Arc<dyn Store>, size: usize) -> Vec<JobId> {
    let worker = worker(&store).await;
    let mut taken = Vec::new();
    loop {
        let claim = store.claim(ask(worker, size)).await.unwrap();
        if claim.jobs.is_empty() {
            return taken;
        }
        taken.extend(ids(&claim));
        let answers = store.settle(worker, items(&claim, &done())).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Settled::Accepted));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_is_cancelled_or_claimed_and_never_both() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    for _ in 0..5 {
        let jobs: Vec<_> = (0..300).map(|_| job()).collect();
        let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
        one.enqueue(jobs).await.unwrap();
        let claimers: Vec<_> = [(&one, 7), (&two, 13)]
            .map(|(s, size)| tokio::spawn(drain(Arc::clone(s), size)))
            .into();
        let mut cancelled = HashSet::new();
        for part in sent.chunks(11) {
            let answers = two.cancel(part.to_vec(), "enough").await.unwrap();
            for (id, answer) in part.iter().zip(answers) {
                if answer == CancelAnswer::Cancelled {
                    cancelled.insert(*id);
                }
            }
        }
        let mut taken = drain(Arc::clone(&one), 50).await;
        for claimer in claimers {
            taken.extend(claimer.await.unwrap());
        }
        taken.extend(drain(Arc::clone(&one), 50).await);
        assert_eq!(taken.len() + cancelled.len(), sent.len());
        assert!(taken.iter().all(|id| !cancelled.contains(id)), "no attempt of it starts");
    }
    assert_eq!(one.unfinished().await.unwrap(), tidemill_store::view::Unfinished::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_settle_and_a_rescue_at_once_run_no_job_twice() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    let at_once =
        RescueRules { lease_ttl: std::time::Duration::ZERO, clear_for: None, lost_max: 100 };
    for _ in 0..30 {
        let jobs: Vec<_> = (0..40).map(|_| job()).collect();
        let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
        one.enqueue(jobs).await.unwrap();
        let zombie = worker(&one).await;
        let claim = one.claim(ask(zombie, 40)).await.unwrap();
        let settle = |how| one.settle(zombie, items(&claim, how));
        let (how_done, how_again) = (done(), retry());
        let how = if claim.jobs.len() % 2 == 0 { &how_done } else { &how_again };
        let (settled, rescued) = tokio::join!(settle(how), two.rescue(at_once));
        let accepted = settled.unwrap().iter().filter(|a| **a == Settled::Accepted).count();
        assert_eq!(accepted as u64 + rescued.unwrap().ready, 40, "each has one way");
        drain(Arc::clone(&two), 100).await;
        for id in sent {
            assert_eq!(two.job(id).await.unwrap().unwrap().state, State::Done);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_given_up_while_it_claims_leaves_no_job_behind() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    for _ in 0..30 {
        one.enqueue((0..20).map(|_| job()).collect()).await.unwrap();
        let leaving = worker(&one).await;
        let (claim, left) = tokio::join!(one.claim(ask(leaving, 20)), two.deregister(leaving));
        assert!(left.unwrap().ready == claim.unwrap().jobs.len() as u64 || nobody(&two).await);
        drain(Arc::clone(&two), 50).await;
        let left = two.unfinished().await.unwrap();
        assert_eq!(left, tidemill_store::view::Unfinished::default());
    }
}

async fn nobody(store: &Arc<dyn Store>) -> bool {
    let known: Vec<WorkerId> = store.workers().await.unwrap().iter().map(|w| w.id).collect();
    known.is_empty() || store.unfinished().await.unwrap().running == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parts_of_one_lease_settled_at_once_are_all_accepted() {
    let url = fresh_postgres_url();
    let (one, two) = (store(&url).await, store(&url).await);
    for _ in 0..20 {
        one.enqueue((0..60).map(|_| job()).collect()).await.unwrap();
        let mine = worker(&one).await;
        let claim = one.claim(ask(mine, 60)).await.unwrap();
        let all = items(&claim, &done());
        // Some go through another process, which knows nothing of this lease.
        let parts: Vec<_> = all
            .chunks(7)
            .enumerate()
            .map(|(at, part)| {
                let (store, part) =
                    (Arc::clone(if at % 3 == 0 { &two } else { &one }), part.to_vec());
                tokio::spawn(async move { store.settle(mine, part).await.unwrap() })
            })
            .collect();
        for part in parts {
            let answers = part.await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Settled::Accepted), "{answers:?}");
        }
        assert_eq!(one.unfinished().await.unwrap().running, 0);
        assert_eq!(one.deregister(mine).await.unwrap().ready, 0);
    }
}

/// What a purge does to a dead job whose unique key is still held, in a transaction that has not ended.
const STRIP: &str = "
    begin;
    select from tidemill.outcome for update;
    update tidemill.outcome set bare = true;
    update tidemill.job set payload = 'null', options = null;
    delete from tidemill.dead";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_of_which_only_the_result_is_left_is_not_sent_again() {
    let url = fresh_postgres_url();
    let (store, client, other) = (store(&url).await, connect(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let sent = job();
    let id = sent.id;
    store.enqueue(vec![sent]).await.unwrap();
    let claim = store.claim(ask(mine, 1)).await.unwrap();
    let failure = Failure::new("k", ErrorClass::Permanent, "no");
    store.settle(mine, items(&claim, &Settlement::Dead { failure })).await.unwrap();
    client.batch_execute(STRIP).await.unwrap();
    let replay = tokio::spawn(async move { store.dead_replay(&[id], "op".into(), None).await });
    eventually("the replay to wait for the purge", SOON, async || {
        let waits = "select from pg_stat_activity where wait_event_type = 'Lock'";
        let rows = other.query(waits, &[]).await.unwrap();
        (!rows.is_empty()).then_some(())
    })
    .await;
    client.batch_execute("commit").await.unwrap();
    assert!(replay.await.unwrap().unwrap().is_empty(), "it has no payload any more");
}
