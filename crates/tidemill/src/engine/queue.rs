//! Queues: what is in them, and their rules.

use tidemill_core::{limit, name};
use tidemill_store::QueueView;
use tidemill_store::view::QueueRules;

use crate::engine::Tidemill;
use crate::error::Result;

impl Tidemill {
    /// All queues that have jobs, dead letters or rules.
    pub async fn queues(&self) -> Result<Vec<QueueView>> {
        Ok(self.0.store.queues().await?)
    }

    /// Sets the rules of a queue; `None` takes them away. Holds for every process.
    pub async fn set_queue(&self, queue: &str, rules: Option<QueueRules>) -> Result<()> {
        name::check("queue", queue, limit::NAME_BYTES_MAX)?;
        Ok(self.0.store.set_queue(queue, rules).await?)
    }
}
