//! Gives up workers that beat no more, so that their jobs run elsewhere within seconds.
//!
//! After an outage of the database nobody has beaten, and nobody is to blame: workers first get a
//! whole lease to beat again. Else one restart of the database would cost every running job one of
//! its few losses, and three restarts would kill them all.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_store::request::RescueRules;
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::engine::telemetry::add;
use crate::error::Result;
use crate::worker::shop::locked;

pub struct Rescue {
    rules: RescueRules,
    outage: Mutex<Outage>,
}

/// Whether the store answers, as far as the last turns know.
#[derive(Debug, Default, Clone, Copy)]
enum Outage {
    #[default]
    None,
    Lasts,
    OverSince(Instant),
}

impl Rescue {
    pub fn new(lease_ttl: Duration, lost_max: u16) -> Self {
        Self { rules: RescueRules { lease_ttl, lost_max }, outage: Mutex::default() }
    }

    /// Whether workers still have time to beat after an outage.
    async fn is_too_early(&self, mill: &Tidemill) -> Result<bool> {
        let outage = *locked(&self.outage);
        let since = match outage {
            Outage::None => return Ok(false),
            Outage::OverSince(since) => since,
            Outage::Lasts => {
                mill.0.store.now().await?;
                Instant::now()
            }
        };
        let is_too_early = since.elapsed() < self.rules.lease_ttl;
        *locked(&self.outage) =
            if is_too_early { Outage::OverSince(since) } else { Outage::None };
        Ok(is_too_early)
    }

    async fn rescue(&self, mill: &Tidemill) -> Result<()> {
        if self.is_too_early(mill).await? {
            return Ok(());
        }
        let rescued = mill.0.store.rescue(self.rules).await?;
        if rescued.workers > 0 {
            let (workers, ready) = (rescued.workers, rescued.ready);
            tracing::warn!(workers, ready, poisoned = rescued.poisoned, "workers were lost");
            add(&mill.0.counters.rescued, ready as usize);
        }
        Ok(())
    }
}

#[async_trait]
impl Service for Rescue {
    fn name(&self) -> &'static str {
        "rescue"
    }

    /// Often enough that a lost worker is noticed soon after its lease is over.
    fn every(&self) -> Duration {
        (self.rules.lease_ttl / 6).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        let turn = self.rescue(mill).await;
        if turn.is_err() {
            *locked(&self.outage) = Outage::Lasts;
        }
        turn
    }
}
