//! A run that continues anew begins with an empty journal, whatever its last turn had still to write.

use std::sync::Arc;

use tidemill_core::{Payload, Settlement};
use tidemill_store::run::{Append, Renewal, RunWrites};
use tidemill_testkit::databases::fresh_postgres_url;

use super::deadlock::waiting;
use super::kit::{ask, connect, items, job, store, worker};

fn entry(number: u32) -> RunWrites {
    let entries = vec![(number, format!(r#"{{"woke":{{"key":"{number}"}}}}"#))];
    RunWrites { entries, ..RunWrites::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_the_last_turn_writes_too_late_is_not_in_the_next_one() {
    let url = fresh_postgres_url();
    let (store, looking) = (store(&url).await, connect(&url).await);
    let mine = worker(&store).await;
    let new = job();
    let id = new.id;
    store.enqueue(vec![new]).await.unwrap();
    let claim = store.claim(ask(mine, 1)).await.unwrap();
    let token = claim.token.unwrap();
    let begins = RunWrites { begins: Some("v1".to_owned()), ..entry(0) };
    let append = |writes| vec![Append { job: id, token, writes }];
    assert_eq!(store.append(mine, append(begins)).await.unwrap(), [true]);
    // The renewal has emptied the journal, and waits to put the job back.
    let mut third = connect(&url).await;
    let holding = third.transaction().await.unwrap();
    holding.batch_execute("lock table tidemill.ready in share mode").await.unwrap();
    let renewal = Renewal { payload: Payload::null(), version: "v2".to_owned(), taken: Vec::new() };
    let again = Settlement::Again { delay: std::time::Duration::ZERO, spent: 0, failure: None };
    let mut ended = items(&claim, &again);
    ended[0].run = Some(Box::new(RunWrites { renewal: Some(renewal), ..RunWrites::default() }));
    let renewing = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.settle(mine, ended).await.unwrap() })
    };
    waiting(&looking, 1).await;
    let late = {
        let (store, late) = (Arc::clone(&store), append(entry(1)));
        tokio::spawn(async move { store.append(mine, late).await.unwrap() })
    };
    waiting(&looking, 2).await;
    holding.rollback().await.unwrap();
    renewing.await.unwrap();
    assert_eq!(late.await.unwrap(), [false], "its turn is over");
    let (journal, run) = store.journal(id).await.unwrap();
    assert!(journal.is_empty(), "{journal:?}");
    assert_eq!(run.unwrap().version, "v2");
}
