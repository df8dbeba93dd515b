//! Poolers: one in transaction mode is recognised, and every verb works through it.

use tidemill_core::{NewJob, OnDuplicate, Scope, Settlement, UniqueKey};
use tidemill_store::{CancelAnswer, Settled};
use tidemill_testkit::Pgbouncer;
use tidemill_testkit::databases::fresh_postgres_url;

use super::kit::{ask, done, ids, items, job, retry, store, worker};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_in_transaction_mode_is_recognised() {
    let url = fresh_postgres_url();
    let bouncer = Pgbouncer::start(&url).unwrap();
    let through = bouncer.through(&url).unwrap();
    for (url, is_pooled) in [(&url, false), (&through, true)] {
        let store = store(url).await;
        let findings = store.examine().await.unwrap();
        let hints = findings.iter().find(|finding| finding.what == "hints").unwrap();
        assert_eq!(hints.found.contains("pooler"), is_pooled, "{hints:?}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_verb_works_through_a_pooler_by_two_stores_at_once() {
    let url = fresh_postgres_url();
    let bouncer = Pgbouncer::start(&url).unwrap();
    let through = bouncer.through(&url).unwrap();
    let (one, two) = (store(&through).await, store(&through).await);
    for (store, other) in [(&one, &two), (&two, &one)].repeat(5) {
        let worker = worker(store).await;
        let unique = UniqueKey {
            key: "k=1".into(),
            scope: Scope::Unfinished,
            on_duplicate: OnDuplicate::Join,
            force: false,
            together: false,
            within: Vec::new(),
        };
        let keyed = NewJob { unique: Some(unique), ..job() };
        other.enqueue(vec![job(), job(), keyed]).await.unwrap();
        let claim = store.claim(ask(worker, 9)).await.unwrap();
        assert_eq!(claim.jobs.len(), 3);
        assert!(!store.beat(worker).await.unwrap().lost);
        let mut settling = items(&claim, &done());
        settling[0].settlement = retry();
        let answers = store.settle(worker, settling).await.unwrap();
        assert_eq!(answers, [Settled::Accepted; 3]);
        let again = ids(&claim)[..1].to_vec();
        let called_off = other.cancel(again, "enough").await.unwrap();
        assert_eq!(called_off, [CancelAnswer::Cancelled]);
        other.enqueue(vec![job()]).await.unwrap();
        let last = store.claim(ask(worker, 9)).await.unwrap();
        let follow_ups = vec![job()];
        let how = Settlement::Done { output: tidemill_core::Payload::null(), follow_ups };
        store.settle(worker, items(&last, &how)).await.unwrap();
        let next = other.jobs(&tidemill_store::JobFilter::default()).await.unwrap().jobs[0].job.id;
        other.cancel(vec![next], "enough").await.unwrap();
        assert_eq!(store.deregister(worker).await.unwrap().ready, 0);
        assert_eq!(store.unfinished().await.unwrap().waiting, 0);
    }
}
