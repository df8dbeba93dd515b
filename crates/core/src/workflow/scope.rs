//! Scopes in a journal: when one has ended, its end stands for what was inside, and most of that is forgotten.
//!
//! What tells of mail, of undos, of the point of no return and of children that are waited for later stays. Without the
//! end of its scope such a rest is no beginning that code could follow: it goes with the end.

use std::collections::HashSet;

use crate::workflow::entry::Entry;

/// The scopes that a key is inside of, the outermost first.
pub(super) fn scopes(key: &str) -> impl Iterator<Item = &str> {
    key.match_indices('/').map(|(at, _)| &key[..at])
}

/// Refuses a key that is inside a scope which has ended: what came before it there is not known any more.
pub(super) fn not_inside(journal: &[(u32, Entry)], key: &str, instead: &str) -> Result<(), String> {
    let ended = ends(journal.iter());
    match scopes(key).find(|scope| ended.contains(scope)) {
        Some(scope) => {
            Err(format!("{key:?} is inside the scope {scope:?}, which has ended: {instead}"))
        }
        None => Ok(()),
    }
}

/// What is left before this number of scopes that have ended since: it goes with their ends.
pub(super) fn left_of_scopes(journal: &[(u32, Entry)], from: u32) -> HashSet<u32> {
    let ended = ends(journal.iter().filter(|(number, _)| *number >= from));
    let before = journal.iter().filter(|(number, _)| *number < from);
    before
        .filter(|(_, entry)| scopes(entry.key()).any(|scope| ended.contains(scope)))
        .map(|(number, _)| *number)
        .collect()
}

fn ends<'a>(journal: impl Iterator<Item = &'a (u32, Entry)>) -> HashSet<&'a str> {
    let ended = journal.filter(|(_, entry)| matches!(entry, Entry::Ended { .. }));
    ended.map(|(_, entry)| entry.key()).collect()
}
