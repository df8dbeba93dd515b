//! What the loops of a worker share: the handlers, the slots, and the attempts that run.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::span::Span;
use tidemill_core::wire::work::{Card, ReportBody};
use tidemill_core::{JobId, Token, WorkerId};
use tidemill_store::{ClaimRequest, SettleItem, WorkerCard};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::rules::{Known, Wanted};
use crate::error::Result;
use crate::worker::boss::Boss;
use crate::worker::context::States;
use crate::worker::middleware::Middleware;
use crate::worker::options::Options;
use crate::worker::registry::Registry;
use crate::worker::scribe::Scribe;
use crate::worker::slots::{Group, Slots, Unsettled};
use crate::worker::wish::Lanes;

/// Why an attempt is asked to end before its handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The job was called off.
    Cancelled,
    /// The worker stops.
    Stopping,
    /// The worker was given up; whatever the attempt says will be refused.
    LeaseLost,
    /// The store was out of reach for a whole lease: others may run the job by now.
    CutOff,
}

/// An attempt that runs.
#[derive(Debug, Clone)]
pub(crate) struct Live {
    pub(crate) token: Token,
    /// Tells the handler.
    pub(crate) cancel: CancellationToken,
    /// Drops the handler.
    pub(crate) abandon: CancellationToken,
    why: Arc<Mutex<Option<Why>>>,
}

impl Live {
    pub(crate) fn new(token: Token) -> Self {
        let (cancel, abandon) = (CancellationToken::new(), CancellationToken::new());
        Self { token, cancel, abandon, why: Arc::default() }
    }

    /// Asks the attempt to end; the first reason stands.
    pub(crate) fn end(&self, why: Why) {
        locked(&self.why).get_or_insert(why);
        self.cancel.cancel();
        if matches!(why, Why::LeaseLost | Why::CutOff) {
            self.abandon.cancel();
        }
    }

    pub(crate) fn why(&self) -> Option<Why> {
        *locked(&self.why)
    }
}

pub(crate) struct Shop {
    pub(crate) boss: Boss,
    pub(crate) registry: Registry,
    pub(crate) states: States,
    pub(crate) hooks: Vec<Arc<dyn Middleware>>,
    pub(crate) options: Options,
    pub(crate) groups: Vec<Arc<Group>>,
    pub(crate) unsettled: Unsettled,
    pub(crate) attempts: TaskTracker,
    pub(crate) settling: mpsc::UnboundedSender<SettleItem>,
    settled: Mutex<Option<mpsc::UnboundedReceiver<SettleItem>>>,
    pub(crate) scribe: Arc<Scribe>,
    kinds: Arc<Vec<String>>,
    _wanted: Option<Wanted>,
    worker: Mutex<WorkerId>,
    live: Mutex<Living>,
}

/// The attempts that run, and what one that only just starts has to be told.
#[derive(Debug, Default)]
struct Living {
    attempts: HashMap<JobId, Live>,
    stopping: bool,
    abandoned: bool,
    /// Jobs that were called off, by the latest heartbeat, and do not run here yet.
    called_off: HashSet<JobId>,
}

impl Shop {
    pub(crate) fn new(
        boss: Boss,
        registry: Registry,
        states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
        hooks: Vec<Arc<dyn Middleware>>,
        options: Options,
    ) -> Arc<Self> {
        let (settling, settled) = mpsc::unbounded_channel();
        Arc::new(Self {
            scribe: Scribe::new(boss.clone()),
            _wanted: wanted(&boss, &options),
            boss,
            kinds: Arc::new(registry.kinds()),
            registry,
            states: Arc::new(states),
            hooks,
            groups: groups(&options),
            unsettled: Unsettled::default(),
            options,
            attempts: TaskTracker::new(),
            settling,
            settled: Mutex::new(Some(settled)),
            worker: Mutex::new(WorkerId::new()),
            live: Mutex::default(),
        })
    }

    /// The receiving end of what is to be settled; there is one.
    pub(crate) fn take_settled(&self) -> Option<mpsc::UnboundedReceiver<SettleItem>> {
        locked(&self.settled).take()
    }

    pub(crate) fn worker(&self) -> WorkerId {
        *locked(&self.worker)
    }

    /// Announces this worker: here under its present id, elsewhere under one that it is given.
    pub(crate) async fn register(&self) -> Result<()> {
        let (name, queues) = (self.options.name.clone(), self.options.all_queues());
        let (kinds, slots) = (self.kinds.to_vec(), self.options.all_slots() as u32);
        let slots_of = self.options.slots_of();
        match &self.boss {
            Boss::Here(mill) => {
                let (id, lease_ttl) = (self.worker(), self.options.own_lease_ttl());
                let card = WorkerCard { id, name, queues, kinds, slots, slots_of, lease_ttl };
                mill.0.store.register(card).await?;
            }
            Boss::Elsewhere(boss) => {
                let lease = Some(Span(self.options.lease_ttl));
                let card = Card { name, queues, kinds, slots, slots_of, lease };
                let id = boss.broker.register(&card).await?;
                *locked(&self.worker) = id;
            }
        }
        Ok(())
    }

