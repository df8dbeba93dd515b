//! Awaiting a job's result, from any process.
//!
//! The one who waits says so (`Hint::Watch`), and whoever settles the job answers
//! (`Hint::Finished`). Hints can be lost, so the store is also looked at, ever more rarely. What a worker of this
//! process has done well it says itself, and nobody looks.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{JobId, Payload, State};
use tidemill_store::{End, Hint, JobView};
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::look::Found;
use crate::engine::patience::ends_at;
use crate::error::{Error, Result};
use crate::worker::job::Job;

pub(crate) const LOOK_FIRST: Duration = Duration::from_millis(20);
pub(crate) const LOOK_RARELY: Duration = Duration::from_secs(1);
/// Those who settle forget a watch after a minute; it is said anew well before.
pub(crate) const WATCH_AGAIN: Duration = Duration::from_secs(20);

impl Tidemill {
    /// Waits until the job has finished, and shows it. Fails with `wait_timeout` after `timeout`.
    pub async fn wait(&self, id: JobId, timeout: Duration) -> Result<JobView> {
        let deadline = ends_at(timeout);
        loop {
            self.end_of(id, deadline, timeout).await?;
            let view = match self.0.views.view(&self.0.store, id).await? {
                Some(view) => Arc::unwrap_or_clone(view),
                None => self.job(id).await?.ok_or(Error::JobUnknown { id })?,
            };
            // It may have been sent on its way again between the two looks.
            if view.state.is_final() {
                return Ok(view);
            }
        }
    }

    /// Waits until the job is done, and reads its output. A job that died or was cancelled is an
    /// error, `job_not_done`.
    pub async fn result<J: Job>(&self, id: JobId, timeout: Duration) -> Result<J::Output> {
        let end = self.end_of(id, ends_at(timeout), timeout).await?;
        let End { state, output, error } = &*end;
        if *state != State::Done {
            let reason = error.clone().unwrap_or_default();
            return Err(Error::NotDone { id, state: *state, reason });
        }
        let read = output.as_ref().map_or_else(|| Payload::null().read(), Payload::read);
        read.map_err(|e| Error::OutputUnreadable { id, reason: e.to_string() })
    }

    /// Waits until the job has finished.
    async fn end_of(&self, id: JobId, deadline: Instant, timeout: Duration) -> Result<Arc<End>> {
        let finished = self.0.store.wake().expect([Hint::Finished { id }]);
        let mut waiting = self.0.ends.expect(id);
        let mut pause = LOOK_FIRST;
        let mut watched_until = Instant::now();
        loop {
            if Instant::now() >= watched_until {
                self.0.store.hint(Hint::Watch { id });
                watched_until = Instant::now() + WATCH_AGAIN;
            }
            let is_late = Instant::now() >= deadline;
            // Asked for together with what others wait for.
            let found = tokio::select! {
                biased;
                end = waiting.told() => return Ok(end),
                found = self.0.looks.find(&self.0.store, id) => found?,
            };
            if let Some(Found::Ended(end)) = found {
                return Ok(end);
            }
            if is_late || found.is_none() {
                let view = self.job(id).await?.ok_or(Error::JobUnknown { id })?;
                let JobView { state, output, error, .. } = view;
                if state.is_final() {
                    return Ok(Arc::new(End { state, output, error }));
                }
                if is_late {
                    let waited_ms = timeout.as_millis() as u64;
                    return Err(Error::WaitTimeout { id, waited_ms, state });
                }
            }
            let next_look = (Instant::now() + pause).min(deadline);
            pause = (pause * 2).min(LOOK_RARELY);
            tokio::select! {
                biased;
                end = waiting.told() => return Ok(end),
                () = finished.come() => {}
                () = tokio::time::sleep_until(next_look) => {}
            }
            // The hint may come before what settled it here has said how it ended.
            if let Ok(Some(end)) = tokio::time::timeout_at(deadline, waiting.known()).await {
                return Ok(end);
            }
        }
    }
}
