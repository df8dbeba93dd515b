//! Leads the code of a run through its journal, and from its end on decides what may happen.
//!
//! The code asks ([`Ask`]) under keys and is answered ([`Answer`]). What the journal has is answered from there, one
//! thing at a time and in the order of the journal, so that whatever the code makes of the order comes out the same.
//! Nothing new begins before the whole journal was told, and no step begins before what it may depend on is written.
//! When the code can go no further, [`Replay::rest`] says what is to be done for it.
//!
//! Code that differs from its journal is never led on: the difference is told, in words ([`Diff`]).

mod aside;
mod died;
mod differ;
mod family;
mod held;
mod joined;
mod noted;
mod once;
mod open;
mod renew;
mod reserve;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use jiff::Timestamp;

use crate::id::JobId;
use crate::job::outcome::ErrorClass;
use crate::payload::Payload;
use crate::workflow::JOURNAL_ENTRIES_MAX;
use crate::workflow::entry::{Began, Ending, Entry};
use crate::workflow::mail::Mailbox;
use crate::workflow::scope::scopes;
use crate::workflow::talk::{Answer, Ask, Diff, Rest, Waits};
use differ::compare;
use open::{Manner, Ops};

pub use renew::Left;

/// What the journal knows of a key.
#[derive(Debug, Clone, Default)]
struct Kept {
    word: &'static str,
    began: bool,
    once: bool,
    hash: Option<String>,
    tries: u16,
    again_at: Option<Timestamp>,
    until: Option<Timestamp>,
    ids: Option<Vec<JobId>>,
    value: Option<Payload>,
    /// What a transaction of the code's own has recorded, and the number of that entry.
    recorded: Option<(u32, u16, Payload)>,
    ended: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Op {
    /// The journal has its end; it is told when its turn comes.
    Told,
    /// It wants to begin.
    Asked {
        tries: u16,
    },
    Running,
    Sleeping {
        until: Timestamp,
    },
    /// It failed and is tried again then.
    Retrying {
        until: Timestamp,
        tries: u16,
    },
    Listening {
        name: String,
    },
    Joining {
        ids: Vec<JobId>,
        /// They go on if the code does not wait any more.
        leaves: bool,
    },
    /// It must not run twice, and began before.
    Lost,
    /// It is done at once, but not before the whole journal was told.
    Held(Ask),
    /// A transaction of the code's own has recorded what it came to.
    Recorded,
    Answered(Answer),
    /// The code has its answer, or does not want it any more.
    Over,
}

/// One run of the code of a workflow along its journal.
#[derive(Debug, Default)]
pub struct Replay {
    kept: HashMap<String, Kept>,
    /// What has ended and was not told yet, in order.
    telling: VecDeque<(u32, String, Answer)>,
    ops: Ops,
    mailbox: Mailbox,
    /// Joins of which a part was written, or is not read yet.
    pages: HashMap<String, joined::Pages>,
    /// Numbers of the entries of each key that may be forgotten once its scope has ended.
    numbers: BTreeMap<String, Vec<u32>>,
    /// Keys of the journal that the code has not come by.
    ahead: BTreeMap<String, u32>,
    /// Steps that can be undone: what they returned is kept for that.
    undoable: HashSet<String>,
    /// What is written before each further try of a step that runs at most once.
    guarded: HashMap<String, Began>,
    /// Failures for good, by their steps.
    failures: BTreeMap<String, died::Failure>,
    /// Children that were started, and whether they go on without the run.
    children: BTreeMap<JobId, bool>,
    /// Steps since the last point of no return that can be undone.
    owed: usize,
    length: u32,
    /// How many it may have, if that is not the usual number.
    entries_max: Option<u32>,
    /// Numbers of entries that transactions of the code's own write.
    reserved: HashMap<String, u32>,
    fresh: Vec<(u32, Entry)>,
    forget: Vec<u32>,
    next: u32,
    /// Before this number the journal is a copy, without children that nobody had waited for.
    copied: u32,
    in_flight: bool,
    /// The code has differed from the journal.
    is_astray: bool,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Writes {
    /// New entries, with their numbers.
    pub entries: Vec<(u32, Entry)>,
    /// Entries that others stand for now.
    pub forget: Vec<u32>,
}

impl Writes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.forget.is_empty()
    }
}

