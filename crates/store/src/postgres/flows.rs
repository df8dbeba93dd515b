//! Flows: written whole, and carried on when jobs of them end.
//!
//! A job's end appends an arrival to its flow in its own transaction, and takes no lock for it. Right after,
//! whoever ended it carries the flow on (`advance.rs`): under the flow's lock, arrivals are counted, joins are
//! decided by the rule in `core`, and steps are opened. What arrives while one advance is under way goes with
//! the next. A process that dies in between is made up for by `tend.rs`.

mod act;
mod advance;
mod again;
mod forget;
mod grow;
mod part;
mod rerun;
mod rows;
mod saga;
mod start;
mod tend;
mod verbs;
mod view;
mod write;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::postgres::Shared;
use crate::wake::Hint;

pub(crate) use act::{begin, change};
pub(crate) use advance::Done;
pub(crate) use grow::Growth;
pub(crate) use part::add;
pub(crate) use start::Starts;
pub(crate) use tend::tend;
pub(crate) use view::{flow, inputs, list, outputs, places};
pub(crate) use write::start;

#[derive(Debug, Default)]
struct Waiting {
    flows: BTreeSet<Uuid>,
    is_flying: bool,
}

/// Flows that something of has ended, and nobody has counted it since.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrivals {
    waiting: Arc<Mutex<Waiting>>,
    under_way: TaskTracker,
}

impl Arrivals {
    /// Notes that jobs of these flows have ended; they will be carried on, soon.
    pub fn came(&self, shared: &Arc<Shared>, flows: impl IntoIterator<Item = Uuid>) {
        let mut waiting = self.lock();
        waiting.flows.extend(flows);
        if !waiting.is_flying && !waiting.flows.is_empty() {
            waiting.is_flying = true;
            self.under_way.spawn(self.clone().fly(Arc::clone(shared)));
        }
    }

    /// Waits until everything that has ended is counted.
    pub async fn rest(&self) {
        self.under_way.close();
        self.under_way.wait().await;
    }

    async fn fly(self, shared: Arc<Shared>) {
        while let Some(flows) = self.next() {
            if let Err(error) = advance::advance(&shared, &flows).await {
                tracing::warn!(%error, "flows could not be carried on; they will be in a moment");
                shared.wake.tell(Hint::Flows);
            }
        }
    }

    fn next(&self) -> Option<Vec<Uuid>> {
        let mut waiting = self.lock();
        waiting.is_flying = !waiting.flows.is_empty();
        waiting.is_flying.then(|| std::mem::take(&mut waiting.flows).into_iter().collect())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
