//! Why a queue is as deep as it is: what comes and goes, everything that holds its jobs, and what is known of its end.
//!
//! Looks are bounded, however many jobs wait: nothing here counts a queue.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidemill_core::depth::Rates;
use tidemill_core::gate::{self, Counts, GateView, PART, Per};
use tidemill_core::queue::takes;
use tidemill_core::why::{Holder, QueueWhy, Trend, drains_at_most, drains_in_ms};
use tidemill_core::{QueueLimit, WorkerId};
use tidemill_store::{Crowd, DepthView, Store, WorkerView};

use crate::engine::Tidemill;
use crate::error::Result;

impl Tidemill {
    /// Why a queue is as deep as it is: what comes and goes, what holds it, when it will be empty.
    pub async fn why_queue(&self, queue: &str) -> Result<QueueWhy> {
        let store = self.0.store.as_ref();
        let view = self.depth(queue).await?;
        let (depth, now) = (view.depth(), view.now.at);
        let book = store.queue_rules().await?;
        let mut workers = self.live_workers().await?;
        workers.retain(|worker| worker.queues.iter().any(|own| takes(own, queue)));
        let crowd = if depth == 0 { Crowd::default() } else { store.crowd(queue).await? };
        let limits = book.limits(queue);
        let bound = bound_by(store, &view, &limits).await?;
        let is_paused = book.paused_by(queue);
        let mut holders = Vec::new();
        holders.extend(is_paused.map(|rule| Holder::Paused { rule: rule.to_owned() }));
        holders.extend(workers.is_empty().then_some(Holder::NoWorker));
        // Nothing leaves, whatever left a while ago.
        let is_still = depth > 0 && !holders.is_empty();
        holders.extend(unknown_kinds(&workers, &crowd));
        holders.extend(is_paused.is_none().then(|| busy(&workers, &crowd, queue)).flatten());
        let is_held = |holder: &Holder| matches!(holder, Holder::Limit { held: 1.., .. });
        let clock = clock(&crowd, bound.iter().any(is_held));
        holders.extend(bound.into_iter().chain(clock));
        holders.extend(waiting(crowd));
        let rates = Rates::between(view.before, view.now);
        let drains_in = rates.filter(|_| !is_still).and_then(|rates| drains_in_ms(depth, rates));
        let wide = limits.iter().filter(|limit| limit.is_wide()).filter_map(|limit| limit.rate);
        let drains_in = drains_in.map(|ms| drains_at_most(ms, depth, wide));
        let drains_in = drains_in.filter(|ms| !holders.iter().any(|it| outlasts(it, now, *ms)));
        Ok(QueueWhy {
            queue: queue.to_owned(),
            depth,
            depth_max: book.of(queue).and_then(|rules| rules.depth_max),
            above_since: view.above_since,
            rates,
            trend: rates.map(Trend::of),
            drains_in_ms: drains_in,
            holders,
            tenants: view.tenants,
        })
    }
}

/// Whether it still holds jobs when the rest has gone, so many ms from now.
fn outlasts(holder: &Holder, now: Timestamp, ms: u64) -> bool {
    match holder {
        Holder::Clock { all, last_at, .. } => {
            *all || u128::from(ms) < last_at.duration_since(now).as_millis().unsigned_abs()
        }
        Holder::Asleep { .. } | Holder::DeadLines { .. } => true,
        _ => false,
    }
}

/// Kinds that wait in a queue and that none of its workers knows.
fn unknown_kinds(workers: &[WorkerView], crowd: &Crowd) -> Option<Holder> {
    let is_unknown = |kind: &&String| !workers.iter().any(|worker| knows(worker, kind));
    let kinds: Vec<_> = crowd.kinds.iter().filter(is_unknown).cloned().collect();
    (!workers.is_empty() && !kinds.is_empty()).then_some(Holder::KindUnknown { kinds })
}

fn knows(worker: &WorkerView, kind: &String) -> bool {
    worker.kinds.is_empty() || worker.kinds.contains(kind)
}

/// Workers that have no slot left for what is due: all that know a kind of it.
fn busy(workers: &[WorkerView], crowd: &Crowd, queue: &str) -> Option<Holder> {
    if crowd.due == 0 {
        return None;
    }
    let full: BTreeSet<WorkerId> = workers
        .iter()
        .filter(|worker| is_full(worker, crowd, queue))
        .map(|worker| worker.id)
        .collect();
    let knowing = |kind: &String| -> Vec<&WorkerView> {
        workers.iter().filter(|worker| knows(worker, kind)).collect()
    };
    let waits = |of_kind: &Vec<&WorkerView>| of_kind.iter().all(|worker| full.contains(&worker.id));
    let busy = crowd.kinds.iter().map(knowing).filter(waits).flatten();
    let busy: BTreeSet<(WorkerId, u32)> =
        busy.map(|worker| (worker.id, worker.slots_for(queue))).collect();
    let slots = busy.iter().map(|(_, slots)| u64::from(*slots)).sum();
    (!busy.is_empty()).then_some(Holder::Busy { workers: busy.len(), slots })
}

/// Whether a worker has no slot left for jobs of this queue: all are taken, or those that they may take.
pub(super) fn is_full(worker: &WorkerView, crowd: &Crowd, queue: &str) -> bool {
    let held = || crowd.held.iter().filter(|(id, ..)| *id == worker.id);
    if held().map(|(.., jobs)| jobs).sum::<u64>() >= u64::from(worker.slots) {
        return true;
    }
    let Some((name, slots)) = worker.nearest(queue) else { return false };
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, queue, jobs) in held() {
        *by_name.entry(worker.nearest(queue).map_or("", |(name, _)| name)).or_default() += jobs;
    }
    let of = |name: &str| by_name.get(name).copied().unwrap_or(0);
    // A queue's own slots are taken first and become free last.
    let overflowed = |name: &str| {
        let own = worker.slots_of.get(name).map_or(0, |slots| slots.own);
        of(name).saturating_sub(u64::from(own))
    };
    let own: u64 = worker.slots_of.values().map(|slots| u64::from(slots.own)).sum();
    let shared = u64::from(worker.slots).saturating_sub(own);
    let taken: u64 = by_name.keys().copied().map(overflowed).sum();
    of(name) >= u64::from(slots.own)
        && (overflowed(name) >= u64::from(slots.shared) || taken >= shared)
}

/// What waits for the clock; others may be held at a limit.
fn clock(crowd: &Crowd, has_held: bool) -> Option<Holder> {
    let (next_at, last_at) = crowd.next_at.zip(crowd.last_at)?;
    let all = crowd.due + crowd.asleep + crowd.lined == 0 && !has_held;
    Some(Holder::Clock { jobs: crowd.later, all, next_at, last_at })
}

/// What waits for something else than the clock or a slot.
fn waiting(crowd: Crowd) -> impl Iterator<Item = Holder> {
    let asleep = (crowd.asleep > 0).then_some(Holder::Asleep { runs: crowd.asleep });
    let lines = (crowd.lined > 0).then_some(Holder::Lines { jobs: crowd.lined });
    let lines_dead = crowd.stuck;
    let dead = crowd.stuck_line;
    let dead = dead.map(|(key, head)| Holder::DeadLines { lines: lines_dead, key, head });
    [asleep, lines, dead].into_iter().flatten()
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
