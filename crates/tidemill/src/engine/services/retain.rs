//! Forgets finished jobs whose retention has passed, and plans and acts that are kept no longer.
//!
//! It walks over all of them, oldest first, a page a turn, and starts over at the end. So no index
//! and no counter burdens the hot path; `core::retention` has the rule. One node at a time does it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::audit;
use tidemill_core::dead::plan::PLANS_MAX;
use tidemill_core::retention::Sweep;
use tidemill_core::{JobId, Retention, WorkerId};
use tokio::sync::Mutex as AsyncMutex;

use crate::engine::Tidemill;
use crate::engine::service::Service;
use crate::error::Result;
use crate::worker::shop::locked;

const PAGE_ROWS: usize = 2000;
const DUTY_TTL: Duration = Duration::from_secs(30);
const FORGET_EVERY: Duration = Duration::from_mins(10);

pub struct Retain {
    holder: WorkerId,
    walk: AsyncMutex<Walk>,
    /// Since when it had the duty, by the store's clock, when it last asked.
    had: Mutex<Option<Timestamp>>,
    rules: Mutex<HashMap<String, Retention>>,
    /// When plans and acts were last forgotten.
    forgot: AsyncMutex<Option<Instant>>,
}

#[derive(Default)]
struct Walk {
    sweep: Sweep,
    after: Option<JobId>,
}

impl Default for Retain {
    fn default() -> Self {
        Self {
            holder: WorkerId::new(),
            walk: AsyncMutex::default(),
            had: Mutex::default(),
            rules: Mutex::default(),
            forgot: AsyncMutex::default(),
        }
    }
}

#[async_trait]
impl Service for Retain {
    fn name(&self) -> &'static str {
        "retain"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn turn(&self, mill: &Tidemill) -> Result<()> {
        let since = mill.0.store.take_duty(self.name(), self.holder, DUTY_TTL).await?;
        let had = std::mem::replace(&mut *locked(&self.had), since);
        // What it has counted, others may have let go, who had the duty between. Only the store knows that: the clock
        // of this machine stands still while it is suspended.
        if since.is_none() || had != since {
            *self.walk.lock().await = Walk::default();
        }
        if since.is_some() && self.page(mill).await? {
            self.forget(mill).await?;
        }
        Ok(())
    }

    /// Whoever works next need not wait until the duty of one that has stopped is over.
    async fn leave(&self, mill: &Tidemill) -> Result<()> {
        Ok(mill.0.store.leave_duty(self.name(), self.holder).await?)
    }
}

impl Retain {
    /// Two rounds, after which every rule holds: a bound on the number needs one to count.
    pub(crate) async fn rounds(&self, mill: &Tidemill) -> Result<()> {
        for _ in 0..2 {
            while !self.page(mill).await? {}
        }
        self.forget(mill).await
    }

    /// One page; answers whether it was the last of the round.
    async fn page(&self, mill: &Tidemill) -> Result<bool> {
        let mut walk = self.walk.lock().await;
        let store = &mill.0.store;
        if self.learn_rules(mill).await? {
            // What is too much was counted by others.
            *walk = Walk::default();
        }
        let page = store.finished_after(walk.after, PAGE_ROWS).await?;
        let now = store.now().await?;
        let gone = walk.sweep.page(&page, |queue| self.rules_of(mill, queue), now);
        // Also with nothing to forget: keys whose period is over are forgotten along the way.
        let purged = store.purge(&gone).await?;
        mill.0.measures.purged.add(purged);
        let last = page.len() < PAGE_ROWS;
        walk.after = if last { None } else { page.last().map(|job| job.id) };
        if last {
            walk.sweep.end_round(|queue| self.rules_of(mill, queue));
        }
        Ok(last)
    }