impl Replay {
    /// A run along this journal, in order.
    pub fn new(journal: impl IntoIterator<Item = (u32, Entry)>) -> Self {
        let mut replay = Self::default();
        for (number, entry) in journal {
            replay.next = number + 1;
            replay.learn(number, entry);
        }
        // A scope that has ended tells for all that was in it.
        let ended: HashSet<String> = replay.telling.iter().map(|(_, key, _)| key.clone()).collect();
        let is_inside = |key: &str| scopes(key).any(|scope| ended.contains(scope));
        replay.telling.retain(|(_, key, _)| !is_inside(key));
        replay.ahead.retain(|key, _| !is_inside(key));
        replay
    }

    /// The same of a fork, whose journal is a copy up to this number. Children that the other run had started and not
    /// waited for are not in it: they are started anew.
    #[must_use]
    pub fn copied(self, until: u32) -> Self {
        Self { copied: until, ..self }
    }

    /// The same of a run whose journal may have so many entries.
    #[must_use]
    pub fn at_most(self, entries_max: u32) -> Self {
        Self { entries_max: Some(entries_max), ..self }
    }

    fn learn(&mut self, number: u32, entry: Entry) {
        let key = entry.key().to_owned();
        self.count(number, &entry);
        self.ahead.entry(key.clone()).or_insert(number);
        let kept = self.kept.entry(key.clone()).or_default();
        let mut tell = |answer| self.telling.push_back((number, key.clone(), answer));
        match entry {
            Entry::Began(began) => {
                (kept.word, kept.began, kept.hash) = ("step", true, began.hash);
                kept.once = began.once;
                if began.once {
                    // The try that was put off has begun.
                    kept.again_at = None;
                }
            }
            Entry::Failed { tries, again_at, .. } => {
                (kept.word, kept.tries, kept.again_at) = ("step", tries, Some(again_at));
            }
            Entry::Ended { hash, ending, .. } => {
                kept.word = if kept.began || hash.is_some() { "step" } else { "step or scope" };
                (kept.hash, kept.ended) = (hash, true);
                tell(Answer::Ended(ending.clone()));
                self.learn_failure(number, &key, &ending);
            }
            Entry::Recorded { hash, tries, output, .. } => {
                (kept.word, kept.hash) = ("step", hash);
                kept.recorded = Some((number, tries, output));
            }
            Entry::Sealed { .. } => kept.word = "step",
            Entry::Died { .. } => self.learn_death(number, &key),
            Entry::Answered { .. } => kept.word = "answer",
            Entry::Slept { until, .. } => (kept.word, kept.until) = ("sleep", Some(until)),
            Entry::Woke { .. } => {
                (kept.word, kept.ended) = ("sleep", true);
                tell(Answer::Woke);
            }
            Entry::Signalled { name, number: taken, payload, .. } => {
                (kept.word, kept.ended) = ("signal", true);
                self.mailbox.forget(&name, taken);
                tell(Answer::Signal { number: taken, payload });
            }
            Entry::Passed { name, number: passed, .. } => {
                kept.word = "signal";
                self.mailbox.forget(&name, passed);
            }
            Entry::Started { ids, outlives, .. } => {
                (kept.word, kept.ids) = ("children", Some(ids.clone()));
                self.learn_started(&ids, outlives);
                self.learn_anew(&key);
            }
            Entry::Joined { ends, more, aside, .. } => {
                (kept.word, kept.ended) = ("children", !more);
                if let Some(answer) = self.learn_page(&key, ends, more, aside) {
                    if let Answer::Children(ends) = &answer {
                        self.learn_child_failure(number, &key, ends);
                    }
                    self.telling.push_back((number, key, answer));
                }
            }
            Entry::Noted { value, .. } => (kept.word, kept.value) = ("value", Some(value)),
            Entry::Pivot { .. } => kept.word = "pivot",
        }
    }

