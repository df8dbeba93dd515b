//! Keys: what names a thing in a journal.

use std::collections::HashMap;

use crate::id::JobId;

/// Gives keys: the scope, the name and, from the second time on, the number of the occurrence.
///
/// Keys are given when things are made, not when they are first looked at, so that it does not matter in which order
/// that happens.
#[derive(Debug, Clone, Default)]
pub struct Keys(HashMap<String, u32>);

impl Keys {
    /// The key of the next thing of this name in this scope; the outermost scope is empty.
    pub fn next(&mut self, scope: &str, name: &str) -> String {
        let plain = if scope.is_empty() { name.to_owned() } else { format!("{scope}/{name}") };
        let number = self.0.entry(plain.clone()).or_default();
        *number += 1;
        if *number == 1 { plain } else { format!("{plain}#{number}") }
    }
}

/// What stands for the input of a step in its journal.
pub fn hash(input: &[u8]) -> String {
    blake3::hash(input).to_hex()[..16].to_owned()
}

/// What names a thing among those of all runs: the run, its turn from the second on, and the key. A run that continues
/// anew gives its keys again, and means other things by them.
pub fn whole_key(run: JobId, turn: u32, key: &str) -> String {
    // No name has a `#`, so no scope of an earlier turn can look like a turn.
    if turn == 0 { format!("{run}/{key}") } else { format!("{run}#{turn}/{key}") }
}

/// What chance gives a run under a key in a turn: always the same.
pub fn draw(run: JobId, turn: u32, key: &str) -> [u8; 32] {
    *blake3::hash(whole_key(run, turn, key).as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_within_their_scope() {
        let mut keys = Keys::default();
        let keys = ["", "", "a", "a"].map(|scope| keys.next(scope, "x"));
        assert_eq!(keys, ["x", "x#2", "a/x", "a/x#2"]);
    }

    #[test]
    fn each_turn_of_a_run_names_other_things() {
        let run = JobId::new();
        let keys = [0, 1, 2].map(|turn| whole_key(run, turn, "charge"));
        assert_eq!(keys, ["/charge", "#1/charge", "#2/charge"].map(|key| format!("{run}{key}")));
        assert_ne!(whole_key(run, 0, "1/charge"), keys[1], "nor does a scope look like a turn");
        assert_eq!(draw(run, 1, "uuid"), draw(run, 1, "uuid"));
        assert_ne!(draw(run, 0, "uuid"), draw(run, 1, "uuid"));
    }
}
