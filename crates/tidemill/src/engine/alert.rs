//! Built-in alerts: what somebody should look at, by thresholds that have names and defaults.
//!
//! They are judged by what stands in the store, so every process comes to the same; a process that runs the clockwork
//! also watches them, and tells when one begins to hold or holds no more.

mod tell;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::alert::{Alert, QueueSigns, Signs, Thresholds, alerts};
use tidemill_core::dead::DeadFilter;
use tidemill_core::depth::Rates;
use tidemill_core::flow::FlowState;
use tidemill_core::{QueueRules, RuleBook};
use tokio::sync::watch;

use crate::engine::Tidemill;
use crate::engine::measure::overview::Overview;
use crate::error::Result;

/// More than these are not counted.
const DEAD_MAX: u64 = 1000;

/// What is watched, and who is told.
#[derive(Debug)]
pub(crate) struct Alerts {
    pub(crate) thresholds: Thresholds,
    told: watch::Sender<Arc<Vec<Alert>>>,
}

impl Alerts {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        Self { thresholds, told: watch::Sender::new(Arc::default()) }
    }
}

impl Tidemill {
    /// The alerts that hold now, by a look at the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// let mill = tidemill::Tidemill::open("sqlite::memory:").await?;
    /// mill.enqueue(tidemill::Enqueue::raw("resize", "{}")).await?;
    /// let alerts = mill.alerts().await?;
    /// assert_eq!(alerts[0].alert, tidemill::AlertKind::NoWorker);
    /// # mill.close().await; Ok(()) }
    /// ```
    pub async fn alerts(&self) -> Result<Vec<Alert>> {
        // That a queue is above its watermark is noted by whoever looks, and nobody else may be there. A store that
        // takes no writes is read as it stands.
        drop(self.0.store.depths(&[]).await);
        Ok(self.judge().await?.1)
    }

    /// The alerts that have held for as long as [`Thresholds::hold`] says, and every change of them. They are watched
    /// where the clockwork runs: beside a worker, or after [`start_services`](Self::start_services).
    pub fn watch_alerts(&self) -> watch::Receiver<Arc<Vec<Alert>>> {
        self.0.alerts.told.subscribe()
    }

    async fn judge(&self) -> Result<(Timestamp, Vec<Alert>)> {
        let (overview, thresholds) = (self.overview().await?, &self.0.alerts.thresholds);
        let is_above = overview.queues.iter().any(|queue| queue.above_since.is_some());
        let book = if is_above { self.0.store.queue_rules().await? } else { RuleBook::default() };
        let died_from = overview.now.checked_sub(thresholds.dead_within).ok();
        let filter = DeadFilter { died_from, ..DeadFilter::default() };
        let most = thresholds.dead_letters.min(DEAD_MAX) as usize;
        let dead =
            if most == 0 { Vec::new() } else { self.0.store.dead(&filter, None, most).await? };
        Ok((overview.now, alerts(&signs(&overview, &book, dead.len() as u64), thresholds)))
    }
}

fn signs(overview: &Overview, book: &RuleBook, dead: u64) -> Signs {
    let passed: BTreeMap<&str, Option<Rates>> = overview
        .passed
        .iter()
        .map(|seen| (&*seen.queue, Rates::between(seen.before, seen.now)))
        .collect();
    let high =
        |queue: &str| book.of(queue).and_then(QueueRules::watermarks).map(|marks| marks.high);
    let since = |at: Timestamp| Duration::try_from(overview.now.duration_since(at)).ok();
    let queues = overview.queues.iter().map(|queue| QueueSigns {
        queue: queue.name.clone(),
        depth: queue.depth,
        rates: passed.get(&*queue.name).copied().flatten(),
        oldest_wait: queue.oldest_due_at.and_then(since),
        orphan_kinds: queue.orphan_kinds.clone(),
        is_paused: queue.rules.as_ref().is_some_and(|rules| rules.paused),
        above: queue.above_since.zip(high(&queue.name)),
    });
    let stuck = overview.flows.iter().filter(|count| count.state == FlowState::Stuck);
    Signs { queues: queues.collect(), dead, sagas_stuck: stuck.map(|count| count.flows).sum() }
}

/// Those that were seen, since when, in one process.
#[derive(Debug, Default)]
pub(crate) struct Watching(Vec<Alert>);

impl Watching {
    /// Looks, and tells what has changed.
    pub(crate) async fn turn(&mut self, mill: &Tidemill) -> Result<()> {
        let (now, seen) = mill.judge().await?;
        let before = std::mem::take(&mut self.0);
        self.0 = seen;
        for alert in &mut self.0 {
            let known = before.iter().find(|known| known.key() == alert.key());
            alert.since = alert.since.or(known.and_then(|known| known.since)).or(Some(now));
        }
        let Alerts { thresholds, told } = &mill.0.alerts;
        let has_held = |alert: &&Alert| {
            let since = alert.since.unwrap_or(now);
            let held = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            held >= thresholds.hold || !alert.alert.must_hold()
        };
        let holding: Vec<Alert> = self.0.iter().filter(has_held).cloned().collect();
        told.send_if_modified(|told| tell(told, holding.clone()));
        mill.tell_webhooks(now, &self.0, &holding).await
    }
}

/// Keeps what holds; answers whether other alerts hold than before. A value that has changed is no news.
fn tell(told: &mut Arc<Vec<Alert>>, holding: Vec<Alert>) -> bool {
    let has = |all: &[Alert], one: &Alert| all.iter().any(|known| known.key() == one.key());
    let begun: Vec<_> = holding.iter().filter(|alert| !has(told, alert)).collect();
    let over: Vec<_> = told.iter().filter(|alert| !has(&holding, alert)).collect();
    for alert in &begun {
        tracing::warn!(alert = alert.alert.word(), "{alert}");
    }
    for alert in &over {
        tracing::info!(alert = alert.alert.word(), "no longer: {alert}");
    }
    let is_news = !begun.is_empty() || !over.is_empty();
    *told = Arc::new(holding);
    is_news
}