    /// Counts an entry, and notes it for when its scope ends. What tells of undos, of mail that was taken, of children
    /// that are waited for later or of the point of no return outlives that.
    fn count(&mut self, number: u32, entry: &Entry) {
        self.length += 1;
        match entry {
            Entry::Pivot { .. } => self.owed = 0,
            Entry::Began(Began { key, undo: Some(_), .. }) => {
                self.owed += usize::from(self.undoable.insert(key.clone()));
            }
            _ => {}
        }
        let stays = matches!(
            entry,
            Entry::Signalled { .. }
                | Entry::Passed { .. }
                | Entry::Pivot { .. }
                | Entry::Started { later: true, .. }
        );
        if !stays && !self.undoable.contains(entry.key()) {
            self.numbers.entry(entry.key().to_owned()).or_default().push(number);
        }
    }

    /// Whether everything the journal has was told.
    pub fn is_live(&self) -> bool {
        self.telling.is_empty()
    }

    /// The number of the entry that is told next.
    pub fn place(&self) -> u32 {
        self.telling.front().map_or(u32::MAX, |(number, ..)| *number)
    }

    /// Whether the code heard everything the journal has, or does not want it any more, and did not differ. What it
    /// asked for before that and the journal does not have, other code asked for. One that seemed to differ may have
    /// come by all of it since then.
    pub fn is_told(&self) -> bool {
        let is_astray = self.is_astray && self.end().is_err();
        let mut untold = self.telling.iter().map(|(_, key, _)| self.ops.get(key));
        !is_astray && untold.all(|op| op == Some(&Op::Over))
    }

    /// Asks for something, once per key. What needs no waiting is answered at once.
    pub fn ask(&mut self, key: &str, ask: Ask) -> Result<Option<Answer>, Diff> {
        let kept = self.kept.get(key).cloned().unwrap_or_default();
        compare(key, &ask, &kept)?;
        self.ahead.remove(key);
        let op = match ask {
            _ if kept.ended => Op::Told,
            ask if ask.is_at_once() => {
                let is_anew = matches!(ask, Ask::Start { .. }) && self.place() < self.copied;
                if kept.word.is_empty() && !self.is_at_end() && !is_anew {
                    Op::Held(ask)
                } else {
                    return Ok(self.at_once(key, kept, ask));
                }
            }
            Ask::Step { .. } if kept.recorded.is_some() => Op::Recorded,
            Ask::Step { once: true, .. } if kept.began && kept.again_at.is_none() => Op::Lost,
            Ask::Step { hash, once, announced, undo } => {
                let began = Began { key: key.to_owned(), hash, once, undo };
                if once {
                    self.guard(began, &kept);
                } else if (announced || began.undo.is_some()) && !kept.began {
                    self.push(Entry::Began(began));
                }
                match kept.again_at {
                    Some(until) => Op::Retrying { until, tries: kept.tries },
                    None => Op::Asked { tries: 0 },
                }
            }
            Ask::Scope => {
                self.ops.close(key, Op::Running);
                return Ok(Some(Answer::Go { tries: 0 }));
            }
            Ask::Sleep { until } => {
                let until = kept.until.unwrap_or_else(|| {
                    self.push(Entry::Slept { key: key.to_owned(), until });
                    until
                });
                Op::Sleeping { until }
            }
            Ask::Signal { name } => Op::Listening { name },
            ask @ Ask::Children { .. } if self.starts_anew(key) => Op::Held(ask),
            Ask::Children { kind, ids, outlives } => self.raise(key, kept, (kind, ids), outlives),
            Ask::Join { id } => Op::Joining { ids: vec![id], leaves: true },
            Ask::Version { min, max } => return self.version(key, kept, min, max).map(Some),
            Ask::Start { .. } | Ask::Note { .. } | Ask::Answer { .. } | Ask::Pivot => {
                return Ok(None);
            }
        };
        self.ops.open(key, op);
        Ok(None)
    }

    /// Whether the journal knows of this key.
    pub fn knows(&self, key: &str) -> bool {
        self.kept.contains_key(key)
    }

    /// The answer for a key, if there is one; it is given once.
    pub fn answer(&mut self, key: &str) -> Option<Answer> {
        if self.aside(key).is_some() {
            return None;
        }
        let op = self.ops.get_mut(key)?;
        match std::mem::replace(op, Op::Over) {
            Op::Answered(answer @ Answer::Go { .. }) => {
                *op = Op::Running;
                Some(answer)
            }
            Op::Answered(answer) => Some(answer),
            other => {
                *op = other;
                None
            }
        }
    }

