//! Drives an attempt: polls its handler and, when that goes no further, does what the replay of its journal says.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tidemill_core::job::outcome::Waiting;
use tidemill_core::workflow::{Entry, Mail, ParkCode, Parked, Replay, Rest, UNDOS_MAX, Waits};
use tidemill_core::{Job, Payload, WorkerId};
use tidemill_store::run::{Append, EntryRow, RunView};

use super::looking::For;
use super::wakes::Noted;
use super::{Polled, Runner, Told, Trouble};
use crate::testing::{Crash, Strike};
use crate::worker::context::Context;
use crate::worker::fail::Fail;
use crate::worker::registry::panic_message;
use crate::worker::shop::Shop;

/// A wait this short stays in memory: to let go of the run and take it up again costs more.
const SHORT: Duration = Duration::from_secs(1);

/// So long code may wait for something of its own before it comes by what the journal has. It has done so before, and
/// nothing else of it runs. What it waits for at the store does not count.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of an attempt.
pub(crate) enum Driven<T> {
    /// The handler ended.
    Ended(T),
    /// The run waits. Nothing of it is kept in memory.
    Waits(Waiting),
    /// It ends, whatever the handler would say.
    Fails(Fail),
    /// It was told to end, and nothing of it runs.
    Told,
    /// Its lease was lost.
    Stale,
    /// It follows what was recorded, and has come to where something new would be done.
    Stands(Stand),
}

/// Where the code of a recorded run stands, when it can go no further without doing something.
#[derive(Debug)]
pub(crate) enum Stand {
    /// These steps would begin.
    Begins(Vec<String>),
    /// It would wait.
    Waits(Waits),
    /// It would continue anew.
    Renews,
    /// It would be parked.
    Parks(Parked),
}

type Loaded = tidemill_store::Result<(Vec<EntryRow>, Option<RunView>)>;

/// Drives the handler of an attempt to its end, or to where it waits.
pub(crate) async fn drive<T>(
    cx: &Context,
    shop: &Shop,
    work: impl Future<Output = T>,
) -> Driven<T> {
    let mut work = pin!(work);
    let mut driver = Driver::new(cx, shop);
    let (worker, crash, is_inline) = (driver.worker, driver.crash.cloned(), driver.is_inline);
    cx.run().told().runner = Some(Runner { worker, crash, is_inline });
    let noted = Arc::new(Noted::default());
    let own = Waker::from(Arc::clone(&noted));
    poll_fn(|task| {
        noted.wakes(task.waker());
        // How often it was polled in a row because it has woken itself, and asked for nothing meanwhile.
        let mut idle = 0;
        loop {
            noted.was_woken();
            let (unwanted, asked) = cx.run().told().poll_begins(task.waker());
            let polled = work.as_mut().poll(&mut Task::from_waker(&own));
            let mut told = cx.run().told();
            told.polled = Polled::Nobody;
            if let Poll::Ready(ended) = polled {
                told.unwanted_before = Some(unwanted);
                return Poll::Ready(match told.refused() {
                    Some(why) if cx.run().is_recorded() => Driven::Stands(Stand::Parks(why)),
                    Some(why) => Driven::Waits(parked(cx, why)),
                    None => Driven::Ended(ended),
                });
            }
            idle = if told.asked == asked { idle + 1 } else { 0 };
            if noted.was_woken() && idle <= told.idle_max() {
                continue;
            }
            idle = 0;
            drop(told);
            match driver.go_on(task) {
                Poll::Ready(Next::Again) => {}
                Poll::Ready(Next::Over(over)) => return Poll::Ready(over.into()),
                Poll::Pending => {
                    let put_off = std::mem::take(&mut cx.run().told().put_off);
                    put_off.into_iter().for_each(Waker::wake);
                    return Poll::Pending;
                }
            }
        }
    })
    .await
}

enum Next {
    /// Let the handler go on.
    Again,
    Over(Over),
}

enum Over {
    Waits(Waiting),
    Fails(Fail),
    Told,
    Stale,
    Stands(Stand),
}

impl<T> From<Over> for Driven<T> {
    fn from(over: Over) -> Self {
        match over {
            Over::Waits(waiting) => Self::Waits(waiting),
            Over::Fails(fail) => Self::Fails(fail),
            Over::Told => Self::Told,
            Over::Stale => Self::Stale,
            Over::Stands(stand) => Self::Stands(stand),
        }
    }
}

