//! Cancel, and run now.

use tidemill_core::JobId;
use tidemill_core::job::outcome::clean;
use tidemill_store::CancelAnswer;

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;
use crate::error::Result;

impl Tidemill {
    /// Calls a job off. Once this answers, no further attempt starts; a running handler is told,
    /// in whichever process it runs.
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<CancelAnswer> {
        let answers = self.cancel_many(vec![id], reason).await?;
        Ok(answers.first().copied().unwrap_or(CancelAnswer::Unknown))
    }

    /// Calls many jobs off. Answers stand in the order of the ids.
    pub async fn cancel_many(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>> {
        let reason = clean(reason.to_owned());
        Ok(verb("cancel", ids.len(), self.0.store.cancel(ids, &reason)).await?)
    }

    /// Makes a job that waits for the clock due now. `false` when it does not wait for the clock.
    pub async fn run_now(&self, id: JobId) -> Result<bool> {
        Ok(verb("run_now", 1, self.0.store.run_now(id)).await?)
    }
}
