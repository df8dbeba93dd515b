//! Operations that share a transaction.
//!
//! Refuses to answer anybody before the commit, and to let one operation's failure fail another.

use std::time::Instant;

use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::keyring::Keyring;
use crate::sqlite::depth::Depths;
use crate::sqlite::marks::Marks;
use crate::sqlite::news::{Listeners, News, Ready};
use crate::sqlite::standing::{Line, Standing};
use crate::sqlite::writer::{Durability, Pace, Turn};

/// More would make the first wait too long for the last.
const ACTS_MAX: usize = 512;

/// What the writer remembers between operations and transactions.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub marks: Marks,
    pub depths: Depths,
    /// How many operations brought something that waits; those rolled back count too.
    pub brought: u64,
    /// For outputs that the edges of flows judge.
    pub keys: Keyring,
}

impl Book {
    pub fn turn<'a>(&'a mut self, conn: &'a Connection, now: i64, news: &'a mut News) -> Turn<'a> {
        let Self { marks, depths, brought, keys } = self;
        Turn { conn, now, news, marks, depths, brought: *brought, keys }
    }

    /// What was done last is undone.
    fn forget(&mut self) {
        self.marks.forget();
        self.depths.forget();
    }
}

/// An operation that waits for its transaction, whatever its answer.
pub(super) trait Act: Send {
    fn durability(&self) -> Durability;
    /// Whether anybody still waits for the answer.
    fn is_wanted(&self) -> bool;
    /// Runs it; its answer is kept until the commit. May be called again after a rollback.
    fn run(&mut self, conn: &Connection, now: i64, book: &mut Book) -> Result<()>;
    /// It ran, but what it did was taken back.
    fn fail(&mut self, error: Error);
    /// Adds up what it brought.
    fn count(&self, ready: &mut Ready);
    /// Answers, after the commit or its failure.
    fn answer(self: Box<Self>, committed: Result<()>, listeners: &Listeners);
}

/// An operation, and how it is answered.
pub(super) struct Pending<T, U, F, H> {
    act: F,
    durability: Durability,
    made: Option<Result<T>>,
    news: News,
    hand: H,
    reply: Option<oneshot::Sender<Result<U>>>,
}

impl<T, U, F, H> Pending<T, U, F, H> {
    /// Once it is committed, `hand` makes the answer of what was made. Without a `reply`, nobody
    /// waits for it and it is done all the same.
    pub fn new(
        durability: Durability,
        act: F,
        hand: H,
        reply: Option<oneshot::Sender<Result<U>>>,
    ) -> Self {
        Self { act, durability, made: None, news: News::default(), hand, reply }
    }
}

impl<T, U, F, H> Act for Pending<T, U, F, H>
where
    T: Send,
    U: Send,
    F: FnMut(&mut Turn<'_>) -> Result<T> + Send,
    H: FnOnce(T) -> U + Send,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| !reply.is_closed())
    }

    fn run(&mut self, conn: &Connection, now: i64, book: &mut Book) -> Result<()> {
        self.news = News::default();
        let mut turn = book.turn(conn, now, &mut self.news);
        let made = (self.act)(&mut turn).and_then(|made| turn.end().map(|()| made));
        book.brought += u64::from(!self.news.ready.is_empty());
        let ran = made.as_ref().map(|_| ()).map_err(Error::clone);
        self.made = Some(made);
        ran
    }

    fn fail(&mut self, error: Error) {
        self.made = Some(Err(error));
    }

    fn count(&self, ready: &mut Ready) {
        if matches!(self.made, Some(Ok(_))) {
            for (queue, jobs) in &self.news.ready {
                let all = ready.entry(queue.clone()).or_default();
                *all = all.saturating_add(*jobs);
            }
        }
    }

    fn answer(self: Box<Self>, committed: Result<()>, listeners: &Listeners) {
        let Self { made, news, hand, reply, .. } = *self;
        let made = committed.and_then(|()| made.unwrap_or_else(|| Err(not_run())));
        if made.is_ok() {
            listeners.tell(news);
        }
        match (made.map(hand), reply) {
            // Whoever asked may have gone meanwhile; what was written stays.
            (answer, Some(reply)) => drop(reply.send(answer)),
            (Err(error), None) => tracing::warn!(%error, "what nobody waits for was not written"),
            (Ok(_), None) => {}
        }
    }
}

pub(super) fn not_run() -> Error {
    let reason = "the operation before it in the same transaction failed".to_owned();
    Error::Unavailable { reason, unknown: false }
}

/// What goes into one transaction.
#[derive(Default)]
pub(super) struct Group {
    acts: Vec<Box<dyn Act>>,
    /// Since when the first of them waits.
    since: Option<Instant>,
    /// Claims that stood, and for which there may be something now.
    called: Vec<Standing>,
    /// Whether those that stand were called for what the operations bring.
    has_called: bool,
}

impl Group {
    /// Adds a claim that stood.
    pub fn call(&mut self, one: Standing) {
        self.called.push(one);
    }

