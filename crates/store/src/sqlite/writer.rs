//! The one writer: a thread that owns a connection, and commits in groups.
//!
//! SQLite has one writer at a time, and a commit costs an fsync. So everything that writes comes
//! here, and whatever waits when a transaction begins goes along with it: concurrent callers share
//! one fsync, and a lone one waits for nobody. There is no timer.
//!
//! A group runs without savepoints, because each of them copies every page it touches. Should one
//! operation fail, the group is rolled back and run once more with a savepoint each, so that only
//! the failing one fails. Nobody is answered before the commit.
//!
//! Pages go from the WAL into the file in a quiet moment. SQLite does so by itself in the commit that makes the
//! WAL a thousand pages long, and whoever asked for that commit waits for two more syncs: one of a hundred jobs.
//!
//! It refuses to run what nobody waits for any more: a claim whose caller is gone would lease jobs
//! to nobody.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tidemill_core::Clock;
use tidemill_core::measure::{Histogram, SHORT_TIMES_US, SIZES};
use tokio::sync::oneshot::{self, error::RecvError};

use crate::error::{Error, Result};
use crate::keyring::Keyring;
use crate::request::{Claim, ClaimRequest, Stand};
use crate::sqlite::depth::Depths;
use crate::sqlite::flows;
use crate::sqlite::group::{Act, Book, Group, Pending};
use crate::sqlite::marks::Marks;
use crate::sqlite::news::{Listeners, News, Ready};
use crate::sqlite::open::Place;
use crate::sqlite::standing::{Line, Standing};

/// So many commits are worth a checkpoint: single jobs then need less than half of a thousand pages.
const CHECKPOINT_COMMITS: u32 = 64;
/// The quiet after which it is made: longer than a job takes from its enqueue to its end.
const QUIET: Duration = Duration::from_millis(5);

/// One operation's place in a transaction.
pub(super) struct Turn<'a> {
    /// Where it writes.
    pub conn: &'a Connection,
    /// The present, in microseconds.
    pub now: i64,
    /// What is told once it is durable.
    pub news: &'a mut News,
    /// Where claims begin to look.
    pub marks: &'a mut Marks,
    /// Where jobs that come to wait, or wait no longer, are counted.
    pub depths: &'a mut Depths,
    /// How many operations before it brought something that waits.
    pub brought: u64,
    /// For outputs that the edges of flows judge.
    pub keys: &'a Keyring,
}

impl Turn<'_> {
    /// Carries on the flows of which jobs have ended.
    pub fn end(&mut self) -> Result<()> {
        flows::carry_on(self)
    }
}

/// Whether a commit must be on the disk before it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Durability {
    /// Yes: the caller builds on it.
    Full,
    /// A power cut may undo it without harm: a claim (the job is ready again) or a beat.
    Lazy,
}

enum Message {
    /// A write, and since when it waits.
    Write(Box<dyn Act>, Instant),
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Stand(Box<Standing>),
    /// Jobs may wait in this queue that came by another way.
    Ready(String),
    Close,
}

/// The way to the writer thread.
#[derive(Debug, Clone)]
pub(super) struct Writer(Arc<Way>);

#[derive(Debug)]
struct Way {
    messages: Sender<Message>,
    /// Which file it writes; none means memory.
    file: Option<PathBuf>,
    pace: Arc<Pace>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer measures, once per commit.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many operations a commit had.
    pub batches: Histogram,
    /// How long the first of them had waited for it to begin.
    pub waits: Histogram,
    /// How long it took, from its beginning to the disk.
    pub commits: Histogram,
}

impl Default for Pace {
    fn default() -> Self {
        let times = || Histogram::new(SHORT_TIMES_US);
        Self { batches: Histogram::new(SIZES), waits: times(), commits: times() }
    }
}

/// A way to the writer thread that does not keep it going.
#[derive(Debug, Clone)]
pub(super) struct Distant(Weak<Way>);

