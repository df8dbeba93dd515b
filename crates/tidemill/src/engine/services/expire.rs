//! Ends jobs that wait past their deadlines: whoever waits for one must hear of it, though nobody takes it.

use std::time::Duration;

use async_trait::async_trait;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::error::Result;

pub struct Expire;

#[async_trait]
impl Service for Expire {
    fn name(&self) -> &'static str {
        "expire"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        let known = mill.0.rules.known();
        loop {
            let expired = mill.0.store.expire(&known.book).await?;
            if expired.jobs > 0 {
                tracing::info!(jobs = expired.jobs, "jobs that nobody took in time are dead");
            }
            if !expired.more {
                return Ok(());
            }
        }
    }
}
