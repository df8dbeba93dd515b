//! Both dialects have the same statements and the same migrations.
//!
//! A file that exists for one database only is a promise that the other does not keep. So the names
//! below `sqlite/sql` and `postgres/sql` are the same, except those that `dialect.txt` lists, each
//! with its reason: `postgres only: notify.sql — SQLite has no channels`. Migration numbers have no
//! exceptions.
//!
//! It refuses exceptions without a reason, and those that are none any more.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::tree::{Tree, ending};

const RULE: &str = "same dialects";
const STORE: &str = "crates/store/src";
const EXCEPTIONS: &str = "crates/store/src/dialect.txt";
const DIALECTS: [(&str, &str); 2] = [("sqlite", "postgres"), ("postgres", "sqlite")];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let (exceptions, mut found) = exceptions(tree);
    for (ours, theirs) in DIALECTS {
        found.extend(check_statements(tree, ours, theirs, &exceptions));
        found.extend(check_migrations(tree, ours, theirs));
    }
    found
}

/// The exceptions: the dialect and name of a file, and the line that lists it.
type Exceptions<'a> = BTreeMap<(&'a str, &'a str), usize>;

fn exceptions(tree: &Tree) -> (Exceptions<'_>, Vec<Violation>) {
    let (mut exceptions, mut found) = (BTreeMap::new(), Vec::new());
    let text = tree.files.get(EXCEPTIONS).map_or("", String::as_str);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(exception) = exception(line) {
            exceptions.insert(exception, index + 1);
        } else {
            let message = "write `postgres only: name.sql — reason` (or `sqlite only: …`)";
            found.push(Violation::new(EXCEPTIONS, index + 1, RULE, message));
        }
    }
    (exceptions, found)
}

fn exception(line: &str) -> Option<(&str, &str)> {
    let (dialect, rest) = line.split_once(" only: ")?;
    let (name, reason) = rest.split_once(" — ")?;
    let is_known = DIALECTS.iter().any(|(known, _)| *known == dialect);
    (is_known && ending(name) == "sql" && !reason.trim().is_empty()).then_some((dialect, name))
}

fn check_statements(
    tree: &Tree,
    ours: &str,
    theirs: &str,
    exceptions: &Exceptions<'_>,
) -> Vec<Violation> {
    let mine: BTreeSet<_> = names(tree, ours, "sql").collect();
    let other: BTreeSet<_> = names(tree, theirs, "sql").collect();
    if mine.is_empty() || other.is_empty() {
        return Vec::new();
    }
    let is_excepted = |name: &str| exceptions.contains_key(&(ours, name));
    let lonely = mine.difference(&other).filter(|name| !is_excepted(name)).map(|name| {
        let path = format!("{STORE}/{ours}/sql/{name}");
        let message = format!("{theirs} has no {name}: add it, or a reason to {EXCEPTIONS}");
        Violation::new(&path, 1, RULE, message)
    });
    let is_stale = |name: &&str| !mine.contains(name) || other.contains(name);
    let mut found: Vec<_> = lonely.collect();
    for ((dialect, name), line) in exceptions {
        if *dialect == ours && is_stale(name) {
            let message = format!("{name} is not {ours} only: remove this line");
            found.push(Violation::new(EXCEPTIONS, *line, RULE, message));
        }
    }
    found
}

fn check_migrations(tree: &Tree, ours: &str, theirs: &str) -> Vec<Violation> {
    let other: BTreeSet<_> = names(tree, theirs, "migrations").map(number).collect();
    let lonely = names(tree, ours, "migrations")
        .filter(|name| !other.is_empty() && !other.contains(number(name)));
    lonely
        .map(|name| {
            let path = format!("{STORE}/{ours}/migrations/{name}");
            let message = format!("{theirs} has no migration {}", number(name));
            Violation::new(&path, 1, RULE, message)
        })
        .collect()
}

fn names<'a>(tree: &'a Tree, dialect: &str, folder: &str) -> impl Iterator<Item = &'a str> {
    let folder = format!("{STORE}/{dialect}/{folder}");
    let files: Vec<_> = tree.below(&folder, ".sql").map(|(_, name, _)| name).collect();
    files.into_iter()
}

/// The digits that a migration's name begins with.
fn number(name: &str) -> &str {
    let end = name.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(name.len());
    &name[..end]
}

#[cfg(test)]
mod tests;