    /// Forgets plans and acts that are kept no longer; now and then, for it counts them.
    async fn forget(&self, mill: &Tidemill) -> Result<()> {
        let mut forgot = self.forgot.lock().await;
        if forgot.is_some_and(|at| at.elapsed() < FORGET_EVERY) {
            return Ok(());
        }
        let plans = mill.0.store.forget_plans(PLANS_MAX).await?;
        let acts = mill.0.store.forget_audit(audit::KEPT, audit::ROWS_MAX).await?;
        // Where there is more, it goes on with the next turn.
        *forgot = (!plans && !acts).then(Instant::now);
        Ok(())
    }

    /// Answers whether they are others than before.
    async fn learn_rules(&self, mill: &Tidemill) -> Result<bool> {
        let learnt = mill.0.store.queue_rules().await?;
        let retentions = learnt.iter().map(|(queue, rules)| (queue.to_owned(), rules.retention));
        let retentions: HashMap<_, _> = retentions.collect();
        let mut rules = locked(&self.rules);
        let is_new = *rules != retentions;
        *rules = retentions;
        Ok(is_new)
    }

    fn rules_of(&self, mill: &Tidemill, queue: &str) -> Retention {
        locked(&self.rules).get(queue).copied().unwrap_or(mill.0.retention)
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::{Clock, ManualClock, State};
    use tidemill_store::JobFilter;

    use super::*;
    use crate::worker::job::Enqueue;

    async fn finished(mill: &Tidemill) -> usize {
        let filter = JobFilter { state: Some(State::Cancelled), ..JobFilter::default() };
        mill.jobs(&filter).await.unwrap().len()
    }

    async fn finish(mill: &Tidemill, jobs: usize) {
        let jobs = (0..jobs).map(|_| Enqueue::raw("k", "1"));
        let receipts = mill.enqueue_many(jobs).await.unwrap();
        let ids = receipts.iter().map(tidemill_store::Receipt::id).collect();
        mill.cancel_many(ids, "enough").await.unwrap();
    }

    async fn bound(mill: &Tidemill, finished_max: u64) {
        let set = |rules: &mut tidemill_core::QueueRules| {
            rules.retention.finished_max = Some(finished_max);
        };
        mill.change_queue("default", set).await.unwrap();
    }

    #[tokio::test]
    async fn what_was_counted_in_an_earlier_duty_lets_nothing_go() {
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let [one, other] = [Retain::default(), Retain::default()];
        bound(&mill, 5).await;
        finish(&mill, 8).await;
        one.turn(&mill).await.unwrap();
        one.leave(&mill).await.unwrap();
        for _ in 0..2 {
            other.turn(&mill).await.unwrap();
        }
        assert_eq!(finished(&mill).await, 5);
        one.turn(&mill).await.unwrap();
        other.leave(&mill).await.unwrap();
        for _ in 0..2 {
            one.turn(&mill).await.unwrap();
        }
        assert_eq!(finished(&mill).await, 5, "the three too many are gone already");
        mill.close().await;
    }

    #[tokio::test]
    async fn what_was_counted_before_the_machine_slept_lets_nothing_go() {
        let clock = ManualClock::default();
        let builder = Tidemill::builder().clock(Clock::Manual(clock.clone()));
        let mill = builder.open("sqlite::memory:").await.unwrap();
        let [one, other] = [Retain::default(), Retain::default()];
        bound(&mill, 5).await;
        finish(&mill, 8).await;
        one.turn(&mill).await.unwrap();
        for awake in [&other, &one] {
            clock.advance(DUTY_TTL + Duration::from_secs(1));
            for _ in 0..2 {
                awake.turn(&mill).await.unwrap();
            }
            assert_eq!(finished(&mill).await, 5, "the three too many go once");
        }
        mill.close().await;
    }

    #[tokio::test]
    async fn rules_hold_from_the_next_page_on() {
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let retain = Retain::default();
        bound(&mill, 1).await;
        finish(&mill, PAGE_ROWS + 10).await;
        for _ in 0..3 {
            retain.turn(&mill).await.unwrap();
        }
        assert_eq!(finished(&mill).await, 10, "the second round has begun");
        bound(&mill, 1_000_000).await;
        retain.turn(&mill).await.unwrap();
        assert_eq!(finished(&mill).await, 10, "they may stay by now");
        mill.close().await;
    }
}
