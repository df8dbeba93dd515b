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

/// What chance gives a run under a key: always the same.
pub fn draw(run: JobId, key: &str) -> [u8; 32] {
    *blake3::hash(format!("{run}/{key}").as_bytes()).as_bytes()
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
}
