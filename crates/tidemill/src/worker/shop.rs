//! What the loops of a worker share: the handlers, the slots, and the attempts that run.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidemill_core::{JobId, Priority, Token, WorkerId};
use tidemill_store::{ClaimRequest, Lane, SettleItem, WorkerCard};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::Tidemill;
use crate::error::Result;
use crate::worker::context::States;
use crate::worker::middleware::Middleware;
use crate::worker::options::Options;
use crate::worker::registry::Registry;
use crate::worker::slots::Slots;

/// Why an attempt is asked to end before its handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The job was called off.
    Cancelled,
    /// The worker stops.
    Stopping,
    /// The worker was given up; whatever the attempt says will be refused.
    LeaseLost,
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
        if why == Why::LeaseLost {
            self.abandon.cancel();
        }
    }

    pub(crate) fn why(&self) -> Option<Why> {
        *locked(&self.why)
    }
}

pub(crate) struct Shop {
    pub(crate) mill: Tidemill,
    pub(crate) registry: Registry,
    pub(crate) states: States,
    pub(crate) hooks: Vec<Arc<dyn Middleware>>,
    pub(crate) options: Options,
    pub(crate) slots: Arc<Slots>,
    pub(crate) attempts: TaskTracker,
    pub(crate) settling: mpsc::UnboundedSender<SettleItem>,
    settled: Mutex<Option<mpsc::UnboundedReceiver<SettleItem>>>,
    kinds: Arc<Vec<String>>,
    worker: Mutex<WorkerId>,
    live: Mutex<HashMap<JobId, Live>>,
}

impl Shop {
    pub(crate) fn new(
        mill: Tidemill,
        registry: Registry,
        states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
        hooks: Vec<Arc<dyn Middleware>>,
        options: Options,
    ) -> Arc<Self> {
        let (settling, settled) = mpsc::unbounded_channel();
        Arc::new(Self {
            mill,
            kinds: Arc::new(registry.kinds()),
            registry,
            states: Arc::new(states),
            hooks,
            slots: Slots::new(options.slots),
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

    /// Announces this worker under its present id.
    pub(crate) async fn register(&self) -> Result<()> {
        let card = WorkerCard {
            id: self.worker(),
            name: self.options.name.clone(),
            queues: self.options.queues.clone(),
            kinds: self.kinds.to_vec(),
            slots: self.options.slots as u32,
        };
        Ok(self.mill.0.store.register(card).await?)
    }

    /// A worker that was given up is a new one from now on.
    pub(crate) fn renew(&self) {
        *locked(&self.worker) = WorkerId::new();
    }

    /// A wish for up to `jobs_max` jobs: every band of every queue, urgent ones first.
    pub(crate) fn wish(&self, jobs_max: usize) -> ClaimRequest {
        let lane = |priority| {
            self.options.queues.iter().map(move |queue| Lane { queue: queue.clone(), priority })
        };
        ClaimRequest {
            worker: self.worker(),
            lanes: Priority::ALL.into_iter().flat_map(lane).collect(),
            kinds: Some(Arc::clone(&self.kinds)),
            jobs_max,
        }
    }

    pub(crate) fn enter(&self, id: JobId, live: Live) {
        locked(&self.live).insert(id, live);
    }

    /// Forgets an attempt, unless a newer one of the same job has taken its place.
    pub(crate) fn leave(&self, id: JobId, token: Token) {
        let mut live = locked(&self.live);
        if live.get(&id).is_some_and(|l| l.token == token) {
            live.remove(&id);
        }
    }

    /// Asks these attempts to end.
    pub(crate) fn end(&self, ids: &[JobId], why: Why) {
        let live = locked(&self.live);
        for attempt in ids.iter().filter_map(|id| live.get(id)) {
            attempt.end(why);
        }
    }

    /// Asks all attempts to end.
    pub(crate) fn end_all(&self, why: Why) {
        for attempt in locked(&self.live).values() {
            attempt.end(why);
        }
    }

    /// Drops the handlers of all attempts.
    pub(crate) fn abandon_all(&self) {
        for attempt in locked(&self.live).values() {
            attempt.abandon.cancel();
        }
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
