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
//! It refuses to run what nobody waits for any more: a claim whose caller is gone would lease jobs
//! to nobody.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use rusqlite::Connection;
use tidemill_core::Clock;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::sqlite::depth::Depths;
use crate::sqlite::group::{Act, Book, Group, Pending};
use crate::sqlite::marks::Marks;
use crate::sqlite::news::{Listeners, News};

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
    Write(Box<dyn Act>),
    Read(Box<dyn FnOnce(&Connection) + Send>),
    Close,
}

/// The way to the writer thread.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    messages: Sender<Message>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Writer {
    /// Starts the thread; it ends when it is closed or nobody can reach it any more.
    pub fn start(conn: Connection, clock: Clock, listeners: Arc<Listeners>) -> Result<Self> {
        let (messages, inbox) = channel();
        let thread = Builder::new()
            .name("tidemill-writer".to_owned())
            .spawn(move || serve(&conn, &inbox, &clock, &listeners))
            .map_err(|e| Error::Unavailable { reason: e.to_string(), unknown: false })?;
        Ok(Self { messages, thread: Arc::new(Mutex::new(Some(thread))) })
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
        self.send(Message::Write(Box::new(pending)))?;
        answer.await.map_err(|_| closed())?
    }

    /// Has a write done that nobody waits for. A store that is closed does not do it.
    pub fn post(
        &self,
        durability: Durability,
        act: impl FnMut(&mut Turn<'_>) -> Result<()> + Send + 'static,
    ) {
        let pending = Pending::new(durability, act, |()| (), None);
        let _ = self.send(Message::Write(Box::new(pending)));
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
        answer.await.map_err(|_| closed())?
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
        answer.blocking_recv().map_err(|_| closed())?
    }

    /// Lets what is under way finish, and waits for the end of the thread.
    pub fn close(&self) {
        // A second close finds nobody there.
        let _ = self.messages.send(Message::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    fn send(&self, message: Message) -> Result<()> {
        self.messages.send(message).map_err(|_| closed())
    }
}

fn closed() -> Error {
    Error::Unavailable { reason: "the store is closed".to_owned(), unknown: false }
}

fn serve(conn: &Connection, inbox: &Receiver<Message>, clock: &Clock, listeners: &Listeners) {
    let mut desk = Desk { conn, clock, listeners, level: Durability::Full, book: Book::default() };
    while let Ok(message) = inbox.recv() {
        let mut group = Group::default();
        let mut rest = sort(message, &mut group);
        while rest.is_none() && !group.is_full() {
            let Ok(message) = inbox.try_recv() else { break };
            rest = sort(message, &mut group);
        }
        if !group.is_empty() {
            rest = desk.commit(group, rest, || inbox.try_recv().ok());
        }
        match rest {
            Some(Message::Read(look)) => look(conn),
            Some(Message::Close) => return,
            Some(Message::Write(_)) | None => {}
        }
    }
}

/// Adds a write to the group; hands back what cannot go with it.
fn sort(message: Message, group: &mut Group) -> Option<Message> {
    match message {
        Message::Write(act) => {
            group.add(act);
            None
        }
        other => Some(other),
    }
}

/// What the writer thread works with.
struct Desk<'a> {
    conn: &'a Connection,
    clock: &'a Clock,
    listeners: &'a Listeners,
    level: Durability,
    book: Book,
}

impl Desk<'_> {
    /// Commits a group and answers it. What arrives while it waits for the lock goes along.
    fn commit(
        &mut self,
        mut group: Group,
        mut rest: Option<Message>,
        mut more: impl FnMut() -> Option<Message>,
    ) -> Option<Message> {
        let set = group.set_level(self.conn, &mut self.level);
        let begun = set.and_then(|()| Group::begin(self.conn));
        while self.level == Durability::Full && rest.is_none() && !group.is_full() {
            let Some(message) = more() else { break };
            rest = sort(message, &mut group);
        }
        let now = self.clock.now().as_microsecond();
        let committed = begun.and_then(|()| group.run(self.conn, now, &mut self.book));
        group.answer(&committed, self.listeners);
        self.listeners.tell_depths(self.book.depths.take_news());
        rest
    }
}
