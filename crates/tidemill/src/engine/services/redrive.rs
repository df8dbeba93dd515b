//! Sends known-recoverable dead letters on their way again, as their rules say.

use std::time::Duration;

use async_trait::async_trait;
use tidemill_core::By;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::error::Result;

/// At most this many in one turn and rule: a mended service must not be flooded.
const REDRIVES_PER_TURN_MAX: usize = 100;

pub struct Redrive;

#[async_trait]
impl Service for Redrive {
    fn name(&self) -> &'static str {
        "redrive"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        let store = &mill.0.store;
        for rule in store.redrive_rules().await? {
            let ids = store.redrivable(&rule, REDRIVES_PER_TURN_MAX).await?;
            if !ids.is_empty() {
                let by = format!("rule {}", rule.name);
                let by = By::from(&by).because("it matches the rule");
                let sent = store.dead_replay(&ids, by, None).await?;
                tracing::info!(rule = rule.name, jobs = sent.len(), "dead letters redriven");
            }
        }
        Ok(())
    }
}
