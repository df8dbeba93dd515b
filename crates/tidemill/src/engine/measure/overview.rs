//! An overview of the whole store, that is at most about a second old.
//!
//! Its cost grows with what waits, so it is bounded in time, not in rows: it is made anew a second after the last one,
//! or after nine times as long as that took, if that is longer. So however many scrape, and however much waits, one
//! connection is busy with it a tenth of the time. Who asks does not wait longer than two seconds: while a look takes
//! longer, or fails, the last one is shown, and says how old it is.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::gate::{GateView, PART};
use tidemill_core::{Per, QueueLimit, gate};
use tidemill_store::measure::{Figure, FlowCount, Passed};
use tidemill_store::schedule::Which;
use tidemill_store::{QueueView, Result, Store, WorkerView};
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::worker::shop::locked;

const AGE_MIN: Duration = Duration::from_millis(900);
const AGE_MAX: Duration = Duration::from_mins(1);
/// A look is made again after so many times as long as it took.
const REST: u32 = 9;
const WAIT_MAX: Duration = Duration::from_secs(2);
/// Limits whose gates are looked at.
const LIMITS_MAX: usize = 200;

/// The whole store at a moment.
#[derive(Debug, Clone)]
pub struct Overview {
    /// The store's present.
    pub now: Timestamp,
    /// All queues that have jobs, dead letters or rules.
    pub queues: Vec<QueueView>,
    /// What came into queues and went out of them.
    pub passed: Vec<Passed>,
    /// All workers that are registered.
    pub workers: Vec<WorkerView>,
    /// The limits of these queues, and what is at their gates; at most 200.
    pub limits: Vec<LimitView>,
    /// How many flows are kept.
    pub flows: Vec<FlowCount>,
    /// By how much the next slot of all schedules is overdue.
    pub overdue: Duration,
    /// The health of the database.
    pub figures: Vec<Figure>,
}

/// A limit and what is at its gates.
#[derive(Debug, Clone)]
pub struct LimitView {
    /// The queue or pattern whose jobs it means.
    pub queue: String,
    /// Its name; `own` for what the rules of a queue say without one.
    pub name: String,
    /// What it lets pass.
    pub limit: QueueLimit,
    /// Its gate; of a limit by tenant or key all of them together, as to how many are held there.
    pub gate: GateView,
}

impl LimitView {
    /// How many of its circuits are closed, open, half-open; if it has any. Of a limit by tenant or key, those that
    /// spare somebody are open, and nobody knows how many others there could be.
    pub fn circuits(&self, now: Timestamp) -> Option<[u64; 3]> {
        self.limit.breaker?;
        if matches!(self.limit.counts, gate::Counts::Per(Per::Tenant | Per::Key)) {
            return Some([0, self.gate.broken, 0]);
        }
        Some(match self.gate.shut_until {
            Some(until) if self.gate.is_broken && until > now => [0, 1, 0],
            _ if self.gate.is_broken => [0, 0, 1],
            _ => [1, 0, 0],
        })
    }
}

/// Where the last one is kept.
#[derive(Debug, Default)]
pub(crate) struct Overviews {
    /// Held by whoever looks; others wait for it, and find what was found.
    looking: tokio::sync::Mutex<()>,
    last: Mutex<Last>,
}

#[derive(Debug, Default, Clone)]
struct Last {
    seen: Option<(Instant, Arc<Overview>)>,
    /// When and how long it was looked, also in vain.
    looked: Option<(Instant, Duration)>,
    failures: u64,
}

/// What is known.
pub(crate) struct Known {
    pub(crate) overview: Option<Arc<Overview>>,
    pub(crate) age: Duration,
    pub(crate) failures: u64,
}

impl Tidemill {
    /// An overview of the whole store, at most about a second old, or as old as it must be where a look takes long:
    /// however often it is asked for, the store is busy with it a tenth of the time.
    pub async fn overview(&self) -> crate::Result<Arc<Overview>> {
        let known = self.known().await;
        match known.overview {
            Some(overview) => Ok(overview),
            None => Ok(Arc::new(look(&*self.0.store).await?)),
        }
    }

    pub(crate) async fn known(&self) -> Known {
        let overviews = Arc::clone(&self.0.measures.overviews);
        if !overviews.is_fresh() {
            let (store, there) = (Arc::clone(&self.0.store), Arc::clone(&overviews));
            // A task of its own: who asks may go, and what was begun is for the next.
            let looking = tokio::spawn(async move { there.renew(&*store).await });
            let _ = tokio::time::timeout(WAIT_MAX, looking).await;
        }
        let Last { seen, failures, .. } = locked(&overviews.last).clone();
        let age = seen.as_ref().map(|(at, _)| at.elapsed()).unwrap_or_default();
        Known { overview: seen.map(|(_, overview)| overview), age, failures }
    }
}

impl Overviews {
    fn is_fresh(&self) -> bool {
        locked(&self.last)
            .looked
            .is_some_and(|(at, took)| at.elapsed() < (took * REST).clamp(AGE_MIN, AGE_MAX))
    }

    async fn renew(&self, store: &dyn Store) {
        let _looking = self.looking.lock().await;
        if self.is_fresh() {
            return;
        }
        let began = Instant::now();
        let looked = look(store).await;
        let mut last = locked(&self.last);
        last.looked = Some((Instant::now(), began.elapsed()));
        match looked {
            Ok(overview) => last.seen = Some((began, Arc::new(overview))),
            Err(error) => {
                last.failures += 1;
                tracing::debug!(%error, "the store could not be looked at");
            }
        }
    }
}

async fn look(store: &dyn Store) -> Result<Overview> {
    let (now, queues, mut workers) =
        (store.now().await?, store.queues().await?, store.workers().await?);
    workers.retain(|worker| !worker.is_silent(now));
    let next = store.schedules(&Which::Next(1)).await?;
    let next_at = next.first().and_then(|schedule| schedule.next_at);
    let overdue = next_at.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    Ok(Overview {
        now,
        passed: store.passed().await?,
        limits: limits(store, &queues).await?,
        flows: store.count_flows().await?,
        figures: store.figures().await?,
        overdue: overdue.unwrap_or_default(),
        workers,
        queues,
    })
}

async fn limits(store: &dyn Store, queues: &[QueueView]) -> Result<Vec<LimitView>> {
    let book = store.queue_rules().await?;
    let mut limits: Vec<QueueLimit> = Vec::new();
    for limit in queues.iter().flat_map(|queue| book.limits(&queue.name)) {
        if limits.len() < LIMITS_MAX && limits.iter().all(|known| known.gate != limit.gate) {
            limits.push(limit);
        }
    }
    if limits.is_empty() {
        return Ok(Vec::new());
    }
    let name = |limit: &QueueLimit| match limit.counts {
        gate::Counts::Per(Per::Tenant | Per::Key) => format!("{}{PART}", limit.gate),
        _ => limit.gate.clone(),
    };
    let gates = store.gates(&limits.iter().map(name).collect::<Vec<_>>()).await?;
    let view = |(limit, gate): (QueueLimit, GateView)| {
        let (queue, name) = gate::parts(&limit.gate);
        let name = if name.is_empty() { "own" } else { name };
        LimitView { queue: queue.to_owned(), name: name.to_owned(), limit, gate }
    };
    Ok(limits.into_iter().zip(gates).map(view).collect())
}