    /// A step or scope has ended; the code knows.
    pub fn ended(
        &mut self,
        key: &str,
        hash: Option<String>,
        tries: u16,
        took_ms: u64,
        ending: Ending,
    ) {
        self.close(key);
        let inside = format!("{key}/");
        // Only what is inside is looked at: a run may have ended ten thousand steps before this one.
        let within = self.numbers.range(inside.clone()..).map(|(of, _)| of);
        let within: Vec<String> =
            within.take_while(|of| of.starts_with(&inside)).cloned().collect();
        for number in within.iter().filter_map(|of| self.numbers.remove(of)).flatten() {
            match self.fresh.iter().position(|(of, _)| *of == number) {
                Some(at) => drop(self.fresh.remove(at)),
                None => self.forget.push(number),
            }
            self.length -= 1;
        }
        self.forget.extend(self.reserved.remove(key));
        self.supersede(key);
        self.learn_failure(self.next, key, &ending);
        self.push(Entry::Ended { key: key.to_owned(), hash, tries, took_ms, ending });
    }

    /// A step failed and is to be tried again then.
    pub fn failed(&mut self, key: &str, tries: u16, message: &str, again_at: Timestamp) {
        self.ops.set(key, Op::Retrying { until: again_at, tries });
        let (key, message) = (key.to_owned(), message.to_owned());
        self.push(Entry::Failed { key, tries, message, again_at });
    }

    /// The code does not wait for this any more. Answers the children that nobody waits for now.
    pub fn leave(&mut self, key: &str) -> Vec<JobId> {
        match self.close(key) {
            Some(Op::Joining { ids, leaves: false }) => ids,
            _ => Vec::new(),
        }
    }

    fn close(&mut self, key: &str) -> Option<Op> {
        self.ops.close(key, Op::Over)
    }

    /// Mail was read.
    pub fn read(&mut self, mail: impl IntoIterator<Item = crate::workflow::Mail>) {
        self.mailbox.read(mail);
    }

    /// Up to where mail was read.
    pub fn mail_read(&self) -> i64 {
        self.mailbox.last()
    }

    /// What to do, now that the code goes no further by itself.
    pub fn rest(&mut self, now: Timestamp) -> Rest {
        self.is_astray = false;
        while let Some((number, key, answer)) = self.telling.pop_front() {
            match self.ops.get(&key) {
                Some(Op::Over) => {}
                Some(_) => return self.deliver(key, answer),
                None => {
                    let heard = self.tell_failure(number);
                    let rest = heard.unwrap_or_else(|| self.untold(number, &key));
                    self.telling.push_front((number, key, answer));
                    return rest;
                }
            }
        }
        let rest = self.missed_failure().or_else(|| self.let_held());
        let rest = rest.or_else(|| self.passed_by()).or_else(|| self.come(now));
        if let Some(rest) = rest {
            return rest;
        }
        if self.ops.by(Manner::Asked).next().is_some() && !self.in_flight {
            if !self.fresh.is_empty() {
                return Rest::Flush;
            }
            let asked: Vec<String> = self.ops.by(Manner::Asked).cloned().collect();
            for key in &asked {
                if let Some(Op::Asked { tries }) = self.ops.get(key) {
                    let go = Op::Answered(Answer::Go { tries: *tries });
                    self.ops.set(key, go);
                }
            }
            return Rest::Go(asked);
        }
        let waits = self.waits();
        let is_running = self.ops.by(Manner::Runs).next().is_some();
        let busy = Rest::Busy { until: waits.until, mail: waits.mail_min > 0 };
        if self.in_flight {
            return busy;
        }
        match (is_running, self.fresh.is_empty()) {
            (false, _) if !waits.what.is_empty() => Rest::Wait(waits),
            (_, false) => Rest::Flush,
            (true, true) => busy,
            (false, true) => Rest::Idle,
        }
    }

    fn deliver(&mut self, key: String, answer: Answer) -> Rest {
        self.ops.close(&key, Op::Answered(answer));
        Rest::Deliver(key)
    }

