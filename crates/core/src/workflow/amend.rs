//! What operators change in the journal of a run that does not run: decided here, on the journal as it stands.
//!
//! A store reads the journal in the transaction that changes it, asks here what is to be done, and does it. What makes
//! no sense is refused with a reason, and nothing is changed.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::payload::Payload;
use crate::workflow::entry::{Began, Ending, Entry};
use crate::workflow::undo::orphans;

/// A wish to change a journal. Steps are named by their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amend {
    /// Forget everything from this step on.
    Reset {
        /// The step, or whatever else has a key.
        to: String,
    },
    /// A step that has not ended has ended so; a sleep is over.
    Skip {
        /// Which.
        step: String,
        /// With what.
        ending: Ending,
    },
    /// A step that has ended returned this instead, and everything after it is forgotten.
    Edit {
        /// Which.
        step: String,
        /// What it returned.
        output: Payload,
    },
}

/// What is to be done to a journal.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Amendment {
    /// Entries from this number on are forgotten.
    pub cut: Option<u32>,
    /// This is added then.
    pub add: Option<(u32, Entry)>,
    /// What the step had ended with before.
    pub was: Option<Ending>,
    /// Children that the code does not know of any more: they are called off.
    pub orphans: Vec<JobId>,
}

/// The word of an act on a run, as it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ActWord {
    /// It goes no further than where it waits next.
    Paused,
    /// It goes on.
    Resumed,
    /// What it did from a step on is forgotten.
    Reset,
    /// A step was given its outcome.
    Skipped,
    /// What a step returned was corrected.
    Edited,
    /// It was called off.
    Cancelled,
    /// Another run goes on from a step of it.
    Forked,
    /// It began as a fork of another run.
    Copied,
}

impl ActWord {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Paused,
        Self::Resumed,
        Self::Reset,
        Self::Skipped,
        Self::Edited,
        Self::Cancelled,
        Self::Forked,
        Self::Copied,
    ];

    /// Its word.
    pub fn word(self) -> &'static str {
        let words =
            ["paused", "resumed", "reset", "skipped", "edited", "cancelled", "forked", "copied"];
        words[self as usize]
    }

    /// The act of a word.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|act| act.word() == word)
    }
}

impl Amend {
    /// What is said of it afterwards.
    pub fn act(&self) -> ActWord {
        match self {
            Self::Reset { .. } => ActWord::Reset,
            Self::Skip { .. } => ActWord::Skipped,
            Self::Edit { .. } => ActWord::Edited,
        }
    }

    /// The step it is about.
    pub fn step(&self) -> &str {
        match self {
            Self::Reset { to: step } | Self::Skip { step, .. } | Self::Edit { step, .. } => step,
        }
    }

    /// What is to be done to this journal for it; or why that makes no sense.
    pub fn decide(&self, journal: &[(u32, Entry)]) -> Result<Amendment, String> {
        let of: Vec<&(u32, Entry)> =
            journal.iter().filter(|(_, entry)| entry.key() == self.step()).collect();
        let Some((first, _)) = of.first() else {
            return Err(format!("its journal has nothing under {:?}", self.step()));
        };
        let mut amendment = match self {
            Self::Reset { .. } => Ok(Amendment { cut: Some(*first), ..Amendment::default() }),
            Self::Skip { step, ending } => {
                not_inside(journal, step)?;
                let entry = skipped(step, &of, ending)?;
                let next = journal.last().map_or(0, |(number, _)| number + 1);
                Ok(Amendment { add: Some((next, entry)), ..Amendment::default() })
            }
            Self::Edit { step, output } => {
                not_inside(journal, step)?;
                edited(step, &of, output)
            }
        }?;
        if let Some(from) = amendment.cut {
            let cut = journal.iter().filter(|(number, _)| *number >= from);
            amendment.orphans = orphans(cut.map(|(_, entry)| entry)).into_iter().collect();
        }
        Ok(amendment)
    }
}