struct Driver<'a> {
    cx: &'a Context,
    worker: WorkerId,
    version: &'a str,
    crash: Option<&'a Crash>,
    /// Nothing of it is in the store: what it writes is kept in memory alone.
    is_inline: bool,
    loading: Option<BoxFuture<'static, Loaded>>,
    flight: Option<BoxFuture<'static, tidemill_store::Result<bool>>>,
    reading: Option<BoxFuture<'static, tidemill_store::Result<Vec<Mail>>>>,
    /// Mail was read since this attempt began to listen.
    has_read: bool,
    listening: Option<BoxFuture<'static, ()>>,
    alarm: Option<(Timestamp, Pin<Box<tokio::time::Sleep>>)>,
    /// How long it may yet be on its way to what the journal has.
    patience: Option<Pin<Box<tokio::time::Sleep>>>,
    /// What stands beside an entry, and whom it is for.
    fetching: Option<(String, BoxFuture<'static, tidemill_store::Result<Option<Payload>>>)>,
}

impl<'a> Driver<'a> {
    fn new(cx: &'a Context, shop: &'a Shop) -> Self {
        Self {
            cx,
            worker: shop.worker(),
            version: &shop.options.version,
            crash: shop.options.crash.as_ref(),
            is_inline: shop.options.is_inline,
            loading: None,
            flight: None,
            reading: None,
            has_read: false,
            listening: None,
            alarm: None,
            patience: None,
            fetching: None,
        }
    }

    fn go_on(&mut self, task: &mut Task<'_>) -> Poll<Next> {
        let cx = self.cx;
        let mut told = cx.run().told();
        if !told.wanted && told.trouble.is_none() {
            return Poll::Pending;
        }
        // Whether it may be parked at all is known when it was looked at.
        if told.replay.is_none() && matches!(told.trouble, Some(Trouble::Park(_))) {
            return self.load(told, task);
        }
        match told.trouble.take() {
            Some(Trouble::Park(why)) if cx.run().is_recorded() => {
                return over(Over::Stands(Stand::Parks(why)));
            }
            Some(Trouble::Park(why)) => return over(Over::Waits(parked(cx, why))),
            Some(Trouble::Fail(fail)) => return over(Over::Fails(fail)),
            Some(Trouble::Stale) => return over(Over::Stale),
            Some(Trouble::Renew(..)) if cx.run().is_recorded() => {
                return over(Over::Stands(Stand::Renews));
            }
            Some(Trouble::Renew(payload, left)) => {
                told.renewal = Some((payload, left));
                let (until, what) = (Some(cx.present()), vec!["its next turn".to_owned()]);
                let waits = Waits { until, what, ..Waits::default() };
                return over(Over::Waits(Waiting { spent: 0, ..waiting(cx, waits, 0) }));
            }
            None => {}
        }
        if told.replay.is_none() {
            return self.load(told, task);
        }
        if let Poll::Ready(done) = self.landed(&mut told, task) {
            return Poll::Ready(done);
        }
        if self.fetching.is_some() {
            return self.fetch(&mut told, task);
        }
        if let Err(error) = self.read(&mut told, task) {
            return over(self.unread(error));
        }
        match told.calls.go_on(task) {
            Ok(true) => return Poll::Ready(Next::Again),
            Ok(false) => {}
            // As if the handler had polled it.
            Err(panic) => return over(Over::Fails(Fail::ambiguous(panic_message(panic.as_ref())))),
        }
        if told.calls.are_for(For::Answer) {
            self.patience = None;
            return Poll::Pending;
        }
        self.rest(told, task)
    }

    fn load(
        &mut self,
        mut told: std::sync::MutexGuard<'_, Told>,
        task: &mut Task<'_>,
    ) -> Poll<Next> {
        let loading = self.loading.get_or_insert_with(|| {
            let (boss, id) = (self.cx.boss().clone(), self.cx.id());
            Box::pin(async move { boss.journal(id).await })
        });
        let Poll::Ready(loaded) = loading.as_mut().poll(task) else { return Poll::Pending };
        self.loading = None;
        let (rows, run) = match loaded {
            Ok(loaded) => loaded,
            Err(error) => return over(self.unread(error)),
        };
        if run.as_ref().is_some_and(|run| run.paused) {
            return over(Over::Waits(waiting(self.cx, Waits::default(), 0)));
        }
        if run.as_ref().is_some_and(|run| run.undone) {
            let why = "what it did was undone; enqueue it anew instead";
            return over(Over::Fails(Fail::permanent(why)));
        }
        let entries_max = run.as_ref().and_then(|run| run.journal_entries_max);
        match replay_of(rows, self.cx) {
            Ok(replay) => told.learn(match entries_max {
                Some(entries_max) => replay.at_most(entries_max),
                None => replay,
            }),
            Err(why) => return over(Over::Waits(parked(self.cx, why))),
        }
        told.begun = run.is_some();
        for (_, waker) in told.wakers.drain() {
            waker.wake();
        }
        Poll::Ready(Next::Again)
    }

