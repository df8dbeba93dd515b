//! Awaiting a job's result, from any process.
//!
//! The one who waits says so (`Hint::Watch`), and whoever settles the job answers
//! (`Hint::Finished`). Hints can be lost, so the store is also looked at, ever more rarely.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{JobId, State};
use tidemill_store::{Hint, JobView};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::look::Found;
use crate::error::{Error, Result};
use crate::worker::job::Job;

pub(crate) const LOOK_FIRST: Duration = Duration::from_millis(20);
pub(crate) const LOOK_RARELY: Duration = Duration::from_secs(1);
/// Those who settle forget a watch after a minute; it is said anew well before.
pub(crate) const WATCH_AGAIN: Duration = Duration::from_secs(20);

impl Tidemill {
    /// Waits until the job has finished, and shows it. Fails with `wait_timeout` after `timeout`.
    pub async fn wait(&self, id: JobId, timeout: Duration) -> Result<JobView> {
        let deadline = Instant::now() + timeout;
        let mut hints = self.0.store.wake().listen();
        let mut pause = LOOK_FIRST;
        let mut watched_until = Instant::now();
        loop {
            if Instant::now() >= watched_until {
                self.0.store.hint(Hint::Watch { id });
                watched_until = Instant::now() + WATCH_AGAIN;
            }
            let is_late = Instant::now() >= deadline;
            // Asked for together with what others wait for.
            let found = self.0.looks.find(&self.0.store, id).await?;
            if let Some(Found::Ended(view)) = found {
                return Ok(Arc::unwrap_or_clone(view));
            }
            if is_late || found.is_none() {
                let view = self.job(id).await?.ok_or(Error::JobUnknown { id })?;
                if view.state.is_final() {
                    return Ok(view);
                }
                if is_late {
                    let waited_ms = timeout.as_millis() as u64;
                    return Err(Error::WaitTimeout { id, waited_ms, state: view.state });
                }
            }
            let next_look = (Instant::now() + pause).min(deadline);
            pause = (pause * 2).min(LOOK_RARELY);
            tokio::select! {
                () = tokio::time::sleep_until(next_look) => {}
                () = heard(&mut hints, id) => {}
            }
        }
    }

    /// Waits until the job is done, and reads its output. A job that died or was cancelled is an
    /// error, `job_not_done`.
    pub async fn result<J: Job>(&self, id: JobId, timeout: Duration) -> Result<J::Output> {
        let view = self.wait(id, timeout).await?;
        if view.state != State::Done {
            let reason = view.error.unwrap_or_default();
            return Err(Error::NotDone { id, state: view.state, reason });
        }
        let output = view.output.unwrap_or_else(tidemill_core::Payload::null);
        output.read().map_err(|e| Error::OutputUnreadable { id, reason: e.to_string() })
    }
}

/// Completes when something may have become of the job.
pub(crate) async fn heard(hints: &mut tokio::sync::broadcast::Receiver<Hint>, id: JobId) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Finished { id: finished }) if finished == id => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
