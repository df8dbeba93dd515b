//! What the view takes on SQLite alone, where columns have no types.

use super::kit::Place;

#[tokio::test]
async fn an_id_may_be_text_or_bytes_and_nothing_else() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    let insert = |id: &str| {
        let sql = format!("insert into tidemill_enqueue (kind, id) values ('k', {id})");
        conn.execute(&sql, []).map_err(|error| error.to_string())
    };
    for good in [
        "'018f3a2e-7c11-7bbb-8000-5fd1e2a0c0d0'",
        "'018F3A2E7C117BBB80005FD1E2A0C0D1'",
        "x'018f3a2e7c117bbb80005fd1e2a0c0d2'",
    ] {
        assert!(insert(good).is_ok(), "{good}: {:?}", insert(good));
    }
    for bad in ["'no uuid'", "''", "17", "1.5", "x'00'", "'018f3a2e7c117bbb80005fd1e2a0c0dg'"] {
        let said = insert(bad).unwrap_err();
        assert!(said.starts_with("tidemill: id_invalid: "), "{bad}: {said}");
    }
    assert_eq!(place.store().await.unfinished().await.unwrap().waiting, 4);
}

#[tokio::test]
async fn times_may_be_text_or_microseconds_and_nothing_else() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    let insert = |run_at: &str| {
        let sql = format!("insert into tidemill_enqueue (kind, run_at) values ('k', {run_at})");
        conn.execute(&sql, []).map_err(|error| error.to_string())
    };
    for good in ["'2026-01-02T03:04:05Z'", "'2026-01-02 03:04:05'", "1767323045000000", "0"] {
        assert!(insert(good).is_ok(), "{good}: {:?}", insert(good));
    }
    for bad in ["'someday'", "'2026-13-01T00:00:00Z'", "x'ff'"] {
        let said = insert(bad).unwrap_err();
        assert!(said.starts_with("tidemill: time_invalid: "), "{bad}: {said}");
    }
    let said = conn
        .execute("insert into tidemill_enqueue (kind, delay_ms) values ('k', 'soon')", [])
        .unwrap_err();
    assert!(said.to_string().starts_with("tidemill: duration_invalid: "), "{said}");
}