/// What ends a step, or a sleep, that is open.
fn skipped(step: &str, of: &[&(u32, Entry)], ending: &Ending) -> Result<Entry, String> {
    let (key, mut hash, mut tries) = (step.to_owned(), None, 0);
    for (_, entry) in of {
        match entry {
            Entry::Began(Began { hash: given, .. }) => hash.clone_from(given),
            Entry::Failed { tries: spent, .. } => tries = *spent,
            Entry::Slept { .. } | Entry::Sealed { .. } => {}
            Entry::Ended { .. } | Entry::Recorded { .. } => {
                return Err(format!(
                    "the step {step:?} has ended; edit it to correct what it returned"
                ));
            }
            other => {
                return Err(format!(
                    "{step:?} is no step that could be skipped: it {}",
                    other.word()
                ));
            }
        }
    }
    if of.iter().any(|(_, entry)| matches!(entry, Entry::Slept { .. })) {
        let is_plain = matches!(ending, Ending::Ok(output) if output.as_str() == "null");
        return if is_plain {
            Ok(Entry::Woke { key })
        } else {
            Err(format!("{step:?} is a sleep: it returns nothing"))
        };
    }
    Ok(Entry::Ended { key, hash, tries, took_ms: 0, ending: ending.clone() })
}

/// Another output for a step that has ended.
fn edited(step: &str, of: &[&(u32, Entry)], output: &Payload) -> Result<Amendment, String> {
    let ended = of.iter().find_map(|(number, entry)| match entry {
        Entry::Ended { hash, tries, took_ms, ending, .. } => {
            Some((*number, hash, *tries, *took_ms, ending.clone()))
        }
        // Its own transaction has written what it came to, and the code was not told yet.
        Entry::Recorded { hash, tries, output, .. } => {
            Some((*number, hash, *tries, 0, Ending::Ok(output.clone())))
        }
        _ => None,
    });
    let Some((number, hash, tries, took_ms, was)) = ended else {
        return Err(format!(
            "{step:?} is no step that has ended; skip gives one that is stuck its outcome"
        ));
    };
    let (key, hash, ending) = (step.to_owned(), hash.clone(), Ending::Ok(output.clone()));
    let entry = Entry::Ended { key, hash, tries, took_ms, ending };
    let (cut, add) = (Some(number), Some((number, entry)));
    Ok(Amendment { cut, add, was: Some(was), ..Amendment::default() })
}

