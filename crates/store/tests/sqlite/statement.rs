//! Statements: each is one, and each fits the schema, also those that few calls reach.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
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
fn plan(conn: &Connection, name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/sql").join(name);
    let sql = format!("explain query plan {}", fs::read_to_string(file).unwrap());
    let mut explain = conn.prepare(&sql).unwrap();
    let (mut steps, mut plan) = (explain.raw_query(), Vec::<String>::new());
    while let Some(step) = steps.next().unwrap() {
        plan.push(step.get(3).unwrap());
    }
    plan.join("\n")
}

/// A worker that starts looks at them, beside as many runs as there are.
#[tokio::test]
async fn parked_runs_are_found_by_an_index_of_their_own() {
    let place = Place::with_a_job().await;
    let plan = plan(&place.connect(), "list_parked_runs.sql");
    assert!(plan.contains("tidemill_run_parked (job<?)") && !plan.contains("SORT"), "{plan}");
}

/// Whenever a lease is given up, beside as many gates as there are keys.
#[tokio::test]
async fn gates_of_a_probe_are_found_among_the_broken_ones() {
    let place = Place::with_a_job().await;
    let plan = plan(&place.connect(), "select_probed_gates.sql");
    assert!(plan.contains("tidemill_gate_broken"), "{plan}");
}

/// Alerts and rules look again and again, beside as many as there are.
#[tokio::test]
async fn looks_at_the_dead_walk_over_no_more_than_they_want() {
    let place = Place::with_a_job().await;
    let conn = place.connect();
    for (name, way) in [
        ("select_dead.sql", "tidemill_dead_latest (died_at>? AND died_at<?)"),
        ("select_redrivable.sql", "tidemill_dead_new (died_at<?)"),
    ] {
        let plan = plan(&conn, name);
        assert!(plan.contains(way), "{name}: {plan}");
    }
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