    /// Reads what stands beside an entry. Nothing else is told meanwhile, so that what is told first is heard first.
    fn fetch(&mut self, told: &mut Told, task: &mut Task<'_>) -> Poll<Next> {
        let Some((key, fetching)) = self.fetching.as_mut() else { return Poll::Pending };
        let Poll::Ready(fetched) = fetching.as_mut().poll(task) else { return Poll::Pending };
        let key = std::mem::take(key);
        self.fetching = None;
        let is_its = match (fetched, told.replay.as_mut()) {
            (Ok(Some(value)), Some(replay)) => replay.fetched(&key, value),
            (Err(error), _) => return over(self.unread(error)),
            _ => false,
        };
        if !is_its {
            let why = format!("what {key:?} returned is not in the journal any more");
            let why = ParkCode::JournalUnreadable.because(why);
            return over(Over::Waits(parked(self.cx, why)));
        }
        if let Some(number) = told.replay.as_ref().and_then(|replay| replay.aside(&key)) {
            self.begin_fetching(key, number);
            return Poll::Ready(Next::Again);
        }
        told.wake(&key);
        Poll::Ready(Next::Again)
    }

    fn begin_fetching(&mut self, key: String, number: u32) {
        let (boss, id) = (self.cx.boss().clone(), self.cx.id());
        self.fetching = Some((key, Box::pin(async move { boss.value(id, number).await })));
    }

    /// Looks whether a write has ended.
    fn landed(&mut self, told: &mut Told, task: &mut Task<'_>) -> Poll<Next> {
        let Some(flight) = self.flight.as_mut() else { return Poll::Pending };
        let Poll::Ready(written) = flight.as_mut().poll(task) else { return Poll::Pending };
        self.flight = None;
        match written {
            Ok(true) => {
                told.flying = None;
                if let Some(replay) = told.replay.as_mut() {
                    replay.written();
                }
                Poll::Pending
            }
            Ok(false) => over(Over::Stale),
            Err(error) => over(Over::Fails(Fail::transient(error))),
        }
    }

    /// Looks whether mail has come, and reads it.
    fn read(&mut self, told: &mut Told, task: &mut Task<'_>) -> tidemill_store::Result<()> {
        if let Some(listening) = self.listening.as_mut()
            && listening.as_mut().poll(task).is_ready()
        {
            self.listening = None;
            self.has_read = false;
        }
        let Some(reading) = self.reading.as_mut() else { return Ok(()) };
        let Poll::Ready(read) = reading.as_mut().poll(task) else { return Ok(()) };
        self.reading = None;
        let mail = read?;
        if let Some(replay) = told.replay.as_mut() {
            replay.read(mail);
        }
        Ok(())
    }

    /// What becomes of a run of which something cannot be read. What will not be otherwise by itself parks it: to try
    /// again would spend its attempts.
    fn unread(&self, error: tidemill_store::Error) -> Over {
        use tidemill_store::Error;
        let why = match &error {
            Error::KeyMissing { key } => ParkCode::KeyMissing.because(format!(
                "what is kept of it is encrypted with the key {key:?}, which its worker does not have; give its \
                 workers that key, and resume it"
            )),
            Error::CiphertextInvalid { .. } => ParkCode::JournalUnreadable.because(error.to_string()),
            _ => return Over::Fails(Fail::transient(error)),
        };
        if self.cx.run().is_recorded() {
            return Over::Stands(Stand::Parks(why));
        }
        Over::Waits(parked(self.cx, why))
    }