    /// Adds an operation, unless nobody waits for it any more.
    pub fn add(&mut self, act: Box<dyn Act>, since: Instant) {
        if act.is_wanted() {
            self.since.get_or_insert(since);
            self.acts.push(act);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.acts.is_empty() && self.called.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.acts.len() >= ACTS_MAX
    }

    /// Counts it as a commit that began then. Those that stood have waited for something else.
    pub fn measure(&self, pace: &Pace, began: Instant) {
        pace.batches.see((self.acts.len() + self.called.len()) as u64);
        if let Some(since) = self.since {
            pace.waits.see_time(began.saturating_duration_since(since));
        }
    }

    /// Sets how durable the next commit is: as its most demanding operation wants it.
    pub fn set_level(&self, conn: &Connection, level: &mut Durability) -> Result<()> {
        let lazy = self.acts.iter().all(|act| act.durability() == Durability::Lazy);
        let wanted = if lazy { Durability::Lazy } else { Durability::Full };
        if wanted != *level {
            let pragma = if lazy { "pragma synchronous=normal" } else { "pragma synchronous=full" };
            conn.execute_batch(pragma)?;
            *level = wanted;
        }
        Ok(())
    }

    /// Takes the write lock.
    pub fn begin(conn: &Connection) -> Result<()> {
        Ok(conn.prepare_cached("begin immediate")?.raw_execute()?).map(|_| ())
    }

    /// Runs all and commits. An error means that nothing of the group was written.
    pub fn run(
        &mut self,
        conn: &Connection,
        now: i64,
        book: &mut Book,
        line: &mut Line,
    ) -> Result<()> {
        let ran = self.run_together(conn, now, book, line);
        let counted = ran.and_then(|()| book.depths.write(conn, now)).or_else(|_| {
            roll_back(conn, book);
            self.run_apart(conn, now, book)
        });
        let committed = counted.and_then(|()| step(conn, "commit"));
        if committed.is_err() {
            roll_back(conn, book);
        }
        committed
    }

    /// Runs all, and those that stand and have something to expect of it.
    fn run_together(
        &mut self,
        conn: &Connection,
        now: i64,
        book: &mut Book,
        line: &mut Line,
    ) -> Result<()> {
        self.acts.iter_mut().try_for_each(|act| act.run(conn, now, book))?;
        self.called.iter_mut().try_for_each(|one| one.run(conn, now, book))?;
        if !line.is_empty() {
            let ready = self.ready();
            let run = |one: &mut Standing| one.run(conn, now, book);
            self.has_called = line.serve(ready, &mut self.called, run)?;
        }
        Ok(())
    }

    /// Runs each in its savepoint: whoever fails, fails alone.
    fn run_apart(&mut self, conn: &Connection, now: i64, book: &mut Book) -> Result<()> {
        Self::begin(conn)?;
        for act in &mut self.acts {
            if let Some(error) = apart(conn, now, book, |book| act.run(conn, now, book))? {
                act.fail(error);
            }
        }
        for one in &mut self.called {
            if let Some(error) = apart(conn, now, book, |book| one.run(conn, now, book))? {
                one.fail(error);
            }
        }
        Ok(())
    }

    /// Where jobs came to wait.
    fn ready(&self) -> Ready {
        let mut ready = Ready::new();
        self.acts.iter().for_each(|act| act.count(&mut ready));
        ready
    }

    /// Answers all, and tells the news of those that succeeded. What those that stand have still to expect
    /// is for the next group, which this is.
    pub fn answer(self, committed: &Result<()>, listeners: &Listeners, line: &mut Line) -> Self {
        let mut next = Self::default();
        if !self.has_called && committed.is_ok() && !line.is_empty() {
            let ready = self.ready();
            next.called.extend(std::iter::from_fn(|| line.call(&ready)));
        }
        // Their jobs wait to be started; whoever brought them only waits to be told.
        for one in self.called {
            if let Some(one) = one.answer(committed.clone(), listeners) {
                line.add(one);
            }
        }
        for act in self.acts {
            act.answer(committed.clone(), listeners);
        }
        next
    }
}

/// Runs something in a savepoint; answers why it was taken back, if it was. An error means that the whole transaction
/// is gone.
fn apart(
    conn: &Connection,
    now: i64,
    book: &mut Book,
    run: impl FnOnce(&mut Book) -> Result<()>,
) -> Result<Option<Error>> {
    step(conn, "savepoint tidemill_act")?;
    // What it counted is written within its savepoint, so that both go or stay together.
    let failed = run(book).and_then(|()| book.depths.write(conn, now)).err();
    if let Some(error) = &failed {
        if conn.is_autocommit() {
            // A full or failing disk rolls back the whole transaction by itself.
            return Err(error.clone());
        }
        step(conn, "rollback to tidemill_act")?;
        book.forget();
    }
    step(conn, "release tidemill_act")?;
    Ok(failed)
}

fn step(conn: &Connection, statement: &str) -> Result<()> {
    conn.prepare_cached(statement)?.raw_execute()?;
    Ok(())
}

fn roll_back(conn: &Connection, book: &mut Book) {
    book.forget();
    if !conn.is_autocommit() {
        // If even this fails, the next BEGIN will say so.
        let _ = conn.execute_batch("rollback");
    }
}
