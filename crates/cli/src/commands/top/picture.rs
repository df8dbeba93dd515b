//! What `top` shows, and where it comes from.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tidemill::core::depth::Rates;
use tidemill::store::{DeadGroup, QueueView};
use tidemill::{Alert, DeadFilter, JobFilter, State};

use crate::exit::Outcome;
use crate::mill::Mill;

/// Finished jobs by which latencies are told.
const RECENT: usize = 500;
const DEAD_GROUPS: usize = 20;

/// Whoever can say how everything stands.
pub trait Source {
    /// Looks once.
    async fn look(&mut self) -> Outcome<Picture>;
}

/// How everything stands.
#[derive(Debug, Clone, Serialize)]
pub struct Picture {
    /// When that was.
    pub at: Timestamp,
    /// What it is of.
    pub store: String,
    /// The queues, deepest first.
    pub queues: Vec<QueueLine>,
    /// Those who work.
    pub workers: Vec<WorkerLine>,
    /// What died, most numerous first.
    pub dead: Vec<DeadGroup>,
    /// What somebody should look at.
    pub alerts: Vec<Alert>,
}

/// A queue.
#[derive(Debug, Clone, Serialize)]
pub struct QueueLine {
    /// Its name.
    pub name: String,
    /// Somebody has paused it.
    pub paused: bool,
    /// Jobs that could start.
    pub ready: u64,
    /// Jobs that wait for the clock.
    pub scheduled: u64,
    /// Jobs that run.
    pub running: u64,
    /// Dead letters.
    pub dead: u64,
    /// Jobs that come and go, per second, if that is known.
    pub rates: Option<Rates>,
    /// How long the oldest that could start has waited, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// From enqueue to end, of half of the jobs that finished lately, in milliseconds.
    pub p50_ms: Option<u64>,
    /// The same of all but one in twenty.
    pub p95_ms: Option<u64>,
}

/// A worker.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerLine {
    /// Its name.
    pub name: String,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// The queues it takes from.
    pub queues: Vec<String>,
    /// How long ago it beat, in milliseconds.
    pub beat_ms: u64,
}

/// A store, or a server that has one.
pub struct OfMill(Mill);

impl OfMill {
    /// This one.
    pub fn new(mill: Mill) -> Self {
        Self(mill)
    }
}

impl Source for OfMill {
    async fn look(&mut self) -> Outcome<Picture> {
        let mill = &self.0;
        let (overview, alerts) = (mill.glance().await?, mill.alerts().await?);
        let mut dead = mill.dead().groups(&DeadFilter::default()).await?;
        dead.truncate(DEAD_GROUPS);
        let latencies = latencies(mill).await?;
        let rates: BTreeMap<&str, Option<Rates>> = overview
            .passed
            .iter()
            .map(|seen| (&*seen.queue, Rates::between(seen.before, seen.now)))
            .collect();
        let ago_ms = |at: Timestamp| {
            let ago = Duration::try_from(overview.now.duration_since(at)).unwrap_or_default();
            ago.as_millis() as u64
        };
        let line = |queue: &QueueView| {
            let (p50_ms, p95_ms) = latencies.get(&queue.name).copied().unzip();
            QueueLine {
                name: queue.name.clone(),
                paused: queue.rules.as_ref().is_some_and(|rules| rules.paused),
                ready: queue.ready.values().sum(),
                scheduled: queue.scheduled,
                running: queue.running,
                dead: queue.dead,
                rates: rates.get(&*queue.name).copied().flatten(),
                oldest_ms: queue.oldest_due_at.map(ago_ms),
                p50_ms,
                p95_ms,
            }
        };
        // Those that only pass jobs on have nothing in them at most moments.
        let is_known = |name: &str| overview.queues.iter().any(|queue| queue.name == name);
        let passing = rates.keys().filter(|name| !is_known(name));
        let passing =
            passing.map(|name| QueueView { name: (*name).to_owned(), ..QueueView::default() });
        let mut queues: Vec<QueueLine> = overview.queues.iter().map(line).collect();
        queues.extend(passing.map(|queue| line(&queue)));
        queues.sort_by(|one, other| {
            let depth = |line: &QueueLine| line.ready + line.running;
            depth(other).cmp(&depth(one)).then_with(|| one.name.cmp(&other.name))
        });
        let workers = overview.workers.iter().map(|worker| WorkerLine {
            name: worker.name.clone(),
            slots: worker.slots,
            queues: worker.queues.clone(),
            beat_ms: ago_ms(worker.beat_at),
        });
        let (at, store) = (overview.now, overview.backend.clone());
        Ok(Picture { at, store, queues, workers: workers.collect(), dead, alerts })
    }
}

/// From enqueue to end, of jobs that finished lately, by queue: of half of them, and of all but one in twenty.
async fn latencies(mill: &Mill) -> Outcome<BTreeMap<String, (u64, u64)>> {
    let filter = JobFilter { state: Some(State::Done), limit: RECENT, ..JobFilter::default() };
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for view in mill.jobs_page(&filter).await?.jobs {
        if let Some(finished_at) = view.finished_at {
            let took = finished_at.duration_since(view.job.created_at).as_millis();
            times.entry(view.job.queue.clone()).or_default().push(took.max(0) as u64);
        }
    }
    let quantiles = |mut times: Vec<u64>| {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        (at(50), at(95))
    };
    Ok(times.into_iter().map(|(queue, times)| (queue, quantiles(times))).collect())
}