    fn rest(
        &mut self,
        mut told: std::sync::MutexGuard<'_, Told>,
        task: &mut Task<'_>,
    ) -> Poll<Next> {
        let now = self.cx.present();
        let cx = self.cx;
        let Some(replay) = told.replay.as_mut() else { return Poll::Pending };
        if let Some(entries_max) = replay.is_too_long() {
            let why = format!(
                "its journal has more than {entries_max} entries; end scopes or continue anew, or resume it with a \
                 larger limit"
            );
            return over(Over::Waits(parked(cx, ParkCode::JournalFull.because(why))));
        }
        if replay.undos() > UNDOS_MAX {
            replay.hold_back();
            let why =
                format!("it has more than {UNDOS_MAX} steps that can be undone; end it in parts");
            return over(Over::Waits(parked(cx, ParkCode::UndosTooMany.because(why))));
        }
        let rest = match replay.rest(now) {
            Rest::Astray(_) if told.calls.are_for(For::Room) => {
                self.patience = None;
                return Poll::Pending;
            }
            Rest::Astray(diff) => match self.strays(task) {
                Poll::Ready(()) => Rest::Diverged(diff),
                Poll::Pending => return Poll::Pending,
            },
            rest => rest,
        };
        self.patience = None;
        let is_told = cx.is_cancelled();
        // What it shows is written while it is busy; with its end or its wait it is written anyway.
        let shows =
            told.shown.is_some() && self.flight.is_none() && !is_told && !cx.run().is_recorded();
        match rest {
            Rest::Diverged(diff) if cx.run().is_recorded() => {
                over(Over::Stands(Stand::Parks(diff.into())))
            }
            Rest::Go(keys) if cx.run().is_recorded() => over(Over::Stands(Stand::Begins(keys))),
            Rest::Wait(waits) if cx.run().is_recorded() => over(Over::Stands(Stand::Waits(waits))),
            Rest::Flush if cx.run().is_recorded() => {
                // What would be written is let go: the code does not know.
                told.replay.as_mut().map(Replay::take);
                Poll::Ready(Next::Again)
            }
            Rest::Diverged(diff) | Rest::Astray(diff) => over(Over::Waits(parked(cx, diff))),
            // What it did is written with its end.
            Rest::Go(_) | Rest::Flush if is_told => over(Over::Told),
            Rest::Deliver(key) => {
                let number = told.replay.as_ref().and_then(|replay| replay.aside(&key));
                if let Some(number) = number {
                    self.begin_fetching(key, number);
                } else {
                    told.wake(&key);
                }
                Poll::Ready(Next::Again)
            }
            Rest::Go(keys) => {
                for key in keys {
                    told.wake(&key);
                }
                if shows { self.write(&mut told) } else { Poll::Ready(Next::Again) }
            }
            Rest::Flush => self.write(&mut told),
            Rest::Busy { .. } | Rest::Idle if shows => self.write(&mut told),
            Rest::Busy { until, mail } => {
                if mail && self.listens(&mut told, task) {
                    return Poll::Ready(Next::Again);
                }
                self.rings(until, now, task)
            }
            Rest::Wait(waits) => self.wait(told, waits, now, task),
            Rest::Idle => Poll::Pending,
        }
    }

    /// It seems to be other code: ready when it had its time to come by what the journal has.
    fn strays(&mut self, task: &mut Task<'_>) -> Poll<()> {
        let patience = || Box::pin(tokio::time::sleep(PATIENCE));
        self.patience.get_or_insert_with(patience).as_mut().poll(task)
    }

    fn write(&mut self, told: &mut Told) -> Poll<Next> {
        let Some(writes) = told.writes(self.version) else { return Poll::Pending };
        if let Some(replay) = told.replay.as_mut() {
            replay.flies();
        }
        told.flying = Some(writes.clone());
        let strike = self.crash.map_or(Strike::None, Crash::strikes);
        if strike == Strike::Before {
            return over(Over::Stale);
        }
        if self.is_inline {
            self.flight = Some(Box::pin(std::future::ready(Ok(true))));
            return Poll::Ready(Next::Again);
        }
        let (boss, worker) = (self.cx.boss().clone(), self.worker);
        let item = Append { job: self.cx.id(), token: self.cx.token(), writes };
        self.flight = Some(Box::pin(async move {
            let written = boss.append(worker, item).await;
            if strike == Strike::After { Ok(false) } else { written }
        }));
        Poll::Ready(Next::Again)
    }

