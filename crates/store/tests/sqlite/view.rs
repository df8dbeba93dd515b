//! What the view takes on SQLite alone, where columns have no types.

use tidemill_core::{Limits, Payload};

use super::kit::{Place, ask, worker};

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
    for bad in ["'someday'", "'2026-13-01T00:00:00Z'", "x'ff'", "''", "-5", "1900000000"] {
        let said = insert(bad).unwrap_err();
        assert!(said.starts_with("tidemill: time_invalid: "), "{bad}: {said}");
    }
    let said = conn
        .execute("insert into tidemill_enqueue (kind, delay_ms) values ('k', 'soon')", [])
        .unwrap_err();
    assert!(said.to_string().starts_with("tidemill: duration_invalid: "), "{said}");
}

#[tokio::test]
async fn what_is_not_utf_8_is_refused_and_what_was_written_around_that_stops_nobody() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    let insert = |columns: &str, values: &str| {
        let sql = format!("insert into tidemill_enqueue ({columns}) values ({values})");
        conn.execute(&sql, []).map_err(|error| error.to_string())
    };
    for name in ["ff", "c3", "e282", "80", "c080", "eda080", "61a361", "f5808080"] {
        let bad = format!("cast(x'{name}' as text)");
        for columns in ["kind", "queue, kind", "tenant, kind", "key, kind", "unique_key, kind"] {
            let values = if columns == "kind" { bad.clone() } else { format!("{bad}, 'k'") };
            let said = insert(columns, &values).unwrap_err();
            assert!(said.starts_with("tidemill: name_invalid: "), "{columns} {name}: {said}");
        }
    }
    for good in ["'é'", "'€uro'", "'𝄞'", "char(65533)", "'naïve ключ 鍵'"] {
        insert("kind, key", &format!("'k', {good}")).unwrap();
    }
    let said = insert("kind, payload", "'k', cast(x'22e922' as text)").unwrap_err();
    assert!(said.starts_with("tidemill: payload_not_json: "), "{said}");
    // A sign of Latin-1 that looks like the end of a letter passes, and so does what writes to the table itself.
    insert("kind, payload", "'k', cast(x'22a322' as text)").unwrap();
    let store = place.store().await;
    assert_eq!(
        conn.execute("update tidemill_job set payload = cast(x'22ff22' as text)", []),
        Ok(7)
    );
    let claim = store.claim(ask(worker(&store).await, 10)).await.unwrap();
    assert_eq!(claim.jobs.len(), 7);
    assert!(claim.jobs.iter().all(|taken| taken.job.payload.as_str() == "\"\u{FFFD}\""));
}

/// Functions that a SQLite of 3.38 has, by which callers insert.
const OLD_FUNCTIONS: [&str; 25] = [
    "char",
    "glob",
    "instr",
    "json",
    "json_extract",
    "json_group_object",
    "json_patch",
    "json_remove",
    "json_set",
    "json_type",
    "json_valid",
    "julianday",
    "length",
    "lower",
    "max",
    "min",
    "nullif",
    "random",
    "randomblob",
    "replace",
    "round",
    "substr",
    "trim",
    "typeof",
    "unicode",
];

#[tokio::test]
async fn callers_may_have_an_older_sqlite() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    // All that the insert and its triggers may call, as they are compiled.
    let mut program =
        conn.prepare("explain insert into tidemill_enqueue (kind) values ('k')").unwrap();
    let called = program
        .query_map([], |row| Ok((row.get::<_, String>(1)?, row.get::<_, Option<String>>(5)?)));
    let called: Vec<_> = called.unwrap().map(Result::unwrap).collect();
    let functions =
        called.iter().filter(|(opcode, _)| opcode.contains("Func") || opcode == "AggStep");
    let names: std::collections::BTreeSet<_> =
        functions.map(|(_, name)| name.as_deref().unwrap().split('(').next().unwrap()).collect();
    assert!(names.contains("json_valid"), "{names:?}");
    let newer: Vec<_> = names.iter().filter(|name| !OLD_FUNCTIONS.contains(name)).collect();
    assert!(newer.is_empty(), "{newer:?}");
}

#[tokio::test]
async fn a_large_payload_that_is_no_json_is_told_from_one_that_is_too_deep() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    for text in [
        format!("{}{}", "[".repeat(400_000), "]".repeat(400_000)),
        format!("[{}{}1{}]", "[1],".repeat(100_000), "[".repeat(1100), "]".repeat(1100)),
        format!("[{}", r#"{"a":[1]},"#.repeat(90_000)),
        format!("\"{}", "é".repeat(400_000)),
    ] {
        let expected = Payload::parse(&text, &Limits::default()).unwrap_err().code();
        let sql = "insert into tidemill_enqueue (kind, payload) values ('k', ?)";
        let said = conn.execute(sql, [&text]).unwrap_err().to_string();
        assert!(said.starts_with(&format!("tidemill: {expected}: ")), "{expected}: {said}");
    }
}
