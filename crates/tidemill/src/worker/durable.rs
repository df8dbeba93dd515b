//! A handler's journal: what makes its context durable.
//!
//! Everything durable that a handler awaits is an [`Op`]: it asks the run's [`Replay`] under a key and waits for the
//! answer. The attempt's driver (`drive`) polls the handler and, when that can go no further, does what the replay
//! says: lets it go on, writes the journal, or lets the run wait without holding anything.
//! A handler that asks for nothing durable pays nothing.

mod child;
pub(crate) mod drive;
pub(crate) mod looking;
mod object;
mod renew;
mod signal;
mod sleep;
mod step;
mod together;
mod transaction;
mod update;
mod value;
mod wakes;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread::ThreadId;

use jiff::Timestamp;
use tidemill_core::workflow::{
    Answer, Ask, Diff, Entry, Keys, Left, Mail, ParkCode, Parked, Replay,
};
use tidemill_core::{JobId, NewJob, Payload, WorkerId};
use tidemill_store::run::{Keep, Renewal, RunWrites};

use self::looking::Calls;
use crate::testing::Crash;
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::shop::locked;

pub use child::{Child, Children, Started};
pub use object::Object;
pub use step::{Step, StepContext};
pub use together::{First, First3, First4, Race};
pub use transaction::{Proof, Recorder, Transaction};
pub use update::Update;

/// A handler that wakes itself this often without asking for anything durable waits for something else.
const IDLE_POLLS: usize = 64;

/// The durable side of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Run {
    told: Mutex<Told>,
    /// It follows a history that was recorded: no body of a step runs, and nothing is read or written.
    is_recorded: bool,
}

/// Why an attempt cannot go on, whatever its handler would say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trouble {
    /// The run is parked until somebody has seen to it.
    Park(Parked),
    /// The attempt ends with this.
    Fail(Fail),
    /// Its lease was lost.
    Stale,
    /// It continues anew with this payload, and leaves this behind.
    Renew(Payload, Left),
}

impl Trouble {
    fn park(code: ParkCode, why: impl Into<String>) -> Self {
        Self::Park(code.because(why))
    }
}

/// How the run ends with its attempt, as far as its journal has to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Well.
    Done,
    /// It is dead.
    Dead,
    /// It goes on, or is called off.
    Open,
}

/// Who is being polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Polled {
    #[default]
    Nobody,
    /// The handler: what it drops now, it does not want any more.
    Handler,
    /// The body of a step: nothing durable may be asked for now.
    Body,
}

/// Who runs an attempt.
#[derive(Debug)]
struct Runner {
    worker: WorkerId,
    /// At which write it dies in a test.
    crash: Option<Crash>,
    /// Nothing of it is in a store, nor is to come there.
    is_inline: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Told {
    keys: Keys,
    runner: Option<Runner>,
    /// `None` until the journal was read.
    replay: Option<Replay>,
    /// Something durable was asked for.
    wanted: bool,
    /// Who waits for an answer.
    wakers: HashMap<String, Waker>,
    /// How often something durable was asked for, or answered.
    asked: u64,
    /// Bodies of steps that have woken themselves: they are polled again when all else is at rest.
    put_off: Vec<Waker>,
    polled: Polled,
    /// The thread that polls the handler.
    thread: Option<ThreadId>,
    /// Wakes the attempt's driver.
    driver: Option<Waker>,
    /// Something of the run is in the store.
    begun: bool,
    children: Vec<NewJob>,
    unwanted: Vec<JobId>,
    /// How many were unwanted before the poll in which the handler ended, if it has.
    unwanted_before: Option<usize>,
    /// What the run shows of itself from now on, not written yet.
    shown: Option<Payload>,
    /// The same from before the journal was read: whether it is new is not known.
    said: Option<Payload>,
    answers: Vec<(i64, String)>,
    renewal: Option<(Payload, Left)>,
    object: Option<Keep>,
    /// What is asked of the store at this moment, beside the journal.
    calls: Calls,
    owes: bool,
    trouble: Option<Trouble>,
    /// The steps whose failure the handler has ended with.
    blamed: Vec<String>,
    /// What is being written.
    flying: Option<RunWrites>,
}

impl Run {
    /// One of which nothing can be in the store yet.
    pub(crate) fn fresh() -> Self {
        Self::of(Replay::default(), false)
    }

