//! Gives up workers that beat no more, so that their jobs run elsewhere within seconds.
//!
//! After an outage of the database, or when this whole machine was asleep, nobody has beaten and
//! nobody is to blame: workers first get a whole lease to beat again. Else one restart of the
//! database would cost every running job one of its few losses, and three would kill them all. So it is
//! when this process has only just begun to serve workers elsewhere: they may have had nobody to beat to.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tidemill_store::request::RescueRules;
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::error::Result;
use crate::worker::shop::locked;

pub struct Rescue {
    rules: RescueRules,
    sight: Mutex<Sight>,
}

/// When the store was seen.
#[derive(Debug, Default, Clone, Copy)]
struct Sight {
    last: Option<Instant>,
    /// Since when without a gap, if there was one.
    whole_since: Option<Instant>,
}

impl Rescue {
    pub fn new(lease_ttl: Duration, lost_max: u16) -> Self {
        Self {
            rules: RescueRules { lease_ttl, clear_for: None, lost_max },
            sight: Mutex::default(),
        }
    }

    /// Notes that the store answers now; says for how long it has done so, if there was a gap.
    fn clear_for(&self) -> Option<Duration> {
        let (now, mut sight) = (Instant::now(), locked(&self.sight));
        let gap_max = self.every() + self.rules.lease_ttl / 2;
        if sight.last.is_some_and(|last| now - last > gap_max) {
            sight.whole_since = Some(now);
        }
        sight.last = Some(now);
        sight.whole_since.map(|since| now - since)
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
        mill.0.store.now().await?;
        let clear_for = [self.clear_for(), mill.0.hands.open_for()].into_iter().flatten().min();
        let rules = RescueRules { clear_for, ..self.rules };
        let rescued = mill.0.store.rescue(rules).await?;
        if rescued.workers > 0 {
            let (workers, ready) = (rescued.workers, rescued.ready);
            tracing::warn!(workers, ready, poisoned = rescued.poisoned, "workers were lost");
            let measures = &mill.0.measures;
            measures.lost.add(workers);
            measures.rescued.add(ready);
            measures.poisoned.add(rescued.poisoned);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn workers_get_a_lease_to_beat_again_after_an_outage() {
        let second = Duration::from_secs(1);
        let rescue = Rescue::new(6 * second, 3);
        assert_eq!(rescue.clear_for(), None, "at the start nothing is known of an outage");
        for (passes, clear) in [(1, None), (4, None), (5, Some(0)), (3, Some(3)), (3, Some(6))] {
            tokio::time::advance(passes * second).await;
            assert_eq!(rescue.clear_for(), clear.map(Duration::from_secs), "after {passes} s more");
        }
    }
}
