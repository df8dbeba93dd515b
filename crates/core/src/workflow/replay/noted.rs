//! Values that stay the same once the code was given them.

use super::{Kept, Replay};
use crate::payload::Payload;
use crate::workflow::entry::Entry;
use crate::workflow::talk::{Answer, Diff};

impl Replay {
    /// The value of a key; the first one given stands.
    pub(super) fn note(&mut self, key: &str, kept: Kept, value: Payload) -> Payload {
        kept.value.unwrap_or_else(|| {
            self.push(Entry::Noted { key: key.to_owned(), value: value.clone() });
            value
        })
    }

    /// The version of the code that a key goes by, wherever and however often it is asked for.
    pub(super) fn version(
        &mut self,
        key: &str,
        kept: Kept,
        min: u32,
        max: u32,
    ) -> Result<Answer, Diff> {
        if let Some(value) = kept.value {
            let version: Option<u32> = value.read().ok();
            if version.is_some_and(|version| (min..=max).contains(&version)) {
                return Ok(Answer::Value(value));
            }
            let journal = format!("version {} under {key:?}", value.as_str());
            return Err(Diff { journal, code: format!("knows {min} to {max} only") });
        }
        // The journal goes on: the run came by here before the code had versions.
        let is_new = self.is_at_end();
        let value = Payload::trusted(if is_new { max } else { min }.to_string());
        if is_new {
            self.push(Entry::Noted { key: key.to_owned(), value: value.clone() });
        }
        // One name is decided on once; where it is asked for first comes first every time.
        let kept = Kept { word: "value", value: Some(value.clone()), ..Kept::default() };
        self.kept.insert(key.to_owned(), kept);
        Ok(Answer::Value(value))
    }
}
