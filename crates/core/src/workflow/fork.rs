//! Forks: a new run goes on from a step of another one. What it gets of the journal is decided here.
//!
//! It gets what the code of the other run had heard by then. What is still open is done anew, by the new run: steps
//! that were being tried, children that had not ended. What the other run has to undo stays its own, and its mail
//! stays its own mail.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::job::{Due, Job, NewJob};
use crate::workflow::entry::{Began, Entry};
use crate::workflow::scope::{left_of_scopes, not_inside};
use crate::workflow::undo::undos;

/// Whose the beginning of a journal is: chance gives at these places what it gave that run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Origin {
    /// The run.
    pub run: JobId,
    /// Up to before the entry of this number.
    pub until: u32,
}

/// What a fork gets of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct Forked {
    /// The entries before this number, but for these.
    pub until: u32,
    /// Entries that it gets otherwise than they are.
    pub changed: Vec<(u32, Entry)>,
    /// Entries that it does not get.
    pub dropped: Vec<u32>,
    /// The steps before that the other run would undo if it were called off now.
    pub owed: Vec<String>,
}

/// What a fork gets that goes on from this step; or why there is none.
pub fn fork(journal: &[(u32, Entry)], to: &str) -> Result<Forked, String> {
    let Some(end) = journal.iter().position(|(_, entry)| entry.key() == to) else {
        return Err(format!("its journal has nothing under {to:?}"));
    };
    not_inside(journal, to, "fork from that")?;
    let gone = left_of_scopes(journal, journal[end].0);
    let before: Vec<&(u32, Entry)> =
        journal[..end].iter().filter(|(number, _)| !gone.contains(number)).collect();
    let owed = undos(before.iter().map(|(_, entry)| entry)).into_iter().map(|undo| undo.key);
    let mut forked =
        Forked { until: 0, changed: Vec::new(), dropped: Vec::new(), owed: owed.collect() };
    forked.dropped.extend(gone);
    let heard = Heard::of(&before);
    for (number, entry) in before {
        match heard.copied(entry) {
            None => forked.dropped.push(*number),
            Some(copied) => {
                forked.until = number + 1;
                if copied != *entry {
                    forked.changed.push((*number, copied));
                }
            }
        }
    }
    // What comes after the last entry is not there.
    forked.dropped.retain(|number| *number < forked.until);
    forked.dropped.sort_unstable();
    Ok(forked)
}

/// What the code had heard of.
struct Heard<'a> {
    ended: HashSet<&'a str>,
    joined: HashSet<JobId>,
}

