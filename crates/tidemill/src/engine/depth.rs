//! Depth and watermarks: how full queues are, and being told when that matters.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::depth::Rates;
use tidemill_core::gate::{self, Counts, GateView, PART, Per};
use tidemill_core::queue::{is_pattern, matches};
use tidemill_core::why::{Holder, QueueWhy, Trend, drains_at_most, drains_in_ms};
use tidemill_core::{Error as Invalid, QueueLimit};
use tidemill_store::{DepthView, Hint, Store};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use crate::engine::Tidemill;
use crate::error::Result;

/// The store is looked at this often when no hint comes: hints may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Tidemill {
    /// What a queue has counted: how many jobs wait in it, how many came and went, whose they are. Its
    /// cost does not grow with the jobs.
    pub async fn depth(&self, queue: &str) -> Result<DepthView> {
        if is_pattern(queue) {
            let reason = format!("{queue:?} is a pattern; ask for one queue by its name");
            return Err(Invalid::RuleInvalid { rule: "the queue", reason }.into());
        }
        let mut views = self.0.store.depths(&[queue.to_owned()]).await?;
        Ok(views.remove(0))
    }

    /// Whether a queue has reached its high watermark and has not been down at the low one since:
    /// producers should pause.
    pub async fn is_above(&self, queue: &str) -> Result<bool> {
        Ok(self.depth(queue).await?.above_since.is_some())
    }

    /// Waits until a queue is down at its low watermark, at once when it is not above. `false` when
    /// that takes longer than `timeout`.
    pub async fn until_below(&self, queue: &str, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        let mut hints = self.0.store.wake().listen();
        loop {
            if !self.is_above(queue).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let look = (Instant::now() + LOOK_EVERY).min(deadline);
            let _ = timeout_at(look, heard(&mut hints)).await;
        }
    }

    /// Every watermark that is crossed from now on, of all queues and by whichever process, and first
    /// the queues that are above theirs already.
    ///
    /// ```
    /// # use tidemill::{Enqueue, QueueRules, Tidemill};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = Tidemill::open("sqlite::memory:").await?;
    /// mill.change_queue("mail", |rules| rules.depth_max = Some(5)).await?;
    /// let mut watermarks = mill.watermarks();
    /// mill.enqueue_many((0..4).map(|_| Enqueue::raw("send", "{}").queue("mail"))).await?;
    /// let crossed = watermarks.next().await?;
    /// assert!(crossed.queue == "mail" && crossed.is_above && crossed.depth == 4);
    /// # mill.close().await; Ok(()) }
    /// ```
    pub fn watermarks(&self) -> Watermarks {
        let hints = self.0.store.wake().listen();
        let (above, crossed) = (BTreeMap::new(), VecDeque::new());
        Watermarks { mill: self.clone(), hints, above, crossed, is_first: true }
    }

    /// Why a queue is as deep as it is: what comes and goes, what holds it, when it will be empty.
    pub async fn why_queue(&self, queue: &str) -> Result<QueueWhy> {
        let view = self.depth(queue).await?;
        let book = self.0.store.queue_rules().await?;
        let workers = self.workers().await?;
        let paused = book.paused_by(queue).map(|rule| Holder::Paused { rule: rule.to_owned() });
        let takes = |own: &String| matches(own, queue);
        let is_served = workers.iter().any(|worker| worker.queues.iter().any(takes));
        let unserved = (!is_served).then_some(Holder::NoWorker);
        let limits = book.limits(queue);
        let bound = bound_by(self.0.store.as_ref(), &view, &limits).await?;
        let unknown = if is_served { self.unknown_kinds(queue).await? } else { None };
        let rates = Rates::between(view.before, view.now);
        // Nothing leaves, whatever left a while ago.
        let is_still = view.depth() > 0 && (paused.is_some() || unserved.is_some());
        let rates_now = rates.filter(|_| !is_still);
        let drains_in = rates_now.and_then(|rates| drains_in_ms(view.depth(), rates));
        let wide = limits.iter().filter(|limit| limit.is_wide()).filter_map(|limit| limit.rate);
        Ok(QueueWhy {
            queue: queue.to_owned(),
            depth: view.depth(),
            depth_max: book.of(queue).and_then(|rules| rules.depth_max),
            above_since: view.above_since,
            rates,
            trend: rates.map(Trend::of),
            drains_in_ms: drains_in.map(|ms| drains_at_most(ms, view.depth(), wide)),
            holders: paused.into_iter().chain(unserved).chain(unknown).chain(bound).collect(),
            tenants: view.tenants,
        })
    }

    /// Kinds that wait in a queue and that none of its workers knows.
    async fn unknown_kinds(&self, queue: &str) -> Result<Option<Holder>> {
        let queues = self.queues().await?;
        let kinds =
            queues.into_iter().find(|view| view.name == queue).map(|view| view.orphan_kinds);
        Ok(kinds.filter(|kinds| !kinds.is_empty()).map(|kinds| Holder::KindUnknown { kinds }))
    }
}