/// A scope that has ended tells for all that was in it: what is inside is not heard any more.
fn not_inside(journal: &[(u32, Entry)], step: &str) -> Result<(), String> {
    let scopes: Vec<&str> = step.match_indices('/').map(|(at, _)| &step[..at]).collect();
    let ended = journal
        .iter()
        .find(|(_, entry)| matches!(entry, Entry::Ended { .. }) && scopes.contains(&entry.key()));
    match ended {
        Some((_, scope)) => Err(format!(
            "{step:?} is inside the scope {:?}, which has ended: edit that",
            scope.key()
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::outcome::ErrorClass;

    fn ok(text: &str) -> Ending {
        Ending::Ok(Payload::trusted(text.to_owned()))
    }

    fn ended(key: &str, text: &str) -> Entry {
        Entry::Ended {
            key: key.into(),
            hash: Some("h".into()),
            tries: 2,
            took_ms: 3,
            ending: ok(text),
        }
    }

    fn failed(key: &str) -> Entry {
        let (message, again_at) = ("no".to_owned(), Timestamp::UNIX_EPOCH);
        Entry::Failed { key: key.into(), tries: 4, message, again_at }
    }

    fn recorded(key: &str) -> Entry {
        let output = Payload::trusted("5".into());
        Entry::Recorded { key: key.into(), hash: None, tries: 1, output }
    }

    fn began(key: &str) -> Entry {
        Entry::Began(Began { key: key.into(), hash: Some("b".into()), once: true, undo: None })
    }

    fn journal() -> Vec<(u32, Entry)> {
        let until = Timestamp::UNIX_EPOCH;
        vec![
            (0, ended("a", "1")),
            (1, began("b")),
            (2, failed("b")),
            (4, failed("s/c")),
            (5, ended("s", "7")),
            (6, Entry::Slept { key: "nap".into(), until }),
            (8, Entry::Noted { key: "now".into(), value: Payload::null() }),
            (9, Entry::Sealed { key: "t".into() }),
            (10, recorded("t")),
        ]
    }

    fn skip(step: &str, ending: Ending) -> Result<Amendment, String> {
        Amend::Skip { step: step.into(), ending }.decide(&journal())
    }

    fn edit(step: &str) -> Result<Amendment, String> {
        let output = Payload::trusted("9".into());
        Amend::Edit { step: step.into(), output }.decide(&journal())
    }

    #[test]
    fn a_step_that_is_open_ends_as_it_is_told() {
        let err = Ending::Err { class: ErrorClass::Permanent, message: "never".into() };
        for ending in [ok("42"), err] {
            let done = skip("b", ending.clone()).unwrap();
            let hash = Some("b".to_owned());
            let entry = Entry::Ended { key: "b".into(), hash, tries: 4, took_ms: 0, ending };
            assert_eq!(done, Amendment { add: Some((11, entry)), ..Amendment::default() });
        }
        let woke = Entry::Woke { key: "nap".into() };
        assert_eq!(skip("nap", ok("null")).unwrap().add, Some((11, woke)));
    }

    #[test]
    fn a_step_that_ended_returns_something_else_and_what_came_after_is_forgotten() {
        let Entry::Ended { key, hash, tries, took_ms, .. } = ended("a", "") else { panic!() };
        let entry = Entry::Ended { key, hash, tries, took_ms, ending: ok("9") };
        let (cut, add, was) = (Some(0), Some((0, entry)), Some(ok("1")));
        let done = Amendment { cut, add, was, ..Amendment::default() };
        assert_eq!(edit("a").unwrap(), done);
        let of_its_own = edit("t").unwrap();
        assert_eq!((of_its_own.cut, of_its_own.was), (Some(10), Some(ok("5"))));
        let reset = Amend::Reset { to: "b".into() }.decide(&journal()).unwrap();
        assert_eq!(reset, Amendment { cut: Some(1), ..Amendment::default() });
    }

    #[test]
    fn children_of_what_is_forgotten_are_orphans() {
        let ids: Vec<JobId> = (0..4).map(|_| JobId::new()).collect();
        let started = |key: &str, child: usize, outlives| {
            let (key, kind, ids) = (key.to_owned(), "k".to_owned(), vec![ids[child]]);
            Entry::Started { key, kind, ids, outlives, later: true }
        };
        let journal = vec![
            (0, started("before", 0, false)),
            (1, ended("a", "1")),
            (2, started("since", 1, false)),
            (3, started("lasting", 2, true)),
        ];
        let reset = Amend::Reset { to: "a".into() }.decide(&journal).unwrap();
        assert_eq!(reset.orphans, [ids[1]]);
        let edit = Amend::Edit { step: "a".into(), output: Payload::null() };
        assert_eq!(edit.decide(&journal).unwrap().orphans, [ids[1]]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (refused, why) in [
            (skip("x", ok("1")), "has nothing under"),
            (skip("a", ok("1")), "has ended; edit it"),
            (skip("now", ok("1")), "no step"),
            (skip("t", ok("1")), "has ended; edit it"),
            (skip("nap", ok("1")), "returns nothing"),
            (skip("s/c", ok("1")), "inside the scope \"s\""),
            (edit("x"), "has nothing under"),
            (edit("b"), "skip gives one"),
            (edit("nap"), "no step that has ended"),
            (edit("s/c"), "inside the scope"),
            (Amend::Reset { to: "x".into() }.decide(&journal()), "has nothing under"),
        ] {
            let said = refused.unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn acts_are_told_by_words() {
        for act in ActWord::ALL {
            assert_eq!(ActWord::of(act.word()), Some(act));
        }
        assert_eq!(ActWord::of("slept"), None);
    }
}
