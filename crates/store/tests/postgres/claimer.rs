//! Claims go by one server process, whatever else is asked meanwhile: the first claim of another one would be slow,
//! because all of it is still to be planned there.

use std::collections::BTreeSet;

use tidemill_testkit::databases::fresh_postgres_url;

use super::kit::{ask, connect, job, store, worker};

/// The server processes whose last statement was a claim.
const CLAIMERS: &str = "select pid from pg_stat_activity where datname = current_database() \
                        and query like '%from tidemill.claim(%' and pid <> pg_backend_pid()";

#[tokio::test]
async fn claims_go_by_one_server_process() {
    let url = fresh_postgres_url();
    let (store, client) = (store(&url).await, connect(&url).await);
    let (worker, mut processes) = (worker(&store).await, BTreeSet::<i32>::new());
    for _ in 0..5 {
        // In either order: who asks second would get what the first one has left.
        let enqueue = || store.enqueue(vec![job()]);
        let (_, _, claim) = tokio::join!(enqueue(), store.now(), store.claim(ask(worker, 1)));
        claim.unwrap();
        let rows = client.query(CLAIMERS, &[]).await.unwrap();
        processes.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        let (claim, _, _) = tokio::join!(store.claim(ask(worker, 1)), enqueue(), store.now());
        claim.unwrap();
        let rows = client.query(CLAIMERS, &[]).await.unwrap();
        processes.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
    }
    assert_eq!(processes.len(), 1, "{processes:?}");
    store.close().await;
}

#[tokio::test]
async fn a_rehearsal_leaves_nothing_behind() {
    let url = fresh_postgres_url();
    let (store, client) = (store(&url).await, connect(&url).await);
    client.query(include_str!("../../src/postgres/sql/rehearse_claim.sql"), &[]).await.unwrap();
    for table in ["job", "ready", "lease", "worker", "depth_delta", "queue"] {
        let rows = client.query(&format!("select from tidemill.{table}"), &[]).await.unwrap();
        assert!(rows.is_empty(), "{table}");
    }
    store.close().await;
}