    /// One whose journal, copied up to a number, and mail are these, and that is only looked at.
    pub(crate) fn recorded(
        journal: impl IntoIterator<Item = (u32, Entry)>,
        mail: impl IntoIterator<Item = Mail>,
        copied: u32,
    ) -> Self {
        let mut replay = Replay::new(journal).copied(copied);
        replay.read(mail);
        Self::of(replay, true)
    }

    fn of(replay: Replay, is_recorded: bool) -> Self {
        let told = Told { replay: Some(replay), begun: is_recorded, ..Told::default() };
        Self { told: Mutex::new(told), is_recorded }
    }

    /// Whether it only follows what was recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }

    /// What the journal has and the handler, which has ended, did not come by.
    pub(crate) fn left_out(&self) -> Option<Diff> {
        let told = self.told();
        told.replay.as_ref().and_then(|replay| replay.end().err())
    }

    /// Whether the handler asked for something durable, which is written with its end.
    pub(crate) fn keeps(&self) -> bool {
        let told = self.told();
        told.wanted || told.object.is_some()
    }

    /// The handler gave something that cannot be kept: if it is a run, it is parked.
    pub(crate) fn refuse(&self, why: String) {
        let mut told = self.told();
        if told.wanted {
            told.park(ParkCode::ValueRefused.because(why));
        }
    }

    /// The handler has ended with this.
    pub(crate) fn ended_with(&self, fail: &Fail) {
        self.told().blamed = fail.steps().map(str::to_owned).collect();
    }

    /// Whether a transaction of the handler's own may still be writing into the journal.
    pub(crate) fn is_recording(&self) -> bool {
        self.told().replay.as_ref().is_some_and(Replay::has_reserved)
    }

    /// What is to be written with the end of the attempt; `None` when nothing durable was asked for.
    pub(crate) fn last_writes(&self, version: &str, end: End, now: Timestamp) -> Option<RunWrites> {
        let mut told = self.told();
        // Code that did not follow its journal to the end leaves no trace in it: whoever mends it finds what was there.
        if told.replay.as_ref().is_some_and(|replay| !replay.is_told()) {
            return None;
        }
        let blamed = std::mem::take(&mut told.blamed);
        if let (End::Dead, Some(replay)) = (end, told.replay.as_mut()) {
            for step in &blamed {
                replay.died(step);
            }
        }
        if let Some(replay) = told.replay.as_mut() {
            replay.let_go(now);
        }
        let is_done = end == End::Done;
        if !is_done && let Some(before) = told.unwanted_before {
            // What it dropped with its end, it may ask for again in its next attempt.
            told.unwanted.truncate(before);
        }
        let renewal = told.renewal.take();
        // A turn that ends in the next one has ended well too.
        let object = told.object.take().filter(|_| is_done || renewal.is_some());
        // A write that was cut off may have been made or not: made twice, it is made once.
        let flying = told.flying.take();
        let mut writes = told.writes(version).unwrap_or_default();
        if let Some(mut before) = flying {
            before.entries.append(&mut writes.entries);
            before.values.append(&mut writes.values);
            before.forget.append(&mut writes.forget);
            before.children.append(&mut writes.children);
            before.cancel.append(&mut writes.cancel);
            before.answers.append(&mut writes.answers);
            writes = RunWrites {
                begins: before.begins.or(writes.begins),
                state: writes.state.or(before.state),
                owes: writes.owes || before.owes,
                ..before
            };
        }
        if let Some((payload, left)) = renewal {
            writes.entries.clear();
            writes.values.clear();
            writes.forget.clear();
            writes.cancel.extend(left.children);
            let (version, taken) = (version.to_owned(), left.taken);
            writes.renewal = Some(Renewal { payload, version, taken });
        }
        writes.object = object;
        (!writes.is_empty()).then_some(writes)
    }
}

impl Told {
    /// The handler is about to be polled by the driver's task. Answers how many children are unwanted so far, and how
    /// often something was asked for.
    fn poll_begins(&mut self, driver: &Waker) -> (usize, u64) {
        self.polled = Polled::Handler;
        self.thread = Some(std::thread::current().id());
        if !self.driver.as_ref().is_some_and(|waker| waker.will_wake(driver)) {
            self.driver = Some(driver.clone());
        }
        (self.unwanted.len(), self.asked)
    }