    fn wait(
        &mut self,
        mut told: std::sync::MutexGuard<'_, Told>,
        waits: Waits,
        now: Timestamp,
        task: &mut Task<'_>,
    ) -> Poll<Next> {
        if waits.mail_min > 0 && self.reading.is_some() {
            return Poll::Pending;
        }
        if waits.mail_min > 0 && !self.has_read {
            self.begin_reading(&mut told);
            return Poll::Ready(Next::Again);
        }
        let is_short = waits.mail_min == 0
            && !self.cx.is_cancelled()
            && self.cx.boss().clock().manual().is_none()
            && waits.until.is_some_and(|until| until <= now + SHORT);
        if !is_short {
            let read = told.replay.as_ref().map_or(0, Replay::mail_read);
            return over(Over::Waits(waiting(self.cx, waits, read)));
        }
        // Its beginning is written all the same, so that it is no longer if this process dies.
        let has_news = told.replay.as_ref().is_some_and(Replay::has_news);
        if has_news || told.shown.is_some() {
            return self.write(&mut told);
        }
        self.rings(waits.until, now, task)
    }

    fn begin_reading(&mut self, told: &mut Told) {
        let after = told.replay.as_ref().map_or(0, Replay::mail_read);
        let (boss, id) = (self.cx.boss().clone(), self.cx.id());
        self.reading = Some(Box::pin(async move { boss.mail(id, after).await }));
        self.has_read = true;
    }

    /// Listens for mail; `true` when there may be some to read.
    fn listens(&mut self, told: &mut Told, task: &mut Task<'_>) -> bool {
        if self.listening.is_none() {
            // Listened for first, so that nothing can come in between.
            let after = told.replay.as_ref().map_or(0, Replay::mail_read);
            let mut listening = self.cx.boss().mail_comes(self.cx.id(), after);
            let _ = listening.as_mut().poll(task);
            self.listening = Some(listening);
            self.has_read = false;
        }
        if self.has_read || self.reading.is_some() {
            return false;
        }
        self.begin_reading(told);
        true
    }

    /// Wakes the attempt when something is due.
    fn rings(
        &mut self,
        until: Option<Timestamp>,
        now: Timestamp,
        task: &mut Task<'_>,
    ) -> Poll<Next> {
        let Some(until) = until else { return Poll::Pending };
        if self.alarm.as_ref().is_none_or(|(at, _)| *at != until) {
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            self.alarm = Some((until, Box::pin(tokio::time::sleep(left))));
        }
        let Some((_, alarm)) = self.alarm.as_mut() else { return Poll::Pending };
        if alarm.as_mut().poll(task).is_ready() {
            self.alarm = None;
            return Poll::Ready(Next::Again);
        }
        Poll::Pending
    }
}

fn replay_of(rows: Vec<EntryRow>, cx: &Context) -> Result<Replay, Parked> {
    let read = |row: EntryRow| serde_json::from_str::<Entry>(&row.entry).map(|e| (row.number, e));
    let entries = rows.into_iter().map(read).collect::<serde_json::Result<Vec<_>>>();
    let replay = |entries| Replay::new(entries).copied(copied(cx.job()));
    entries.map(replay).map_err(|error| {
        ParkCode::JournalUnreadable.because(format!("its journal cannot be read: {error}"))
    })
}

/// Up to where the journal of a run is another's.
pub(crate) fn copied(job: &Job) -> u32 {
    job.options.origins.last().map_or(0, |origin| origin.until)
}

/// Reads the journal of a run whose handler has ended without a look at it: it may have left out all of it. One that
/// cannot be read is nobody's end: the run is parked.
pub(crate) async fn look(cx: &Context) -> Result<(), Trouble> {
    if cx.run().told().replay.is_some() {
        return Ok(());
    }
    let looked = cx.boss().journal_now(cx.id()).await;
    let (rows, _) = looked.map_err(|error| Trouble::Fail(Fail::transient(error)))?;
    let replay = replay_of(rows, cx).map_err(Trouble::Park)?;
    cx.run().told().learn(replay);
    Ok(())
}

fn over(over: Over) -> Poll<Next> {
    Poll::Ready(Next::Over(over))
}

fn waiting(cx: &Context, mut waits: Waits, read: i64) -> Waiting {
    // Whatever it waits for, its deadline finds it.
    let deadline = cx.boss().known().deadlines(cx.job()).finish_by();
    waits.until = waits.until.into_iter().chain(deadline).min();
    Waiting { waits, read, spent: cx.attempt().saturating_sub(1), parked: None }
}

/// A run that does not go on before somebody has seen to it.
pub(crate) fn parked(cx: &Context, why: impl Into<Parked>) -> Waiting {
    let why = why.into();
    tracing::warn!(id = %cx.id(), code = why.code.code(), %why, "a run is parked");
    Waiting { parked: Some(why), ..waiting(cx, Waits::default(), 0) }
}
