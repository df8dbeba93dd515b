//! Statements: each is one, and each fits the schema, also those that few calls reach.

use std::fs;
use std::path::Path;

use tidemill_store::ask::Question;

use super::kit::Place;

#[tokio::test]
async fn every_statement_prepares() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    // The one table that stands in databases of others.
    conn.execute_batch(Question::CreateEffects.sqlite()).unwrap();
    let statements = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql");
    let mut names = 0;
    for entry in fs::read_dir(statements).unwrap() {
        let path = entry.unwrap().path();
        // A second statement in the same file is an error as well.
        let prepared = conn.prepare(&fs::read_to_string(&path).unwrap());
        assert!(prepared.is_ok(), "{}: {:?}", path.display(), prepared.err());
        names += 1;
    }
    assert!(names > 50);
    assert!(conn.prepare("select 1; select 2").is_err());
}

/// A worker that starts looks at them, beside as many runs as there are.
#[tokio::test]
async fn parked_runs_are_found_by_an_index_of_their_own() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql/list_parked_runs.sql");
    let sql = format!("explain query plan {}", fs::read_to_string(file).unwrap());
    let mut explain = conn.prepare(&sql).unwrap();
    let steps = explain.query_map((None::<i64>, 1, None::<i64>, true), |row| row.get(3)).unwrap();
    let plan = steps.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("\n");
    assert!(plan.contains("tidemill_run_parked (job<?)") && !plan.contains("SORT"), "{plan}");
}

/// A trigger's text is looked into only when it runs; `explain` makes SQLite do so.
#[tokio::test]
async fn every_trigger_compiles() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    for sql in [
        "explain insert into tidemill_enqueue (kind) values ('k')",
        "explain insert into tidemill_inbox (kind) values ('k')",
        "explain update tidemill_inbox set act = 'write'",
    ] {
        assert!(conn.prepare(sql).is_ok(), "{sql}: {:?}", conn.prepare(sql).err());
    }
}