    /// Something that was waited for has come: the first of it, by its time.
    fn come(&mut self, now: Timestamp) -> Option<Rest> {
        let came = |key: &String| {
            let at = match self.ops.get(key)? {
                Op::Lost | Op::Recorded => Some(Timestamp::MIN),
                Op::Sleeping { until } | Op::Retrying { until, .. } => {
                    Some(*until).filter(|until| *until <= now)
                }
                // What was read has come, whatever our clock says.
                Op::Listening { name } => self.mailbox.first(name),
                // A page is written alone, so not while something else is.
                Op::Joining { ids, .. } => {
                    let may = !self.in_flight || self.is_last_page(key, ids);
                    self.mailbox.all_ended(ids).filter(|_| may)
                }
                _ => None,
            };
            at.map(|at| (at, key.clone()))
        };
        let (_, key) = self.ops.by(Manner::Waits).filter_map(came).min_by_key(|(at, _)| *at)?;
        let answer = match self.ops.get(&key)?.clone() {
            Op::Retrying { tries, .. } => {
                self.begin_again(&key);
                self.ops.set(&key, Op::Asked { tries });
                return Some(self.rest(now));
            }
            Op::Lost => {
                let message = "it began before, and nobody knows what became of it".to_owned();
                let ending = Ending::Err { class: ErrorClass::Ambiguous, message };
                let kept = self.kept.get(&key)?;
                let (hash, tries) = (kept.hash.clone(), kept.tries.saturating_add(1));
                self.ended(&key, hash, tries, 0, ending.clone());
                Answer::Ended(ending)
            }
            Op::Recorded => {
                let kept = self.kept.get(&key)?;
                let ((number, tries, output), hash) = (kept.recorded.clone()?, kept.hash.clone());
                self.reserved.insert(key.clone(), number);
                let ending = Ending::Ok(output);
                self.ended(&key, hash, tries, 0, ending.clone());
                Answer::Ended(ending)
            }
            Op::Listening { name } => {
                let (number, payload) = self.mailbox.take(&name)?;
                let (key, carried) = (key.clone(), payload.clone());
                self.push(Entry::Signalled { key, name, number, payload: carried });
                Answer::Signal { number, payload }
            }
            Op::Joining { ids, .. } => return Some(self.join(key, &ids)),
            _ => {
                self.push(Entry::Woke { key: key.clone() });
                Answer::Woke
            }
        };
        Some(self.deliver(key, answer))
    }

    fn waits(&self) -> Waits {
        let mut waits = Waits::default();
        let mut useful: Option<usize> = None;
        for key in self.ops.by(Manner::Waits) {
            let (word, until, mail) = match self.ops.get(key) {
                Some(Op::Sleeping { until }) => ("sleep", Some(*until), None),
                Some(Op::Retrying { until, .. }) => ("retry of", Some(*until), None),
                Some(Op::Listening { .. }) => ("signal", None, Some(1)),
                Some(Op::Joining { ids, .. }) => ("children", None, Some(self.mailbox.left(ids))),
                _ => continue,
            };
            waits.until = waits.until.into_iter().chain(until).min();
            useful = useful.into_iter().chain(mail).min();
            waits.what.push(format!("{word} {key}"));
        }
        waits.mail_min = useful.unwrap_or(0);
        waits
    }

    /// Whether there is something to write.
    pub fn has_news(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// What is to be written, given away.
    pub fn take(&mut self) -> Writes {
        Writes {
            entries: std::mem::take(&mut self.fresh),
            forget: std::mem::take(&mut self.forget),
        }
    }

    /// What was taken is being written: no step begins before [`written`](Self::written).
    pub fn flies(&mut self) {
        self.in_flight = true;
    }

    /// What was taken last is written.
    pub fn written(&mut self) {
        self.in_flight = false;
    }

    /// How many entries the journal may have, if it has more.
    pub fn is_too_long(&self) -> Option<u32> {
        let entries_max = self.entries_max.unwrap_or(JOURNAL_ENTRIES_MAX);
        (self.length > entries_max).then_some(entries_max)
    }

    fn push(&mut self, entry: Entry) {
        let number = self.next;
        self.next += 1;
        self.count(number, &entry);
        self.fresh.push((number, entry));
    }
}

#[cfg(test)]
mod tests;
