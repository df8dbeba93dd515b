//! Gives up workers that beat no more, so that their jobs run elsewhere within seconds.

use std::time::Duration;

use async_trait::async_trait;
use tidemill_store::request::RescueRules;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::engine::telemetry::add;
use crate::error::Result;

pub struct Rescue(RescueRules);

impl Rescue {
    pub fn new(lease_ttl: Duration, lost_max: u16) -> Self {
        Self(RescueRules { lease_ttl, lost_max })
    }
}

#[async_trait]
impl Service for Rescue {
    fn name(&self) -> &'static str {
        "rescue"
    }

    /// Often enough that a lost worker is noticed soon after its lease is over.
    fn every(&self) -> Duration {
        (self.0.lease_ttl / 6).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        let rescued = mill.0.store.rescue(self.0).await?;
        if rescued.workers > 0 {
            let (workers, ready) = (rescued.workers, rescued.ready);
            tracing::warn!(workers, ready, poisoned = rescued.poisoned, "workers were lost");
            add(&mill.0.counters.rescued, ready as usize);
        }
        Ok(())
    }
}