    /// How often in a row a handler that asks for nothing may wake itself before it is taken to be at rest. Nested
    /// combinators do that while there is anybody among those who wait whom they have not looked at.
    fn idle_max(&self) -> usize {
        IDLE_POLLS + 4 * self.wakers.len()
    }

    /// Whether this is not the handler's own task: nobody knows in which order others ask.
    fn is_outside(&self) -> bool {
        self.polled == Polled::Nobody || self.thread != Some(std::thread::current().id())
    }

    /// The journal was read.
    fn learn(&mut self, replay: Replay) {
        // What the code had said by now was written with the first entry, if there is one.
        let said = self.said.take().filter(|_| replay.is_live());
        self.shown = self.shown.take().or(said);
        self.replay = Some(replay);
    }

    /// The run shows this from now on.
    fn show(&mut self, state: Payload) {
        self.wanted = true;
        match self.replay.as_ref().map(Replay::is_live) {
            None => self.said = Some(state),
            Some(true) => self.shown = Some(state),
            // What is only told again was shown before.
            Some(false) => return,
        }
        if self.is_outside()
            && let Some(driver) = self.driver.take()
        {
            driver.wake();
        }
    }

    fn park(&mut self, why: Parked) {
        self.trouble.get_or_insert(Trouble::Park(why));
    }

    /// Why what the handler has ended with does not count: it gave a value that cannot be kept.
    fn refused(&self) -> Option<Parked> {
        match &self.trouble {
            Some(Trouble::Park(why)) if why.code == ParkCode::ValueRefused => Some(why.clone()),
            _ => None,
        }
    }

    /// How many items of this map hold no place of it. The task is woken when that is another number.
    fn passed(&mut self, map: &str, task: &Waker) -> usize {
        let Some(passed) = self.replay.as_ref().and_then(|replay| replay.passed(map)) else {
            return 0;
        };
        self.wakers.insert(map.to_owned(), task.clone());
        passed
    }

    fn wake(&mut self, key: &str) {
        if let Some(waker) = self.wakers.remove(key) {
            waker.wake();
        }
    }

    /// What has gathered to be written.
    fn writes(&mut self, version: &str) -> Option<RunWrites> {
        let replay = self.replay.as_mut()?;
        let made = replay.take();
        let mut entries = Vec::with_capacity(made.entries.len());
        let mut values = Vec::new();
        for (number, mut entry) in made.entries {
            values.extend(entry.put_aside(number).map(|value| (number, value)));
            match serde_json::to_string(&entry) {
                Ok(text) => entries.push((number, text)),
                Err(error) => {
                    let why = format!("an entry cannot be written: {error}");
                    let park = Trouble::park(ParkCode::ValueRefused, why);
                    self.trouble.get_or_insert(park);
                }
            }
        }
        let mut writes = RunWrites {
            begins: None,
            entries,
            values,
            forget: made.forget,
            state: self.shown.take(),
            owes: std::mem::take(&mut self.owes),
            children: std::mem::take(&mut self.children),
            cancel: std::mem::take(&mut self.unwanted),
            answers: std::mem::take(&mut self.answers),
            renewal: None,
            object: None,
        };
        if !writes.is_empty() && !std::mem::replace(&mut self.begun, true) {
            writes.begins = Some(version.to_owned());
        }
        Some(writes)
    }
}

/// Something durable that the handler waits for.
pub(crate) struct Op {
    cx: Context,
    key: String,
    ask: Option<Ask>,
    is_over: bool,
}

impl Op {
    pub(crate) fn new(cx: &Context, key: String, ask: Ask) -> Self {
        Self { cx: cx.clone(), key, ask: Some(ask), is_over: false }
    }

