//! What a run that ended otherwise than well owes: its undos, and its children that nobody waits for any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::flow::saga::{Became, undo_job};
use crate::id::JobId;
use crate::job::NewJob;
use crate::job::outcome::ErrorClass;
use crate::payload::Payload;
use crate::workflow::entry::{Began, Ending, Entry, StepUndo};

/// A step that is to be undone.
#[derive(Debug, Clone, PartialEq)]
pub struct Undoing {
    /// Which step.
    pub key: String,
    /// The job that undoes it.
    pub job: NewJob,
}

/// The undos of a run, in the order in which they run: what ended last, or has not, is undone first. None of what began
/// before the run came past its last point of no return. A step that failed and says that it had no effect is not
/// undone.
pub fn undos<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> Vec<Undoing> {
    let mut began: BTreeMap<&str, (usize, &StepUndo)> = BTreeMap::new();
    let mut ended: BTreeMap<&str, (usize, Ending)> = BTreeMap::new();
    for (place, entry) in journal.into_iter().enumerate() {
        match entry {
            Entry::Began(Began { key, undo: Some(undo), .. }) => {
                began.entry(key).or_insert((place, undo));
            }
            Entry::Ended { key, ending, .. } => drop(ended.insert(key, (place, ending.clone()))),
            Entry::Recorded { key, output, .. } => {
                ended.insert(key, (place, Ending::Ok(output.clone())));
            }
            Entry::Pivot { .. } => began.clear(),
            _ => {}
        }
    }
    let mut steps: Vec<_> = began
        .into_iter()
        .filter_map(|(key, (place, undo))| {
            let (order, became) = match ended.get(key) {
                Some((at, Ending::Ok(output))) => ((0, *at), Became::Done(output.clone())),
                Some((at, Ending::Aside { .. })) => ((0, *at), Became::Done(Payload::null())),
                Some((_, Ending::Err { class: ErrorClass::Permanent, .. })) => return None,
                Some((at, Ending::Err { .. })) => ((0, *at), Became::Unknown),
                None => ((1, place), Became::Unknown),
            };
            Some((order, key, undo, became))
        })
        .collect();
    steps.sort_by_key(|(order, ..)| std::cmp::Reverse(*order));
    let undoing = |(_, key, undo, became): (_, &str, &StepUndo, Became)| {
        Some(Undoing { key: key.to_owned(), job: undo_job(key, undo, &became)? })
    };
    steps.into_iter().filter_map(undoing).collect()
}

/// The children that a run has started and did not hear the end of, but for those that outlive it.
pub fn orphans<'a>(journal: impl IntoIterator<Item = &'a Entry>) -> BTreeSet<JobId> {
    let (mut started, mut heard) = (BTreeSet::new(), BTreeSet::new());
    for entry in journal {
        match entry {
            Entry::Started { ids, outlives: false, .. } => started.extend(ids),
            Entry::Joined { ends, .. } => heard.extend(ends.iter().map(|end| end.id)),
            _ => {}
        }
    }
    started.difference(&heard).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn began(key: &str) -> Entry {
        let undo = NewJob::new(format!("undo_{key}"), Payload::null()).into();
        let (key, undo) = (key.to_owned(), Some(Box::new(undo)));
        Entry::Began(Began { key, hash: None, once: false, undo })
    }

    fn ended(key: &str, ending: Ending) -> Entry {
        Entry::Ended { key: key.into(), hash: None, tries: 1, took_ms: 0, ending }
    }

    fn ok() -> Ending {
        Ending::Ok(Payload::null())
    }

    fn kinds(journal: &[Entry]) -> Vec<String> {
        undos(journal).into_iter().map(|undo| undo.job.kind).collect()
    }

    #[test]
    fn what_ended_last_is_undone_first() {
        let err = |class| Ending::Err { class, message: "no".into() };
        let mut journal = vec![
            began("a"),
            began("b"),
            began("c"),
            began("d"),
            began("e"),
            ended("b", ok()),
            ended("a", ok()),
            ended("c", err(ErrorClass::Permanent)),
            ended("d", err(ErrorClass::Ambiguous)),
        ];
        assert_eq!(kinds(&journal), ["undo_e", "undo_d", "undo_a", "undo_b"]);
        let told = undos(&journal)[0].job.payload.as_str().to_owned();
        assert!(told.contains(r#""outcome":"unknown""#), "{told}");
        journal.push(Entry::Pivot { key: "pivot".into() });
        assert!(kinds(&journal).is_empty());
        journal.extend([began("f"), ended("f", ok()), ended("e", ok())]);
        assert_eq!(kinds(&journal), ["undo_f"], "what came after the pivot is undone");
    }
}
