//! Natural batching: enqueues that arrive while a commit is in flight go with the next one.
//!
//! There is no timer. A lone call is written at once; under load a commit carries many calls, and
//! its cost is shared. One call cannot fail another: a batch that is refused is written call by call.

use std::sync::{Arc, Mutex, PoisonError};

use tidemill_core::NewJob;
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::postgres::Shared;
use crate::postgres::enqueue::write_all;
use crate::postgres::unique::Depth;

/// Jobs in one shared commit.
const BATCH_JOBS_MAX: usize = 1000;
/// Commits in flight at once. Two keep the server busy while the next batch gathers.
const FLIGHTS_MAX: usize = 2;

struct Call {
    jobs: Vec<NewJob>,
    answer: oneshot::Sender<Result<()>>,
}

#[derive(Default)]
struct Waiting {
    calls: Vec<Call>,
    flights: usize,
}

/// Where enqueues wait for a commit.
#[derive(Clone, Default)]
pub(crate) struct Gather(Arc<Mutex<Waiting>>);

impl Gather {
    /// Writes the jobs of one call, with whatever else waits.
    pub async fn enqueue(&self, shared: &Arc<Shared>, jobs: Vec<NewJob>) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let starts = {
            let mut waiting = self.lock();
            waiting.calls.push(Call { jobs, answer });
            let starts = waiting.flights < FLIGHTS_MAX;
            waiting.flights += usize::from(starts);
            starts
        };
        if starts {
            // A task of its own: the caller may go away, the others' jobs must not.
            tokio::spawn(self.clone().fly(Arc::clone(shared)));
        }
        answered.await.unwrap_or_else(|_| {
            let reason = "the store was closed meanwhile".to_owned();
            Err(Error::Unavailable { reason, unknown: true })
        })
    }

    async fn fly(self, shared: Arc<Shared>) {
        while let Some(calls) = self.next() {
            settle(&shared, calls).await;
        }
    }

    /// The calls of the next commit; `None` ends this flight.
    fn next(&self) -> Option<Vec<Call>> {
        let mut waiting = self.lock();
        let mut jobs = 0;
        let fitting = waiting.calls.iter().take_while(|call| {
            jobs += call.jobs.len();
            jobs <= BATCH_JOBS_MAX
        });
        let count = fitting.count();
        if count == 0 {
            waiting.flights -= 1;
            return None;
        }
        Some(waiting.calls.drain(..count).collect())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn settle(shared: &Arc<Shared>, calls: Vec<Call>) {
    let all: Vec<_> = calls.iter().flat_map(|call| &call.jobs).collect();
    let alone = calls.len() == 1;
    let depth = if alone { Depth::Bounded } else { Depth::Together };
    let written = write_all(shared, &all, depth).await;
    // Of those that a full queue refused together, some may fit.
    let is_for_all = |error: &Error| error.is_temporary() && !matches!(error, Error::QueueFull(_));
    match written {
        Err(error) if alone || is_for_all(&error) => {
            let reason = error.to_string();
            let mut error = Some(error);
            for call in calls {
                let _ = call.answer.send(Err(error.take().unwrap_or_else(|| copy(&reason))));
            }
        }
        Err(_) => {
            for call in calls {
                let jobs: Vec<_> = call.jobs.iter().collect();
                let written = write_all(shared, &jobs, Depth::Bounded).await;
                let _ = call.answer.send(written);
            }
        }
        Ok(()) => {
            for call in calls {
                let _ = call.answer.send(Ok(()));
            }
        }
    }
}

fn copy(reason: &str) -> Error {
    Error::Unavailable { reason: reason.to_owned(), unknown: true }
}
