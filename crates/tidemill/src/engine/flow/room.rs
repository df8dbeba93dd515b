//! Room for flows: what is first in a flow meets the bounds of its queues, in the transaction that lets it begin.
//!
//! What comes later is let go by the system, which is never refused. A flow is one piece of work, so nothing of it is
//! diverted, and it drops nothing itself. While it waits for room the counters are looked at, so that it is not sent
//! each time that a job leaves.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::depth::{Rates, retry_after};
use tidemill_core::flow::Plan;
use tidemill_core::{FlowId, Overflow, QueueRules};
use tidemill_store::flow::{FlowAnswer, Start};
use tidemill_store::{DepthView, Error, Full, Hint, Result};
use tokio::sync::broadcast::Receiver;
use tokio::time::{Instant, timeout_at};

use crate::engine::Tidemill;
use crate::engine::room::{TRY_AGAIN, heard};

impl Tidemill {
    /// Starts a flow; waits for room for what is first in it, as long as the rule of a full queue allows. One that is
    /// sent again needs none.
    pub(super) async fn start_with_room(&self, plan: Plan) -> Result<bool> {
        let first = plan.first_jobs();
        if !self.any_waits(&first) {
            return self.0.store.start_flow(plan, Start::IfRoom).await;
        }
        let mut waiter = Waiter::default();
        loop {
            let full = match self.0.store.start_flow(plan.clone(), Start::IfRoom).await {
                Err(Error::QueueFull(full)) => full,
                answer => return answer,
            };
            waiter.wait(self, full).await?;
            while let Some(full) = self.lacks_room(&first).await? {
                waiter.wait(self, full).await?;
            }
        }
    }

    /// The same for a flow that was being built.
    pub(super) async fn begin_with_room(&self, id: FlowId) -> Result<FlowAnswer> {
        let mut waiter = Waiter::default();
        loop {
            match self.0.store.begin_flow(id).await {
                Err(Error::QueueFull(full)) => {
                    let first = BTreeMap::from([(full.queue.clone(), full.jobs)]);
                    waiter.wait(self, full).await?;
                    while let Some(full) = self.lacks_room(&first).await? {
                        waiter.wait(self, full).await?;
                    }
                }
                answer => return answer,
            }
        }
    }

    /// Whether a rule of these queues is to wait, as they are known here.
    fn any_waits(&self, first: &BTreeMap<String, u64>) -> bool {
        let book = self.0.rooms.book();
        let waits =
            |queue: &String| book.of(queue).is_some_and(|rules| rules.overflow.wait_ms().is_some());
        first.keys().any(waits)
    }

    /// The first queue that has no room for so many jobs, by the rules as they are known here.
    async fn lacks_room(&self, first: &BTreeMap<String, u64>) -> Result<Option<Full>> {
        let book = self.0.rooms.book();
        let bound = |queue: &str| {
            let rules = book.of(queue).filter(|rules| rules.overflow != Overflow::DropOldest)?;
            Some((rules.depth_max?, rules))
        };
        let bounded: Vec<_> =
            first.iter().filter_map(|(queue, jobs)| Some((queue, *jobs, bound(queue)?))).collect();
        if bounded.is_empty() {
            return Ok(None);
        }
        let queues: Vec<String> = bounded.iter().map(|(queue, ..)| (*queue).clone()).collect();
        let depths = self.0.store.depths(&queues).await?;
        let full =
            bounded.into_iter().zip(depths).find_map(|((_, jobs, (depth_max, rules)), view)| {
                let excess = (view.depth() + jobs).saturating_sub(depth_max);
                (excess > 0).then(|| full(view, jobs, depth_max, rules, excess))
            });
        Ok(full)
    }
}

/// A flow that waits for room.
#[derive(Default)]
struct Waiter {
    hints: Option<Receiver<Hint>>,
    deadline: Option<Instant>,
}

impl Waiter {
    /// Waits until there may be room; refuses when it has waited for as long as the rule allows.
    async fn wait(&mut self, mill: &Tidemill, full: Full) -> Result<()> {
        let wait = full.wait_ms.filter(|_| full.fits_ever()).map(Duration::from_millis);
        let now = Instant::now();
        let until = *self.deadline.get_or_insert(now + wait.unwrap_or_default());
        if wait.is_none() || now >= until {
            return Err(Error::QueueFull(full));
        }
        let Some(hints) = &mut self.hints else {
            // Heard from before the next try on, so that nothing can come in between.
            self.hints = Some(mill.0.store.wake().listen());
            mill.0.store.hint(Hint::Wanted { queue: full.queue });
            return Ok(());
        };
        let _ = timeout_at((now + TRY_AGAIN).min(until), heard(hints, &full.queue)).await;
        Ok(())
    }
}

fn full(view: DepthView, jobs: u64, depth_max: u64, rules: &QueueRules, excess: u64) -> Full {
    let (depth, rates) = (view.depth(), Rates::between(view.before, view.now));
    let retry_after_ms = retry_after(excess, rates).as_millis() as u64;
    let wait_ms = rules.overflow.wait_ms();
    Full { queue: view.queue, depth, depth_max, jobs, wait_ms, retry_after_ms, from: None }
}
