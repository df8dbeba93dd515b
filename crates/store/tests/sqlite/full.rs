//! No room: the caller is told, her transaction is whole or gone, and when there is room it goes on.
//!
//! What the store's own writer does on a full disk is tested on a real one, in the tests of the binary.

use rusqlite::{Connection, TransactionBehavior};
use tidemill_core::{Limits, NewJob, Payload};
use tidemill_store::sqlite::adapter::enqueue_in_rusqlite;

use super::kit::{Place, is_sound, job};

fn large() -> NewJob {
    let payload = Payload::of(&"x".repeat(20_000), &Limits::default()).unwrap();
    NewJob { payload, ..job() }
}

/// Leaves the file room for a few pages more.
fn leave_room(conn: &Connection, pages: i64) {
    let count: i64 = conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    conn.pragma_update(None, "max_page_count", count + pages).unwrap();
}

#[tokio::test]
async fn a_transaction_without_room_is_told_so_and_leaves_nothing_half() {
    let place = Place::with_a_job().await;
    let mut conn = place.connect();
    conn.execute_batch("create table mine (text text not null)").unwrap();
    leave_room(&conn, 20);

    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    tx.execute("insert into mine values ('before')", []).unwrap();
    let jobs: Vec<_> = (0..50).map(|_| large()).collect();
    let error = enqueue_in_rusqlite(&tx, &jobs).unwrap_err();
    assert_eq!(error.code(), "store_disk_full", "{error}");
    assert!(error.is_temporary() && !error.is_unknown());
    // She may keep what is hers, if SQLite has not taken the whole transaction back.
    let is_hers_kept = !tx.is_autocommit();
    if is_hers_kept {
        tx.commit().unwrap();
    } else {
        drop(tx);
    }

    let mine: i64 = conn.query_one("select count(*) from mine", [], |row| row.get(0)).unwrap();
    assert_eq!(mine, i64::from(is_hers_kept));
    let store = place.store().await;
    assert_eq!(store.unfinished().await.unwrap().waiting, 1, "none of the fifty");
    assert!(is_sound(&place.file));

    leave_room(&conn, 10_000);
    enqueue_in_rusqlite(&conn, &jobs).unwrap();
    assert_eq!(store.unfinished().await.unwrap().waiting, 51);
    assert!(is_sound(&place.file));
}