impl<'a> Heard<'a> {
    fn of(journal: &[&'a (u32, Entry)]) -> Self {
        let mut heard = Self { ended: HashSet::new(), joined: HashSet::new() };
        for (_, entry) in journal {
            match entry {
                Entry::Ended { key, .. }
                | Entry::Recorded { key, .. }
                | Entry::Joined { key, more: false, .. } => {
                    heard.ended.insert(key);
                }
                _ => {}
            }
        }
        // Of a join that was not told whole, the code has heard nothing.
        for (_, entry) in journal {
            if let Entry::Joined { key, ends, .. } = entry
                && heard.ended.contains(key.as_str())
            {
                heard.joined.extend(ends.iter().map(|end| end.id));
            }
        }
        heard
    }

    /// The entry as a fork gets it.
    fn copied(&self, entry: &Entry) -> Option<Entry> {
        match entry {
            Entry::Began(began) => {
                // One that runs at most once may have run.
                let stays = began.once || self.ended.contains(began.key.as_str());
                stays.then(|| Entry::Began(Began { undo: None, ..began.clone() }))
            }
            Entry::Failed { key, .. } | Entry::Joined { key, .. } => {
                self.ended.contains(key.as_str()).then(|| entry.clone())
            }
            Entry::Started { ids, .. } => {
                ids.iter().all(|id| self.joined.contains(id)).then(|| entry.clone())
            }
            // Its own mail is another.
            Entry::Died { .. } | Entry::Passed { .. } => None,
            // Pieces of its own mail have these numbers.
            Entry::Signalled { key, name, payload, .. } => Some(Entry::Signalled {
                key: key.clone(),
                name: name.clone(),
                number: 0,
                payload: payload.clone(),
            }),
            other => Some(other.clone()),
        }
    }
}

impl Forked {
    /// The job of a fork of this one. It holds no unique key, is of no flow, and nobody waits for it yet.
    pub fn job(&self, of: &Job, id: JobId) -> NewJob {
        let mut options = of.options.clone();
        (options.parent, options.flow) = (None, None);
        let (kept, later): (Vec<Origin>, Vec<Origin>) =
            options.origins.into_iter().partition(|origin| origin.until < self.until);
        options.origins = kept;
        if self.until > 0 {
            let run = later.first().map_or(of.id, |origin| origin.run);
            options.origins.push(Origin { run, until: self.until });
        }
        NewJob {
            id,
            kind: of.kind.clone(),
            queue: of.queue.clone(),
            priority: of.priority,
            due: Due::Now,
            tenant: of.tenant.clone(),
            key: of.key.clone(),
            unique: None,
            payload: of.payload.clone(),
            options,
        }
    }
}

/// From whose chance a run draws that has been told everything before this entry.
pub fn drawn_from(run: JobId, origins: &[Origin], place: u32) -> JobId {
    origins.iter().find(|origin| place < origin.until).map_or(run, |origin| origin.run)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::job::state::State;
    use crate::job::{Options, Priority};
    use crate::payload::Payload;
    use crate::workflow::entry::{ChildEnd, Ending};

    fn began(key: &str, once: bool) -> Entry {
        let undo = Some(Box::new(NewJob::new("undo", Payload::null()).into()));
        Entry::Began(Began { key: key.into(), hash: None, once, undo })
    }

    fn ended(key: &str) -> Entry {
        let ending = Ending::Ok(Payload::null());
        Entry::Ended { key: key.into(), hash: None, tries: 1, took_ms: 0, ending }
    }

    fn started(key: &str, id: JobId) -> Entry {
        let (kind, ids) = ("k".to_owned(), vec![id]);
        Entry::Started { key: key.into(), kind, ids, outlives: false, later: false }
    }

    #[test]
    fn a_fork_gets_what_was_heard_and_does_the_rest_anew() {
        let (first, second) = (JobId::new(), JobId::new());
        let end = ChildEnd { id: first, state: State::Done, output: None, error: None };
        let signalled = Entry::Signalled {
            key: "s".into(),
            name: "s".into(),
            number: 7,
            payload: Payload::null(),
        };
        let entries = vec![
            began("a", false),
            ended("a"),
            began("b", false),
            began("c", true),
            started("d", first),
            Entry::Joined { key: "d".into(), ends: vec![end], more: false, aside: None },
            signalled,
            started("e", second),
            ended("to"),
            ended("later"),
        ];
        let journal: Vec<(u32, Entry)> = (0..).zip(entries).collect();
        let forked = fork(&journal, "to").unwrap();
        assert_eq!((forked.until, forked.dropped), (7, vec![2]), "the open child is behind it");
        let changed: Vec<u32> = forked.changed.iter().map(|(number, _)| *number).collect();
        assert_eq!(changed, [0, 3, 6], "undos and numbers of mail are the other run's");
        assert_eq!(forked.owed, ["c", "b", "a"]);
        assert!(fork(&journal, "nowhere").is_err());
    }

    #[test]
    fn a_fork_gets_nothing_of_a_scope_that_ended_later() {
        let entries = vec![ended("a"), began("s/x", false), ended("s/x"), ended("b"), ended("s")];
        let journal: Vec<(u32, Entry)> = (0..).zip(entries).collect();
        let forked = fork(&journal, "s").unwrap();
        assert_eq!((forked.until, forked.dropped), (4, vec![1, 2]));
        assert!(forked.owed.is_empty(), "it builds on nothing that would be undone");
        let inside = fork(&journal, "s/x").unwrap_err();
        assert!(inside.contains("which has ended: fork from that"), "{inside}");
    }

    #[test]
    fn a_fork_of_a_fork_draws_from_whoever_came_first_by() {
        let of = Job {
            id: JobId::new(),
            kind: "k".into(),
            queue: "q".into(),
            priority: Priority::Normal,
            tenant: None,
            key: None,
            unique_key: Some("u".into()),
            payload: Payload::null(),
            options: Options::default(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        let forked =
            |until| Forked { until, changed: Vec::new(), dropped: Vec::new(), owed: Vec::new() };
        let first = forked(5).job(&of, JobId::new());
        assert_eq!(first.unique, None);
        let again = Job { id: first.id, options: first.options, ..of.clone() };
        for (until, from) in [(3, [of.id, of.id, again.id]), (8, [of.id, of.id, again.id])] {
            let job = forked(until).job(&again, JobId::new());
            let from_at = |place| drawn_from(job.id, &job.options.origins, place);
            let last = if until == 3 { job.id } else { from[2] };
            assert_eq!([from_at(0), from_at(2), from_at(6)], [from[0], from[1], last], "{until}");
            assert_eq!(from_at(8), job.id);
        }
        assert!(forked(0).job(&of, JobId::new()).options.origins.is_empty());
    }
}
