//! Checkpoints: in a quiet moment what was committed moves from the WAL into the file, while nobody waits.

use std::fs;

use rusqlite::Connection;
use tidemill_testkit::eventually::eventually;

use super::kit::{Place, SOON, job};

/// How many jobs the file has by itself, without its WAL.
fn jobs_in_the_file(place: &Place) -> Option<i64> {
    let alone = place.folder.path().join("alone.db");
    fs::copy(&place.file, &alone).unwrap();
    let conn = Connection::open(&alone).unwrap();
    // Copied while it was written to, it may be of two minds: then it is looked at again.
    conn.query_one("select count(*) from tidemill_job", [], |row| row.get(0)).ok()
}

#[tokio::test]
async fn after_some_commits_and_a_quiet_moment_the_file_is_up_to_date() {
    let place = Place::new();
    let store = place.store().await;
    // One by one: less than would make SQLite do it by itself.
    for _ in 0..64 {
        store.enqueue(vec![job()]).await.unwrap();
    }
    let pages = fs::metadata(format!("{}-wal", place.file.display())).unwrap().len() / 4096;
    assert!(pages < 1000, "{pages}");
    eventually("all jobs in the file", SOON, async || {
        (jobs_in_the_file(&place) == Some(64)).then_some(())
    })
    .await;
    store.close().await;
}
