//! The rules of queues as this process knows them, at most a second old.
//!
//! Workers act on what stands here, so that no claim and no attempt asks the store for rules. Whoever
//! sets a rule tells; what was not heard is found by looking once a second, or when a claim is refused because it
//! follows rules that are no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidemill_core::Job;
use tidemill_core::job::deadline::Deadlines;
use tidemill_core::queue::{RuleBook, is_pattern, takes};
use tidemill_store::{Hint, Result};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::worker::shop::locked;

const LOOK_EVERY: Duration = Duration::from_millis(900);
/// Between looks because anything may have changed: on SQLite every commit of another process is told so, and so is
/// what a look itself has found.
const ANY_PAUSE: Duration = Duration::from_millis(20);

/// What is known of queues.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub(crate) book: RuleBook,
    /// Queues that have jobs waiting; for those who take from patterns.
    pub(crate) names: Vec<String>,
    /// Tenants with a weight of their own, by queue.
    pub(crate) tenants: Arc<BTreeMap<(String, String), u32>>,
}

impl Known {
    /// By when a job must start and finish.
    pub(crate) fn deadlines(&self, job: &Job) -> Deadlines {
        Deadlines::of(job, self.book.of(&job.queue))
    }
}

/// Where it stands.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    known: RwLock<Arc<Known>>,
    /// The names and patterns that somebody takes from, and how many do.
    wanted: Mutex<BTreeMap<String, usize>>,
}

impl Rules {
    pub(crate) fn known(&self) -> Arc<Known> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn wanted(&self) -> Vec<String> {
        locked(&self.wanted).keys().cloned().collect()
    }

    /// Keeps what was learnt; answers whether it is new.
    fn learn(&self, known: Known) -> bool {
        let mut place = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = **place != known;
        if is_new {
            *place = Arc::new(known);
        }
        is_new
    }
}

/// Somebody takes from these queues: as long as this is there, what must be known of them is.
#[derive(Debug)]
pub(crate) struct Wanted {
    rules: Arc<Rules>,
    queues: Vec<String>,
}

impl Wanted {
    pub(crate) fn new(rules: &Arc<Rules>, queues: Vec<String>) -> Self {
        let mut wanted = locked(&rules.wanted);
        for queue in &queues {
            *wanted.entry(queue.clone()).or_default() += 1;
        }
        drop(wanted);
        Self { rules: Arc::clone(rules), queues }
    }

    pub(crate) fn queues(&self) -> &[String] {
        &self.queues
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let mut wanted = locked(&self.rules.wanted);
        for queue in &self.queues {
            if let Some(number) = wanted.get_mut(queue) {
                *number -= 1;
            }
        }
        wanted.retain(|_, number| *number > 0);
    }
}

/// Looks at the rules now; answers whether they have changed.
pub(crate) async fn look(mill: &Tidemill) -> Result<bool> {
    let (store, queues) = (&mill.0.store, mill.0.rules.wanted());
    let book = store.queue_rules().await?;
    let names = if queues.iter().any(|queue| is_pattern(queue)) {
        store.queue_names().await?
    } else {
        Vec::new()
    };
    let weights = |queue: &String| {
        let of_tenants =
            book.of(queue).map(|rules| rules.tenant_weights.clone()).unwrap_or_default();
        let queue = queue.clone();
        of_tenants.into_iter().map(move |(tenant, weight)| ((queue.clone(), tenant), weight))
    };
    let tenants = Arc::new(queues.iter().chain(&names).flat_map(weights).collect());
    Ok(mill.0.rules.learn(Known { book, names, tenants }))
}

/// Follows the rules until `done`.
pub(crate) async fn follow(mill: Tidemill, done: CancellationToken) {
    let mut hints = mill.0.store.wake().listen();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looked_at = Instant::now();
    loop {
        let (known, queues) = (mill.0.rules.known(), mill.0.rules.wanted());
        let is_new = |queue: &String| {
            !known.names.contains(queue)
                && queues.iter().any(|own| is_pattern(own) && takes(own, queue))
        };
        let takes_from_patterns = queues.iter().any(|own| is_pattern(own));
        let told = async {
            loop {
                match hints.recv().await {
                    Ok(Hint::Rules) | Err(RecvError::Lagged(_)) => return,
                    Ok(Hint::Ready { queue }) if is_new(&queue) => return,
                    // It may be of a queue that a pattern means, and that had nothing waiting until now.
                    Ok(Hint::Any) if takes_from_patterns => {
                        return tokio::time::sleep_until(looked_at + ANY_PAUSE).await;
                    }
                    Ok(_) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = done.cancelled() => return,
            _ = looks.tick() => {}
            () = told => {}
        }
        // A store that is away is said elsewhere; until then the rules known last hold.
        let _ = renew(&mill).await;
        looked_at = Instant::now();
    }
}

/// Looks at the rules; if they have changed, everybody who claims by them is told to ask anew.
pub(crate) async fn renew(mill: &Tidemill) -> Result<()> {
    if look(mill).await? {
        mill.0.store.wake().tell(Hint::Any);
    }
    Ok(())
}
