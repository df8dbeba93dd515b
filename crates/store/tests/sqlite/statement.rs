//! Statements: each is one, and each fits the schema, also those that few calls reach.

use std::fs;
use std::path::Path;

use rusqlite::{Connection, Params};
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

/// How SQLite looks for what a statement asks for.
fn plan(conn: &Connection, name: &str, params: impl Params) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql").join(name);
    let sql = format!("explain query plan {}", fs::read_to_string(file).unwrap());
    let mut explain = conn.prepare(&sql).unwrap();
    let steps = explain.query_map(params, |row| row.get(3)).unwrap();
    steps.collect::<rusqlite::Result<Vec<String>>>().unwrap().join("\n")
}

/// A worker that starts looks at them, beside as many runs as there are.
#[tokio::test]
async fn parked_runs_are_found_by_an_index_of_their_own() {
    let place = Place::with_a_job().await;
    let asked = (None::<i64>, 1, None::<i64>, true);
    let plan = plan(&place.connect(), "list_parked_runs.sql", asked);
    assert!(plan.contains("tidemill_run_parked (job<?)") && !plan.contains("SORT"), "{plan}");
}

/// Whenever a lease is given up, beside as many gates as there are keys.
#[tokio::test]
async fn gates_of_a_probe_are_found_among_the_broken_ones() {
    let place = Place::with_a_job().await;
    let plan = plan(&place.connect(), "select_probed_gates.sql", [1]);
    assert!(plan.contains("tidemill_gate_broken"), "{plan}");
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
