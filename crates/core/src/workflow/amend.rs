//! What operators change in the journal of a run that does not run: decided here, on the journal as it stands.
//!
//! A store reads the journal in the transaction that changes it, asks here what is to be done, and does it. What makes
//! no sense is refused with a reason, and nothing is changed.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::payload::Payload;
use crate::workflow::entry::{Began, Ending, Entry};
use crate::workflow::scope::{left_of_scopes, not_inside};
use crate::workflow::undo::orphans;

/// A wish to change a journal. Steps are named by their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amend {
    /// Forget everything from this step on.
    Reset {
        /// The step, or whatever else has a key.
        to: String,
    },
    /// A step that has not ended has ended so; a sleep is over; a signal that was taken is passed over, and everything
    /// after it is forgotten.
    Skip {
        /// Which.
        step: String,
        /// With what.
        ending: Ending,
    },
    /// A step that has ended returned this instead, or a signal that was taken carried it, and everything after it is
    /// forgotten.
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
    /// So are these, which were left of scopes whose end is forgotten.
    pub dropped: Vec<u32>,
    /// This is added then.
    pub add: Option<(u32, Entry)>,
    /// What the step had ended with before.
    pub was: Option<Ending>,
    /// Children that the code does not know of any more: they are called off.
    pub orphans: Vec<JobId>,
    /// Numbers of mail that was taken, and is not any more.
    pub unheard: Vec<i64>,
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
        let amendment = match self {
            Self::Reset { to } => {
                not_inside(journal, to, "reset to that")?;
                Ok(Amendment { cut: Some(*first), ..Amendment::default() })
            }
            Self::Skip { step, ending } => {
                not_inside(journal, step, "edit that")?;
                if let Some(signal) = taken(&of) {
                    return passed(step, signal, ending).map(|passed| passed.whole(journal));
                }
                let entry = skipped(step, &of, ending)?;
                let next = journal.last().map_or(0, |(number, _)| number + 1);
                Ok(Amendment { add: Some((next, entry)), ..Amendment::default() })
            }
            Self::Edit { step, output } => {
                not_inside(journal, step, "edit that")?;
                match taken(&of) {
                    Some(signal) => Ok(resent(step, signal, output)),
                    None => edited(step, &of, output),
                }
            }
        };
        amendment.map(|amendment| amendment.whole(journal))
    }
}

impl Amendment {
    /// With what else is forgotten, and who knows of it.
    fn whole(mut self, journal: &[(u32, Entry)]) -> Self {
        let Some(from) = self.cut else { return self };
        let left = left_of_scopes(journal, from);
        let gone = journal.iter().filter(|(number, _)| *number >= from || left.contains(number));
        let again = self.add.as_ref().and_then(|(_, entry)| heard(entry));
        let unheard = gone.clone().filter_map(|(_, entry)| heard(entry));
        self.unheard = unheard.filter(|number| again != Some(*number)).collect();
        self.orphans = orphans(gone.map(|(_, entry)| entry)).into_iter().collect();
        self.dropped = left.into_iter().collect();
        self.dropped.sort_unstable();
        self
    }
}

/// The number of the piece of mail that an entry has taken.
fn heard(entry: &Entry) -> Option<i64> {
    match entry {
        Entry::Signalled { number, .. } | Entry::Passed { number, .. } => Some(*number),
        _ => None,
    }
}

/// A signal that was taken: the number of its entry, its name, its number in the mailbox, and what it carries.
type Taken<'a> = (u32, &'a String, i64, &'a Payload);

/// The signal that a wait has taken.
fn taken<'a>(of: &[&'a (u32, Entry)]) -> Option<Taken<'a>> {
    of.iter().find_map(|(at, entry)| match entry {
        Entry::Signalled { name, number, payload, .. } => Some((*at, name, *number, payload)),
        _ => None,
    })
}

/// The signal is passed over, and the next one is taken.
fn passed(
    step: &str,
    (at, name, number, payload): Taken<'_>,
    ending: &Ending,
) -> Result<Amendment, String> {
    if !matches!(ending, Ending::Ok(output) if output.as_str() == "null") {
        return Err(format!(
            "{step:?} took a signal, which is passed over as it is; edit it to change what it carries"
        ));
    }
    let entry = Entry::Passed { key: step.to_owned(), name: name.clone(), number };
    let was = Some(Ending::Ok(payload.clone()));
    Ok(Amendment { cut: Some(at), add: Some((at, entry)), was, ..Amendment::default() })
}

/// The signal carries something else.
fn resent(step: &str, (at, name, number, payload): Taken<'_>, output: &Payload) -> Amendment {
    let (key, name) = (step.to_owned(), name.clone());
    let entry = Entry::Signalled { key, name, number, payload: output.clone() };
    let was = Some(Ending::Ok(payload.clone()));
    Amendment { cut: Some(at), add: Some((at, entry)), was, ..Amendment::default() }
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

    fn signalled(key: &str, number: i64) -> Entry {
        let (name, payload) = ("go".to_owned(), Payload::trusted("\"x\"".into()));
        Entry::Signalled { key: key.into(), name, number, payload }
    }

    #[test]
    fn a_signal_that_was_taken_is_passed_over_or_carries_something_else() {
        let journal = [(0, ended("a", "1")), (2, signalled("go#2", 7)), (3, ended("b", "1"))];
        let was = Some(ok("\"x\""));
        let passed = Entry::Passed { key: "go#2".into(), name: "go".into(), number: 7 };
        let skip = |ending| Amend::Skip { step: "go#2".into(), ending }.decide(&journal);
        let (cut, add) = (Some(2), Some((2, passed)));
        let done = Amendment { cut, add, was: was.clone(), ..Amendment::default() };
        assert_eq!(skip(ok("null")).unwrap(), done);
        assert!(skip(ok("1")).unwrap_err().contains("edit it to change what it carries"));
        let edit = Amend::Edit { step: "go#2".into(), output: Payload::trusted("9".into()) };
        let Some((2, Entry::Signalled { number: 7, payload, .. })) =
            edit.decide(&journal).unwrap().add
        else {
            panic!("it carries something else")
        };
        assert_eq!(payload.as_str(), "9");
    }

    #[test]
    fn what_is_left_of_a_scope_is_forgotten_with_its_end_and_none_of_it_is_a_place_to_go_back_to() {
        // A signal taken inside of the scope stays when that ends; the step before it in there does not.
        let child = JobId::new();
        let (kind, ids) = ("k".to_owned(), vec![child]);
        let started = Entry::Started { key: "s/k".into(), kind, ids, outlives: false, later: true };
        let journal = [
            (1, signalled("s/go", 3)),
            (2, started),
            (3, ended("b", "1")),
            (4, ended("s", "1")),
            (5, ended("c", "1")),
        ];
        for (to, cut, dropped, orphans, unheard) in [
            ("b", 3, vec![1, 2], vec![child], vec![3]),
            ("s", 4, vec![1, 2], vec![child], vec![3]),
            ("c", 5, vec![], vec![], vec![]),
        ] {
            let reset = Amend::Reset { to: to.into() }.decide(&journal).unwrap();
            let cut = Some(cut);
            let done = Amendment { cut, dropped, orphans, unheard, ..Amendment::default() };
            assert_eq!(reset, done, "{to}");
        }
        let inside = Amend::Reset { to: "s/go".into() }.decide(&journal).unwrap_err();
        assert!(
            inside.contains("inside the scope \"s\", which has ended: reset to that"),
            "{inside}"
        );
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
