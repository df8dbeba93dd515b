//! The leases this process has claimed and not settled to the end, kept in memory.
//!
//! They spare the database a question: whether a job belongs to a lease, and whether it is the lease's
//! last. What is not in this book (a lease of another process, a settle sent twice) is looked up.
//! A lease is closed by the settle that brings its last job, if no other settle of it is in flight;
//! else by whoever comes next.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::{JobId, Token, WorkerId};
use uuid::Uuid;

use crate::request::SettleItem;

/// How long a claim whose answer was lost is looked for.
const STRAY_FOR: Duration = Duration::from_mins(1);

struct Lease {
    worker: WorkerId,
    /// Not settled, and in no settle in flight.
    left: HashSet<JobId>,
    /// Settles in flight.
    flights: usize,
}

/// A claim whose answer was lost: it may have left jobs in a lease that nobody knows of.
#[derive(Debug, Clone)]
pub(crate) struct Stray {
    pub worker: WorkerId,
    /// The claim that was lost.
    pub ask: Uuid,
}

#[derive(Default)]
struct Book {
    leases: HashMap<Token, Lease>,
    /// Settled to the end, but their rows are still there.
    empty: Vec<Token>,
    strays: Vec<(Instant, Stray)>,
}

/// The book of leases.
#[derive(Default)]
pub(crate) struct Leases(Mutex<Book>);

/// A settle in flight. One that is dropped was not written.
#[derive(Default)]
pub(crate) struct Flight<'a> {
    book: Option<&'a Leases>,
    items: Vec<(Token, JobId)>,
    tokens: HashSet<Token>,
    /// Leases that this settle brings to their end.
    pub closing: Vec<Token>,
    /// Leases that are still needed.
    pub open: Vec<Token>,
    /// Leases that were settled to the end before; theirs go as well.
    pub swept: Vec<Token>,
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Some(book) = self.book.take() {
            book.failed(self);
        }
    }
}

impl Leases {
    /// Notes a lease.
    pub fn opened(&self, token: Token, worker: WorkerId, ids: impl Iterator<Item = JobId>) {
        let lease = Lease { worker, left: ids.collect(), flights: 0 };
        self.lock().leases.insert(token, lease);
    }

    /// Begins a settle of these items, if all of them are in the book; else changes nothing.
    pub fn begin(&self, items: &[SettleItem]) -> Option<Flight<'_>> {
        let mut book = self.lock();
        let is_known = |item: &SettleItem| {
            book.leases.get(&item.token).is_some_and(|lease| lease.left.contains(&item.job.id))
        };
        if !items.iter().all(is_known) {
            return None;
        }
        let mut flight = Flight::default();
        flight.book = Some(self);
        for item in items {
            let Some(lease) = book.leases.get_mut(&item.token) else { continue };
            lease.left.remove(&item.job.id);
            lease.flights += usize::from(flight.tokens.insert(item.token));
            flight.items.push((item.token, item.job.id));
        }
        for token in &flight.tokens {
            let last = book.leases.get(token).is_some_and(|l| l.left.is_empty() && l.flights == 1);
            if last { flight.closing.push(*token) } else { flight.open.push(*token) }
        }
        flight.swept = std::mem::take(&mut book.empty);
        Some(flight)
    }

    /// Ends a settle that was written.
    pub fn settled(&self, mut flight: Flight<'_>) {
        flight.book = None;
        let mut book = self.lock();
        for token in &flight.closing {
            book.leases.remove(token);
        }
        for token in flight.open.drain(..) {
            let Some(lease) = book.leases.get_mut(&token) else { continue };
            lease.flights -= 1;
            if lease.flights == 0 && lease.left.is_empty() {
                book.leases.remove(&token);
                book.empty.push(token);
            }
        }
    }

    /// Ends a settle that was not written: all is as before.
    fn failed(&self, flight: &mut Flight<'_>) {
        let mut book = self.lock();
        for (token, id) in flight.items.drain(..) {
            if let Some(lease) = book.leases.get_mut(&token) {
                lease.left.insert(id);
            }
        }
        for token in flight.tokens.drain() {
            if let Some(lease) = book.leases.get_mut(&token) {
                lease.flights -= 1;
            }
        }
        book.empty.append(&mut flight.swept);
    }

    /// What is left of a lease besides these, by this book; `None` when that cannot be said.
    pub fn is_last(&self, token: Token, settling: &HashSet<JobId>) -> Option<bool> {
        let book = self.lock();
        let lease = book.leases.get(&token)?;
        (lease.flights == 0).then(|| lease.left.is_subset(settling))
    }

    /// Strikes out what was settled, or turned out to be lost, outside of a flight.
    pub fn strike(&self, items: &[SettleItem], closed: &[Token]) {
        let mut book = self.lock();
        for item in items {
            if let Some(lease) = book.leases.get_mut(&item.token) {
                lease.left.remove(&item.job.id);
            }
        }
        for token in closed {
            book.leases.remove(token);
        }
    }

    /// Takes the leases that wait to be closed.
    pub fn take_empty(&self) -> Vec<Token> {
        std::mem::take(&mut self.lock().empty)
    }

    /// Forgets everything of a worker that is gone.
    pub fn forget(&self, worker: WorkerId) {
        let mut book = self.lock();
        book.leases.retain(|_, lease| lease.worker != worker);
        book.strays.retain(|(_, stray)| stray.worker != worker);
    }

    /// Notes a claim whose answer was lost.
    pub fn strayed(&self, stray: Stray) {
        self.lock().strays.push((Instant::now() + STRAY_FOR, stray));
    }

    /// The lost claims of a worker that are still looked for.
    pub fn strays(&self, worker: WorkerId) -> Vec<Stray> {
        let mut book = self.lock();
        book.strays.retain(|(until, _)| *until > Instant::now());
        let strays = book.strays.iter().map(|(_, stray)| stray);
        strays.filter(|stray| stray.worker == worker).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