    /// The kinds it knows.
    pub(crate) fn kinds(&self) -> &[String] {
        &self.kinds
    }

    /// A worker that was given up is a new one from now on, and what it has begun is over. The new one comes first:
    /// an attempt that starts meanwhile finds it, or is found.
    pub(crate) fn renew(&self) {
        *locked(&self.worker) = WorkerId::new();
        self.end_all(Why::LeaseLost);
    }

    /// A wish for up to `jobs_max` jobs of these lanes.
    pub(crate) fn wish(&self, lanes: &Lanes, known: &Known, jobs_max: usize) -> ClaimRequest {
        ClaimRequest {
            worker: self.worker(),
            lanes: lanes.lanes.clone(),
            share: lanes.share(known),
            limits: lanes.limits(known),
            edition: Some(known.book.edition()),
            kinds: Some(Arc::clone(&self.kinds)),
            jobs_max,
            stand: None,
        }
    }

    /// How many attempts run now.
    pub(crate) fn used(&self) -> usize {
        self.groups.iter().map(|group| group.slots.used()).sum()
    }

    /// Attempts were settled: whoever waited for that may go on.
    pub(crate) fn settled(&self, attempts: usize) {
        self.unsettled.settled(attempts);
        for group in &self.groups {
            group.slots.freed.notify_one();
        }
    }

    /// Notes an attempt that starts. One whose worker began to stop meanwhile, or was given up, is told at once.
    pub(crate) fn enter(&self, id: JobId, claimed_by: WorkerId, live: Live) {
        let mut living = locked(&self.live);
        if claimed_by != self.worker() {
            live.end(Why::LeaseLost);
        }
        if living.stopping {
            live.end(Why::Stopping);
        }
        if living.called_off.remove(&id) {
            live.end(Why::Cancelled);
        }
        if living.abandoned {
            live.abandon.cancel();
        }
        living.attempts.insert(id, live);
    }

    /// Forgets an attempt, unless a newer one of the same job has taken its place.
    pub(crate) fn leave(&self, id: JobId, token: Token) {
        let mut living = locked(&self.live);
        if living.attempts.get(&id).is_some_and(|l| l.token == token) {
            living.attempts.remove(&id);
        }
    }

    /// Asks these attempts to end: a heartbeat says that they were called off. Those that have not
    /// started yet are remembered.
    pub(crate) fn call_off(&self, ids: &[JobId]) {
        let mut living = locked(&self.live);
        living.called_off.clear();
        for id in ids {
            match living.attempts.get(id) {
                Some(attempt) => attempt.end(Why::Cancelled),
                None => drop(living.called_off.insert(*id)),
            }
        }
    }

    /// Whether a job that has not started yet was called off.
    pub(crate) fn is_called_off(&self, id: JobId) -> bool {
        locked(&self.live).called_off.contains(&id)
    }

    /// Hands over what an attempt came to, to be settled.
    pub(crate) fn hand_over(&self, item: SettleItem) {
        self.unsettled.ended();
        // The receiver lives as long as the worker does.
        let _ = self.settling.send(item);
        self.unsettled.came();
    }

    /// Hands over what an attempt came to, to be reported.
    pub(crate) fn report(&self, report: ReportBody) {
        if let Boss::Elsewhere(boss) = &self.boss {
            self.unsettled.ended();
            let _ = boss.reports.send(report);
        }
    }

    /// Asks all attempts to end; when the worker stops, also those that only just start.
    pub(crate) fn end_all(&self, why: Why) {
        let mut living = locked(&self.live);
        living.stopping |= why == Why::Stopping;
        for attempt in living.attempts.values() {
            attempt.end(why);
        }
    }

    /// Drops the handlers of all attempts, also of those that only just start.
    pub(crate) fn abandon_all(&self) {
        let mut living = locked(&self.live);
        living.abandoned = true;
        for attempt in living.attempts.values() {
            attempt.abandon.cancel();
        }
    }
}

/// What must be known of the queues here; elsewhere it is known there.
fn wanted(boss: &Boss, options: &Options) -> Option<Wanted> {
    match boss {
        Boss::Here(mill) => Some(Wanted::new(&mill.0.rules, options.all_queues())),
        Boss::Elsewhere(_) => None,
    }
}

/// The shared slots, and those that belong to one queue.
fn groups(options: &Options) -> Vec<Arc<Group>> {
    let shared = Slots::new(options.slots);
    let own: Vec<_> = options
        .dedicated
        .iter()
        .map(|own| {
            let overflow = own.overflows.then(|| Arc::clone(&shared));
            Arc::new(Group::dedicated(own.queue.clone(), Slots::new(own.slots), overflow))
        })
        .collect();
    let shared = Arc::new(Group::shared(options.shared_queues(), shared, &own));
    std::iter::once(shared).chain(own).collect()
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
