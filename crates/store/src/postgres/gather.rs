//! Natural batching: calls that arrive while commits are under way go with the next one.
//!
//! There is no timer. A lone call is written at once; under load a commit carries many calls, and its cost is shared.
//! What a call brings, how many go together and what a commit is, is for those who use it to say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::measure::{Histogram, SIZES, Seen};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::postgres::connect::Db;

/// Commits under way at once. Two keep the server busy while the next batch gathers.
const FLIGHTS_MAX: usize = 2;

/// A call that waits for its commit: what it brings, and whom to answer.
pub(crate) struct Call<T, A> {
    pub given: T,
    answer: oneshot::Sender<Result<A>>,
}

impl<T, A> Call<T, A> {
    /// Whoever asked may have gone meanwhile; what was written stays.
    pub fn answer(self, answer: Result<A>) {
        let _ = self.answer.send(answer);
    }
}

struct Waiting<T, A> {
    calls: Vec<Call<T, A>>,
    flights: usize,
}

/// Where calls wait for a commit.
pub(crate) struct Gather<T, A> {
    waiting: Arc<Mutex<Waiting<T, A>>>,
    /// How many calls went with one commit.
    batches: Arc<Histogram>,
}

impl<T, A> Default for Gather<T, A> {
    fn default() -> Self {
        let waiting = Arc::new(Mutex::new(Waiting { calls: Vec::new(), flights: 0 }));
        Self { waiting, batches: Arc::new(Histogram::new(SIZES)) }
    }
}

impl<T, A> Clone for Gather<T, A> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting), batches: Arc::clone(&self.batches) }
    }
}

impl<T, A> Gather<T, A> {
    /// Waits for the commit that carries this. `fly` makes commits until nobody waits; it is started unless enough
    /// are under way.
    pub async fn call<F>(&self, given: T, fly: impl FnOnce(Self) -> F) -> Result<A>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        if self.push(Call { given, answer }) {
            // A task of its own: the caller may go away, what others brought must not.
            tokio::spawn(fly(self.clone()));
        }
        answered.await.unwrap_or_else(|_| {
            let reason = "the store was closed meanwhile".to_owned();
            Err(Error::Unavailable { reason, unknown: true })
        })
    }

    /// Adds a call; whether a flight is to be started for it.
    fn push(&self, call: Call<T, A>) -> bool {
        let mut waiting = self.lock();
        waiting.calls.push(call);
        let starts = waiting.flights < FLIGHTS_MAX;
        waiting.flights += usize::from(starts);
        starts
    }

    /// The calls of the next commit: the first that waits, and those behind it that fit; `fits` is asked of each, in
    /// order. `None` ends the flight.
    pub fn next(&self, mut fits: impl FnMut(&T) -> bool) -> Option<Vec<Call<T, A>>> {
        let mut waiting = self.lock();
        if waiting.calls.is_empty() {
            waiting.flights -= 1;
            return None;
        }
        let mut is_first = true;
        let (calls, left): (Vec<_>, _) = waiting.calls.drain(..).partition(|call| {
            let goes = fits(&call.given) || is_first;
            is_first = false;
            goes
        });
        waiting.calls = left;
        self.batches.see(calls.len() as u64);
        Some(calls)
    }

    /// How many calls went with one commit, so far.
    pub fn batches(&self) -> Seen {
        self.batches.read()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T, A>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether each call of a commit that failed would fare no better alone.
pub(crate) async fn is_for_all(db: &Db, error: &Error) -> bool {
    match error {
        // Of those that a full queue refused together, some may fit.
        Error::QueueFull(_) => false,
        // One of them may be what the server cannot do now.
        Error::Unavailable { .. } | Error::DiskFailed { .. } => !db.is_there().await,
        error => error.is_temporary(),
    }
}

/// Answers all calls of a commit that failed with its error.
pub(crate) fn refuse<T, A>(calls: Vec<Call<T, A>>, error: &Error) {
    for call in calls {
        call.answer(Err(error.clone()));
    }
}
