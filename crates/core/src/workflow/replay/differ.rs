//! How code differs from its journal, in words.

use super::{Kept, Op, Replay};
use crate::workflow::talk::{Ask, Diff, Rest};

impl Replay {
    /// The journal goes on with something that the code has not asked for. Where it asks for what comes later in the
    /// journal it may have left that out, or not be there yet.
    pub(super) fn untold(&mut self, number: u32, key: &str) -> Rest {
        let opened = self.ops.opened();
        let new = in_words(opened.iter().filter(|key| !self.has_ended(key)));
        let (asked, is_sure) = match new {
            Some(new) => (Some(new), true),
            None => (in_words(opened.iter()), false),
        };
        let Some(asked) = asked else { return Rest::Idle };
        self.is_astray = true;
        let diff = Diff { journal: self.next(number, key), code: format!("asks for {asked}") };
        if is_sure { Rest::Diverged(diff) } else { Rest::Astray(diff) }
    }

    /// Everything was told, and the code asks for something new while there is something open in the journal that it
    /// has not come by.
    pub(super) fn passed_by(&mut self) -> Option<Rest> {
        let (number, key) = self.ahead.iter().map(|(key, number)| (*number, key)).min()?;
        let opened = self.ops.opened();
        let asked = in_words(opened.iter().filter(|key| !self.knows(key)))?;
        let diff = Diff { journal: self.next(number, key), code: format!("asks for {asked}") };
        self.is_astray = true;
        Some(Rest::Astray(diff))
    }

    fn has_ended(&self, key: &str) -> bool {
        self.kept.get(key).is_some_and(|kept| kept.ended)
    }

    fn next(&self, number: u32, key: &str) -> String {
        let word = self.kept.get(key).map_or("step", |kept| kept.word);
        format!("the {word} {key:?} next (entry {number})")
    }

    /// Why the code must not end now, if so: the journal goes on.
    pub fn end(&self) -> Result<(), Diff> {
        let untold = self.telling.iter().filter(|(_, key, _)| self.ops.get(key) != Some(&Op::Over));
        let untold = untold.map(|(number, key, _)| (*number, key)).next();
        let missed = self.ahead.iter().map(|(key, number)| (*number, key)).min();
        let Some((number, key)) = untold.into_iter().chain(missed).min() else { return Ok(()) };
        Err(Diff { journal: self.next(number, key), code: "ends".to_owned() })
    }
}

/// These keys as they are said, if there are any.
fn in_words<'a>(keys: impl Iterator<Item = &'a &'a String>) -> Option<String> {
    let keys: Vec<String> = keys.map(|key| format!("{key:?}")).collect();
    (!keys.is_empty()).then(|| keys.join(", "))
}

/// Whether what is asked for is what the journal has under this key.
pub(super) fn compare(key: &str, ask: &Ask, kept: &Kept) -> Result<(), Diff> {
    let differs = |journal: String, code: String| Err(Diff { journal, code });
    if !kept.word.is_empty() {
        let word = if matches!(ask, Ask::Version { .. }) { "value" } else { ask.word() };
        if !kept.word.contains(word) {
            let journal = format!("a {} under {key:?}", kept.word);
            return differs(journal, format!("asks for a {word} there"));
        }
    }
    if let (Ask::Step { hash: Some(now), .. }, Some(then)) = (ask, &kept.hash)
        && now != then
    {
        let journal = format!("the step {key:?} with an input of hash {then}");
        return differs(journal, format!("gives it one of hash {now}"));
    }
    Ok(())
}
