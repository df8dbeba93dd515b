//! Answers that get lost on the way: what was done is not done twice, and nothing is forgotten.

use std::sync::Arc;

use tidemill_core::{NewJob, OnDuplicate, Scope, State, UniqueKey};
use tidemill_store::run::{Append, RunWrites};
use tidemill_store::{CancelAnswer, Receipt, Settled, Store};
use tidemill_testkit::databases::fresh_postgres_url;
use tidemill_testkit::eventually::eventually;

use super::kit::{SOON, ask, done, ids, items, job, retry, store, worker};
use super::proxy::Proxy;

/// A store behind a wire that can lose an answer, and one beside it that hears everything.
async fn pair() -> (Proxy, Arc<dyn Store>, Arc<dyn Store>) {
    let url = fresh_postgres_url();
    let proxy = Proxy::start(&url).await;
    let lossy = store(proxy.url()).await;
    (proxy, lossy, store(&url).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_is_there_once() {
    let (proxy, lossy, store) = pair().await;
    for (size, lost) in [(1, "Writes one job"), (5, "Writes a batch"), (300, "Writes a batch")] {
        let jobs: Vec<_> = (0..size).map(|_| job()).collect();
        proxy.lose_answer_to(lost);
        let receipts = lossy.enqueue(jobs.clone()).await.unwrap();
        assert!(!proxy.is_armed(), "the answer was lost");
        assert!(receipts.iter().zip(&jobs).all(|(r, job)| *r == Receipt::Enqueued { id: job.id }));
    }
    assert_eq!(store.unfinished().await.unwrap().waiting, 306);
    let worker = worker(&store).await;
    assert_eq!(store.claim(ask(worker, 500)).await.unwrap().jobs.len(), 306);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_enqueue_with_a_key_is_no_duplicate_of_itself() {
    let (proxy, lossy, store) = pair().await;
    for on_duplicate in OnDuplicate::ALL {
        let key = format!("k={}", on_duplicate.word());
        let unique = UniqueKey {
            key,
            scope: Scope::Forever,
            on_duplicate,
            force: false,
            together: false,
            within: Vec::new(),
        };
        let job = NewJob { unique: Some(unique), ..job() };
        proxy.lose_answer_to("Writes a batch");
        let receipt = lossy.enqueue(vec![job.clone()]).await.unwrap()[0].clone();
        assert_eq!(receipt, Receipt::Enqueued { id: job.id }, "{on_duplicate:?}");
    }
    assert_eq!(store.unfinished().await.unwrap().waiting, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settle_is_accepted_once() {
    let (proxy, lossy, store) = pair().await;
    let worker = worker(&lossy).await;
    for (how, lost, state) in
        [(done(), "Settles attempts", State::Done), (retry(), "commit", State::Ready)]
    {
        let id = job().id;
        lossy.enqueue(vec![NewJob { id, ..job() }]).await.unwrap();
        let claim = lossy.claim(ask(worker, 1)).await.unwrap();
        proxy.lose_answer_to(lost);
        let answers = lossy.settle(worker, items(&claim, &how)).await.unwrap();
        assert!(!proxy.is_armed(), "the answer was lost");
        assert_eq!(answers, [Settled::Accepted]);
        assert_eq!(store.job(id).await.unwrap().unwrap().state, state);
    }
    let again = lossy.claim(ask(worker, 9)).await.unwrap();
    assert_eq!(again.jobs.len(), 1, "the retry waits once");
    assert_eq!(again.jobs[0].attempt, 2);
    assert_eq!(store.attempts(again.jobs[0].job.id).await.unwrap().len(), 1);
}

/// New entries are written by a statement that fails where one is there already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_is_in_its_journal_once_and_keeps_no_other_from_its_own() {
    let (proxy, lossy, store) = pair().await;
    let worker = worker(&lossy).await;
    lossy.enqueue((0..3).map(|_| job()).collect()).await.unwrap();
    let claim = lossy.claim(ask(worker, 3)).await.unwrap();
    let entry = |n: u32| (n, format!(r#"{{"woke":{{"key":"{n}"}}}}"#));
    let begins = Some("v1".to_owned());
    let write = |at: usize, numbers: &[u32]| {
        let entries = numbers.iter().map(|n| entry(*n)).collect();
        let writes = RunWrites { begins: begins.clone(), entries, ..RunWrites::default() };
        Append { job: claim.jobs[at].job.id, token: claim.token.unwrap(), writes }
    };
    proxy.lose_answer_to("Writes new entries");
    let writes = vec![write(0, &[0]), write(1, &[0, 1])];
    assert_eq!(lossy.append(worker, writes).await.unwrap(), [true, true]);
    assert!(!proxy.is_armed(), "the answer was lost");
    // One comes again, beside others that are new: in one call, and in calls that may share a commit.
    let again = vec![write(0, &[0, 1]), write(2, &[0])];
    assert_eq!(lossy.append(worker, again).await.unwrap(), [true, true]);
    let (one, other) = tokio::join!(
        lossy.append(worker, vec![write(1, &[1])]),
        lossy.append(worker, vec![write(2, &[1])])
    );
    assert_eq!((one.unwrap(), other.unwrap()), (vec![true], vec![true]));
    for taken in &claim.jobs {
        let (journal, run) = store.journal(taken.job.id).await.unwrap();
        let numbers: Vec<u32> = journal.iter().map(|row| row.number).collect();
        assert_eq!((numbers, run.unwrap().version.as_str()), (vec![0, 1], "v1"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_was_called_off_is_cancelled_for_both_tries() {
    let (proxy, lossy, store) = pair().await;
    let worker = worker(&lossy).await;
    lossy.enqueue(vec![job()]).await.unwrap();
    let claim = lossy.claim(ask(worker, 1)).await.unwrap();
    store.cancel(ids(&claim), "enough").await.unwrap();
    proxy.lose_answer_to("commit");
    let answers = lossy.settle(worker, items(&claim, &retry())).await.unwrap();
    assert_eq!(answers, [Settled::Cancelled]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_answers_what_it_did() {
    let (proxy, lossy, store) = pair().await;
    let jobs: Vec<_> = (0..3).map(|_| job()).collect();
    let sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    lossy.enqueue(jobs).await.unwrap();
    proxy.lose_answer_to("commit");
    let answers = lossy.cancel(sent[..2].to_vec(), "enough").await.unwrap();
    assert!(!proxy.is_armed(), "the answer was lost");
    assert_eq!(answers, [CancelAnswer::Cancelled; 2]);
    assert_eq!(store.unfinished().await.unwrap().waiting, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_claim_took_is_given_back_at_the_next_beat() {
    let (proxy, lossy, store) = pair().await;
    let (unlucky, other) = (worker(&lossy).await, worker(&store).await);
    let jobs: Vec<_> = (0..5).map(|_| job()).collect();
    let mut sent: Vec<_> = jobs.iter().map(|job| job.id).collect();
    sent.sort_unstable();
    store.enqueue(jobs).await.unwrap();

    proxy.lose_answer_to("Takes due jobs");
    let error = lossy.claim(ask(unlucky, 9)).await.map(|_| ()).unwrap_err();
    assert!(!proxy.is_armed(), "the answer was lost");
    assert!(error.is_unknown(), "{error:?}");
    assert_eq!(store.unfinished().await.unwrap().running, 5, "the server had done it");
    assert!(store.claim(ask(other, 9)).await.unwrap().jobs.is_empty(), "they have a lease");

    assert!(!lossy.beat(unlucky).await.unwrap().lost, "the worker lives, and keeps its place");
    let claim = eventually("the jobs to come back", SOON, async || {
        let claim = store.claim(ask(other, 9)).await.unwrap();
        (!claim.jobs.is_empty()).then_some(claim)
    })
    .await;
    let mut taken = ids(&claim);
    taken.sort_unstable();
    assert_eq!(taken, sent, "all of them, and each once");
    assert!(claim.jobs.iter().all(|taken| taken.attempt == 1 && taken.lost == 0), "unspent");
    assert!(lossy.claim(ask(unlucky, 9)).await.unwrap().jobs.is_empty());
}