    /// Waits for the answer. `Go` may be followed by another one.
    pub(crate) async fn answer(&mut self) -> Answer {
        std::future::poll_fn(|task| {
            let mut told = self.cx.run().told();
            told.wanted = true;
            if told.is_outside() {
                let key = &self.key;
                let why = format!("{key:?} was asked for in another task; use join, map or race");
                told.park(ParkCode::Misplaced.because(why));
                if let Some(driver) = told.driver.take() {
                    driver.wake();
                }
                return Poll::Pending;
            }
            if told.polled == Polled::Body {
                let why = format!("{:?} was asked for in the body of a step", self.key);
                told.park(ParkCode::Misplaced.because(why));
            }
            let asked = match (told.replay.as_mut(), self.ask.take()) {
                (None, ask) => {
                    self.ask = ask;
                    None
                }
                (Some(replay), Some(ask)) => {
                    let asked = replay.ask(&self.key, ask);
                    told.asked += 1;
                    asked.unwrap_or_else(|diff| {
                        told.park(diff.into());
                        None
                    })
                }
                (Some(replay), None) => replay.answer(&self.key),
            };
            if let Some(answer) = asked {
                told.asked += 1;
                self.is_over = !matches!(answer, Answer::Go { .. });
                return Poll::Ready(answer);
            }
            told.wakers.insert(self.key.clone(), task.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Acts on the replay.
    fn with<T>(&self, act: impl FnOnce(&mut Replay, &str) -> T) -> Option<T> {
        self.cx.run().told().replay.as_mut().map(|replay| act(replay, &self.key))
    }

    /// Never goes on: the driver ends the attempt.
    async fn stop<T>(&self, trouble: Trouble) -> T {
        self.cx.run().told().trouble.get_or_insert(trouble);
        std::future::pending().await
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        let mut told = self.cx.run().told();
        told.wakers.remove(&self.key);
        if self.is_over || told.polled == Polled::Nobody || self.ask.is_some() {
            return;
        }
        if let Some(replay) = told.replay.as_mut() {
            let unwanted = replay.leave(&self.key);
            told.unwanted.extend(unwanted);
        }
    }
}

impl Context {
    /// The key of the next thing of this name, given now.
    fn next_key(&self, name: &str) -> String {
        let mut told = self.run().told();
        if let Err(error) = check_name(name) {
            told.park(ParkCode::StepInvalid.because(error));
        }
        told.keys.next(self.path(), name)
    }

    /// Parks the run, since something of it cannot be kept, and never goes on.
    async fn refuse<T>(&self, why: String) -> T {
        self.run().told().park(ParkCode::ValueRefused.because(why));
        std::future::pending().await
    }

    /// The key of something that is named by a kind or a name, which may hold what keys are made of.
    fn key_of(&self, what: &str, name: &str) -> String {
        self.run().told().keys.next(self.path(), &whole_name(what, name))
    }
}

/// A name that may hold what keys are made of, after what it names.
fn whole_name(what: &str, name: &str) -> String {
    format!("{what}{}", name.replace(KEY_SIGNS, "_"))
}

/// What keys are made of beside names.
const KEY_SIGNS: [char; 4] = ['/', '#', '[', ']'];

fn check_name(name: &str) -> Result<(), String> {
    let bytes_max = tidemill_core::workflow::STEP_NAME_BYTES_MAX;
    if name.is_empty() || name.len() > bytes_max {
        return Err(format!(
            "the name {name:?} has {} bytes; 1 to {bytes_max} are allowed",
            name.len()
        ));
    }
    if name.contains(KEY_SIGNS) {
        return Err(format!("the name {name:?} has one of / # [ ], which keys are made of"));
    }
    Ok(())
}
