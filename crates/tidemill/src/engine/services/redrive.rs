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
        let (store, mut done) = (&mill.0.store, Ok(()));
        for rule in store.redrive_rules().await? {
            let by = format!("rule {}", rule.name);
            let by = By::from(&by).because("it matches the rule");
            match store.redrive(&rule, REDRIVES_PER_TURN_MAX, by).await {
                Ok(sent) if sent.is_empty() => {}
                Ok(sent) => {
                    tracing::info!(rule = rule.name, jobs = sent.len(), "dead letters redriven");
                }
                // The others have their turn all the same.
                Err(error) => done = done.and(Err(error.into())),
            }
        }
        done
    }
}
