//! Room for flows: what is first in a flow meets the bounds of its queues, before anything of it is written.
//!
//! What comes later is let go by the system, which is never refused. A flow is one piece of work, so nothing of it is
//! diverted, and it drops nothing itself. It is judged by counters that are read before: of flows that start at the
//! same moment each may find the room that there was.

use std::collections::BTreeMap;
use std::time::Duration;

use tidemill_core::depth::{Rates, retry_after};
use tidemill_core::flow::Plan;
use tidemill_core::{Overflow, QueueRules};
use tidemill_store::{DepthView, Error, Full, Hint};
use tokio::time::{Instant, timeout_at};

use crate::engine::Tidemill;
use crate::engine::room::{TRY_AGAIN, heard};
use crate::error::Result;

impl Tidemill {
    /// Waits for room for what is first in a flow, as long as the rule of a full queue allows; refuses it without any.
    /// One that is sent again needs none.
    pub(super) async fn let_in(&self, plan: &Plan) -> Result<()> {
        let first = first(plan);
        let mut hints = None;
        let mut deadline = None;
        while let Some(full) = self.lacks_room(&first).await? {
            if self.0.store.flow(plan.id).await?.is_some() {
                return Ok(());
            }
            let wait = full.wait_ms.filter(|_| full.fits_ever()).map(Duration::from_millis);
            let now = Instant::now();
            let until = *deadline.get_or_insert(now + wait.unwrap_or_default());
            if wait.is_none() || now >= until {
                return Err(Error::QueueFull(full).into());
            }
            let Some(hints) = &mut hints else {
                // Heard from before the next look on, so that nothing can come in between.
                hints = Some(self.0.store.wake().listen());
                self.0.store.hint(Hint::Wanted { queue: full.queue });
                continue;
            };
            let _ = timeout_at((now + TRY_AGAIN).min(until), heard(hints, &full.queue)).await;
        }
        Ok(())
    }

    /// The first queue that has no room for so many jobs, by the rules as they are known here.
    async fn lacks_room(&self, first: &BTreeMap<&str, u64>) -> Result<Option<Full>> {
        let book = self.0.rooms.book();
        let bound = |queue: &str| {
            let rules = book.of(queue).filter(|rules| rules.overflow != Overflow::DropOldest)?;
            Some((rules.depth_max?, rules))
        };
        let bounded: Vec<_> =
            first.iter().filter_map(|(queue, jobs)| Some((*queue, *jobs, bound(queue)?))).collect();
        if bounded.is_empty() {
            return Ok(None);
        }
        let queues: Vec<String> = bounded.iter().map(|(queue, ..)| (*queue).to_owned()).collect();
        let depths = self.0.store.depths(&queues).await?;
        let full =
            bounded.into_iter().zip(depths).find_map(|((_, jobs, (depth_max, rules)), view)| {
                let excess = (view.depth() + jobs).saturating_sub(depth_max);
                (excess > 0).then(|| full(view, jobs, depth_max, rules, excess))
            });
        Ok(full)
    }
}

/// How many jobs of a flow wait in each queue once it has begun.
fn first(plan: &Plan) -> BTreeMap<&str, u64> {
    let mut first: BTreeMap<&str, u64> = BTreeMap::new();
    for planned in plan.jobs.iter().filter(|planned| plan.is_first(planned.step)) {
        *first.entry(&planned.job.queue).or_default() += 1;
    }
    let at_once = plan.options.at_once.map_or(u64::MAX, u64::from);
    for jobs in first.values_mut() {
        *jobs = (*jobs).min(at_once);
    }
    first
}

fn full(view: DepthView, jobs: u64, depth_max: u64, rules: &QueueRules, excess: u64) -> Full {
    let (depth, rates) = (view.depth(), Rates::between(view.before, view.now));
    let retry_after_ms = retry_after(excess, rates).as_millis() as u64;
    let wait_ms = rules.overflow.wait_ms();
    Full { queue: view.queue, depth, depth_max, jobs, wait_ms, retry_after_ms }
}