impl Distant {
    pub fn reach(&self) -> Option<Writer> {
        self.0.upgrade().map(Writer)
    }
}

impl Writer {
    /// Starts the thread; it ends when it is closed or nobody can reach it any more.
    pub fn start(
        conn: Connection,
        place: &Place,
        clock: Clock,
        listeners: Arc<Listeners>,
        keys: Keyring,
    ) -> Result<Self> {
        let (messages, inbox) = channel();
        let measured = Arc::<Pace>::default();
        let own = Arc::clone(&measured);
        let thread = Builder::new()
            .name("tidemill-writer".to_owned())
            .spawn(move || serve(&conn, &inbox, &clock, &listeners, &own, keys))
            .map_err(|e| Error::Unavailable { reason: e.to_string(), unknown: false })?;
        Ok(Self(Arc::new(Way {
            messages,
            file: place.file().map(Path::to_owned),
            pace: measured,
            thread: Mutex::new(Some(thread)),
        })))
    }

    /// Runs a write in the next transaction and answers when that is committed.
    pub async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        act: impl FnMut(&mut Turn<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.write_for(durability, act, |made| made).await
    }

    /// As `write`; `hand` makes the answer of what was committed, and nothing of what was not.
    pub async fn write_for<T: Send + 'static, U: Send + 'static>(
        &self,
        durability: Durability,
        act: impl FnMut(&mut Turn<'_>) -> Result<T> + Send + 'static,
        hand: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let (reply, answer) = oneshot::channel();
        let pending = Pending::new(durability, act, hand, Some(reply));
        self.send(Message::Write(Box::new(pending), Instant::now()))?;
        self.told(answer.await)
    }

    /// Has a write done that nobody waits for. A store that is closed does not do it.
    pub fn post(
        &self,
        durability: Durability,
        act: impl FnMut(&mut Turn<'_>) -> Result<()> + Send + 'static,
    ) {
        let pending = Pending::new(durability, act, |()| (), None);
        let _ = self.send(Message::Write(Box::new(pending), Instant::now()));
    }

    /// Has a claim stand until it is answered; `None` when it is withdrawn first.
    pub async fn stand(&self, ask: ClaimRequest, stand: Stand) -> Result<Option<Claim>> {
        let distant = Distant(Arc::downgrade(&self.0));
        let (standing, answer) = Standing::new(ask, stand.since, distant);
        self.send(Message::Stand(Box::new(standing)))?;
        answer.hear(stand.until).await.map_err(|error| error.of_file(self.0.file.as_deref()))
    }

    /// Somebody says that jobs may wait in this queue.
    pub fn call(&self, queue: &str) {
        // A store that is closed has nobody to call.
        let _ = self.send(Message::Ready(queue.to_owned()));
    }

    /// Runs a read on the writer's own connection, between transactions.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Read(Box::new(move |conn| {
            // Nobody waits any more: nothing is lost.
            let _ = reply.send(look(conn));
        })))?;
        self.told(answer.await)
    }

    /// As `read`, for a thread that may block.
    pub fn read_blocking<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Read(Box::new(move |conn| {
            let _ = reply.send(look(conn));
        })))?;
        self.told(answer.blocking_recv())
    }

    /// What was answered; an error says which file it is about.
    fn told<T>(&self, answer: std::result::Result<Result<T>, RecvError>) -> Result<T> {
        answer.map_err(|_| closed())?.map_err(|error| error.of_file(self.0.file.as_deref()))
    }

    /// What was measured so far.
    pub fn pace(&self) -> &Pace {
        &self.0.pace
    }

    /// Lets what is under way finish, and waits for the end of the thread.
    pub fn close(&self) {
        // A second close finds nobody there.
        let _ = self.send(Message::Close);
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) -> Result<()> {
        self.0.messages.send(message).map_err(|_| closed())
    }
}

pub(super) fn closed() -> Error {
    Error::Unavailable { reason: "the store is closed".to_owned(), unknown: false }
}

