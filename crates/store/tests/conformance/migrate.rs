//! Opening: from empty, on top, at the same time, and never over a newer schema.

use rusqlite::Connection;
use tidemill_store::{Error, OpenOptions, open};
use tidemill_testkit::databases::{empty_postgres_url, fresh_sqlite_url};

use super::kit::{Kit, job};

over_both_stores!(
    opening_again_changes_nothing,
    an_open_store_may_be_opened_without_migrating,
    a_newer_schema_is_refused,
);

async fn opening_again_changes_nothing(kit: &Kit) {
    let id = kit.put(job("k")).await;
    for _ in 0..2 {
        let again = kit.neighbour().await;
        assert!(again.job(id).await.unwrap().is_some());
        assert_eq!(again.unfinished().await.unwrap().waiting, 1);
        again.close().await;
    }
}

async fn an_open_store_may_be_opened_without_migrating(kit: &Kit) {
    let id = kit.put(job("k")).await;
    let options = OpenOptions { migrate: false, ..OpenOptions::default() };
    let again = open(&kit.url, options).await.unwrap();
    assert!(again.job(id).await.unwrap().is_some());
    again.close().await;
}

/// Pretends that a later Tidemill was here.
async fn as_if_newer(kit: &Kit) {
    if let Some(file) = kit.url.strip_prefix("sqlite:") {
        let sql = "insert into tidemill_schema_version (number, checksum) values (999, 'x')";
        Connection::open(file).unwrap().execute_batch(sql).unwrap();
    } else {
        let sql = "insert into tidemill.schema_version (number, checksum) values (999, 'x')";
        let (client, connection) =
            tokio_postgres::connect(&kit.url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(sql).await.unwrap();
    }
}

async fn a_newer_schema_is_refused(kit: &Kit) {
    as_if_newer(kit).await;
    for migrate in [true, false] {
        let options = OpenOptions { migrate, ..OpenOptions::default() };
        let error = open(&kit.url, options).await.map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "schema_newer");
        assert!(matches!(error, Error::SchemaNewer { found: 999, known } if known < 999));
        assert!(error.to_string().contains("upgrade this program"));
    }
}

async fn an_empty_database_is_not_touched_unasked(url: &str) {
    for _ in 0..2 {
        let options = OpenOptions { migrate: false, ..OpenOptions::default() };
        let error = open(url, options).await.map(|_| ()).unwrap_err();
        assert_eq!(error.code(), "schema_older");
        assert!(matches!(error, Error::SchemaOlder { found: 0, .. }), "{error:?}");
    }
    open(url, OpenOptions::default()).await.unwrap().close().await;
}

async fn many_may_open_at_once(url: String) {
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url, OpenOptions::default()).await })
        })
        .collect();
    let mut stores = Vec::new();
    for one in opening {
        stores.push(one.await.unwrap().unwrap());
    }
    for store in &stores {
        store.enqueue(vec![job("k")]).await.unwrap();
    }
    assert_eq!(stores[0].unfinished().await.unwrap().waiting, 6);
    for store in stores {
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_without_migrating_is_older() {
    let (_folder, url) = fresh_sqlite_url();
    // An empty file is an empty database; no file is none.
    std::fs::write(url.trim_start_matches("sqlite:"), "").unwrap();
    an_empty_database_is_not_touched_unasked(&url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_without_migrating_is_older() {
    an_empty_database_is_not_touched_unasked(&empty_postgres_url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_opened_by_many_at_once_is_migrated_once() {
    let (_folder, url) = fresh_sqlite_url();
    many_may_open_at_once(url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_opened_by_many_at_once_is_migrated_once() {
    many_may_open_at_once(empty_postgres_url()).await;
}