/// The limits that hold jobs of a queue, or let none of those that wait in it pass now.
async fn bound_by(
    store: &dyn Store,
    view: &DepthView,
    limits: &[QueueLimit],
) -> Result<Vec<Holder>> {
    if limits.is_empty() || view.depth() == 0 {
        return Ok(Vec::new());
    }
    // A limit by tenant or key has many gates; they are asked for together.
    let name = |limit: &QueueLimit| match limit.counts {
        Counts::Per(Per::Tenant | Per::Key) => format!("{}{PART}", limit.gate),
        _ => limit.gate.clone(),
    };
    let now = store.now().await?;
    let names: Vec<String> = limits.iter().map(name).collect();
    let (gates, held) = (store.gates(&names).await?, store.held_of(&view.queue, &names).await?);
    let holder = |((gate, held), limit): ((&GateView, u64), &QueueLimit)| {
        // What a limit on some jobs lets not pass is held at it; one on the whole queue leaves it in line.
        let is_bound = held > 0 || limit.is_wide() && gate.holds(limit, now).is_some();
        is_bound.then(|| Holder::Limit { limit: gate::describe(&limit.gate), held })
    };
    Ok(gates.iter().zip(held).zip(limits).filter_map(holder).collect())
}

/// A watermark that a queue has crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Which queue.
    pub queue: String,
    /// Up over the high one, or down to the low one.
    pub is_above: bool,
    /// How deep it was when that was seen.
    pub depth: u64,
}

/// Where crossed watermarks are heard. See [`Tidemill::watermarks`].
pub struct Watermarks {
    mill: Tidemill,
    hints: Receiver<Hint>,
    /// Queues that were above when they were last looked at, and since when.
    above: BTreeMap<String, Timestamp>,
    crossed: VecDeque<Watermark>,
    is_first: bool,
}

impl Watermarks {
    /// The next crossing. May be dropped while it waits, and called again: none is lost by that.
    pub async fn next(&mut self) -> Result<Watermark> {
        loop {
            if let Some(crossed) = self.crossed.pop_front() {
                return Ok(crossed);
            }
            if !std::mem::take(&mut self.is_first) {
                let _ = timeout_at(Instant::now() + LOOK_EVERY, heard(&mut self.hints)).await;
            }
            self.look().await?;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let above = self.mill.0.store.depths(&[]).await?;
        let since = |view: &DepthView| view.above_since.unwrap_or(view.now.at);
        let now: BTreeMap<String, Timestamp> =
            above.iter().map(|view| (view.queue.clone(), since(view))).collect();
        let gone: Vec<String> = self
            .above
            .iter()
            .filter(|(queue, at)| now.get(*queue) != Some(at))
            .map(|(queue, _)| queue.clone())
            .collect();
        let below =
            if gone.is_empty() { Vec::new() } else { self.mill.0.store.depths(&gone).await? };
        let seen = |view: &DepthView, is_above| Watermark {
            queue: view.queue.clone(),
            is_above,
            depth: view.depth(),
        };
        self.crossed.extend(below.iter().map(|view| seen(view, false)));
        let is_new = |view: &&DepthView| self.above.get(&view.queue) != Some(&since(view));
        self.crossed.extend(above.iter().filter(is_new).map(|view| seen(view, true)));
        self.above = now;
        Ok(())
    }
}

/// Completes when a watermark may have been crossed.
async fn heard(hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any | Hint::Rules | Hint::Watermark { .. }) | Err(RecvError::Lagged(_)) => {
                return;
            }
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
