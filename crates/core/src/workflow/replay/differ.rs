//! How code differs from its journal, in words.

use super::{Kept, Op, Replay};
use crate::workflow::talk::{Ask, Diff, Rest};

impl Replay {
    /// The journal goes on with something that the code has not asked for.
    pub(super) fn untold(&mut self, number: u32, key: &str) -> Rest {
        let asked: Vec<String> = self
            .ops
            .opened()
            .into_iter()
            .filter(|key| self.is_new(key))
            .map(|key| format!("{key:?}"))
            .collect();
        if asked.is_empty() {
            return Rest::Idle;
        }
        self.is_astray = true;
        let code = format!("asks for {}", asked.join(", "));
        Rest::Diverged(Diff { journal: self.next(number, key), code })
    }

    fn is_new(&self, key: &str) -> bool {
        !self.kept.get(key).is_some_and(|kept| kept.ended)
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
