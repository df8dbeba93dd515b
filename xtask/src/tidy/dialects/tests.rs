//! Trees in which one dialect has what the other lacks.

use super::*;

const SQLITE: &str = "crates/store/src/sqlite/sql/claim.sql";
const POSTGRES: &str = "crates/store/src/postgres/sql/claim.sql";
const NOTIFY: &str = "crates/store/src/postgres/sql/notify.sql";

fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
    let found = check(&Tree::of(files));
    found.into_iter().map(|violation| (violation.path, violation.line)).collect()
}

#[test]
fn statement_of_one_dialect_is_found() {
    let files = [(SQLITE, ""), (POSTGRES, ""), (NOTIFY, "")];
    assert_eq!(places(&files), [(NOTIFY.to_owned(), 1)]);
}

#[test]
fn statement_with_a_reason_passes() {
    let reason = (EXCEPTIONS, "# why\npostgres only: notify.sql — SQLite has no channels\n");
    assert!(places(&[(SQLITE, ""), (POSTGRES, ""), (NOTIFY, ""), reason]).is_empty());
}

#[test]
fn exceptions_without_reason_or_need_are_found() {
    for line in [
        "postgres only: notify.sql",
        "postgres only: notify.sql — ",
        "mysql only: notify.sql — x",
        "postgres only: claim.sql — both have it",
        "postgres only: gone.sql — nobody has it",
    ] {
        let found = places(&[(SQLITE, ""), (POSTGRES, ""), (EXCEPTIONS, line)]);
        assert_eq!(found, [(EXCEPTIONS.to_owned(), 1)], "{line}");
    }
}

#[test]
fn migration_of_one_dialect_is_found() {
    let same = "crates/store/src/sqlite/migrations/0001_jobs.sql";
    let other_name = "crates/store/src/postgres/migrations/0001_schema.sql";
    let lonely = "crates/store/src/postgres/migrations/0002_flows.sql";
    assert!(places(&[(same, ""), (other_name, "")]).is_empty());
    let found = places(&[(same, ""), (other_name, ""), (lonely, "")]);
    assert_eq!(found, [(lonely.to_owned(), 1)]);
}

#[test]
fn dialect_that_does_not_exist_yet_passes() {
    assert!(places(&[(POSTGRES, ""), (NOTIFY, "")]).is_empty());
}