fn serve(
    conn: &Connection,
    inbox: &Receiver<Message>,
    clock: &Clock,
    listeners: &Listeners,
    pace: &Pace,
    keys: Keyring,
) {
    let book = Book { keys, ..Book::default() };
    let (level, line) = (Durability::Full, Line::default());
    let mut desk = Desk { conn, clock, listeners, pace, level, book, line, commits: 0 };
    let mut group = Group::default();
    loop {
        let mut rest = None;
        if group.is_empty() {
            let Some(message) = desk.wait(inbox) else { return };
            rest = desk.sort(message, &mut group);
        }
        while rest.is_none() && !group.is_full() {
            let Ok(message) = inbox.try_recv() else { break };
            rest = desk.sort(message, &mut group);
        }
        if !group.is_empty() {
            (group, rest) = desk.commit(group, rest, || inbox.try_recv().ok());
        }
        match rest {
            Some(Message::Read(look)) => look(conn),
            Some(Message::Close) => return,
            _ => {}
        }
    }
}

/// What the writer thread works with.
struct Desk<'a> {
    conn: &'a Connection,
    clock: &'a Clock,
    listeners: &'a Listeners,
    pace: &'a Pace,
    level: Durability,
    book: Book,
    line: Line,
    /// Since the last checkpoint.
    commits: u32,
}

impl Desk<'_> {
    /// Waits for a message; none when nobody can send one any more.
    fn wait(&mut self, inbox: &Receiver<Message>) -> Option<Message> {
        if self.commits >= CHECKPOINT_COMMITS {
            match inbox.recv_timeout(QUIET) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.checkpoint(),
            }
        }
        inbox.recv().ok()
    }

    /// Brings what is in the WAL into the file, as far as others let it; waits for nobody. Should it fail,
    /// the commit that makes the WAL long tries again and says so.
    fn checkpoint(&mut self) {
        self.commits = 0;
        if let Err(error) = self.conn.query_one("pragma wal_checkpoint(passive)", [], |_| Ok(())) {
            tracing::debug!(%error, "the WAL stays as long as it is");
        }
    }

    /// Adds to the group; hands back what cannot go with it.
    fn sort(&mut self, message: Message, group: &mut Group) -> Option<Message> {
        match message {
            Message::Write(act, since) => group.add(act, since),
            Message::Stand(one) if one.is_up_to_date(&self.book) => self.line.add(*one),
            Message::Stand(one) => one.take_up().into_iter().for_each(|one| group.call(one)),
            Message::Ready(queue) => {
                self.book.brought += 1;
                let ready = Ready::from([(queue, usize::MAX)]);
                while let Some(one) = self.line.call(&ready) {
                    group.call(one);
                }
            }
            other => return Some(other),
        }
        None
    }

    /// Commits a group and answers it. What arrives while it waits for the lock goes along. Also answers
    /// what the next group begins with.
    fn commit(
        &mut self,
        mut group: Group,
        mut rest: Option<Message>,
        mut more: impl FnMut() -> Option<Message>,
    ) -> (Group, Option<Message>) {
        let start = Instant::now();
        let set = group.set_level(self.conn, &mut self.level);
        let begun = set.and_then(|()| Group::begin(self.conn));
        while self.level == Durability::Full && rest.is_none() && !group.is_full() {
            let Some(message) = more() else { break };
            rest = self.sort(message, &mut group);
        }
        let now = self.clock.now().as_microsecond();
        let (book, line) = (&mut self.book, &mut self.line);
        let committed = begun.and_then(|()| group.run(self.conn, now, book, line));
        self.pace.commits.see_time(start.elapsed());
        group.measure(self.pace, start);
        self.commits = self.commits.saturating_add(1);
        let next = group.answer(&committed, self.listeners, &mut self.line);
        self.listeners.tell_depths(self.book.depths.take_news());
        (next, rest)
    }
}
