//! The loop that asks for work: whenever a slot is free and there may be a job for it.
//!
//! No timer gates a free slot. A full claim is followed by the next one as soon as a slot is free;
//! after a short one the loop waits for a hint, for the next due time, or for its turn to look.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::queue::matches;
use tidemill_core::share::Turns;
use tidemill_store::{Claim, Hint};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

use crate::engine::telemetry::add;
use crate::worker::execute::execute;
use crate::worker::shop::Shop;
use crate::worker::slots::Group;
use crate::worker::wish::Lanes;

const OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Asks for jobs for one group of slots, until `quiet`.
pub(crate) async fn dispatch(shop: Arc<Shop>, group: Arc<Group>, quiet: CancellationToken) {
    let mut hints = shop.mill.0.store.wake().listen();
    let (mut outage, mut turns) = (Outage::default(), Turns::default());
    while let Some(free) = free_slots(&shop, &group, &quiet).await {
        let asked = free.min(shop.options.claim_jobs_max);
        forget(&mut hints);
        let known = shop.mill.0.rules.known();
        let lanes = Lanes::of(&group.queues, &known, &turns);
        let wish = shop.wish(&lanes, &known, asked);
        let worker = wish.worker;
        let next_due = match shop.mill.0.store.claim(wish).await {
            // Given up while it asked: whoever rescued the worker has these jobs.
            Ok(_) if worker != shop.worker() => continue,
            Ok(claim) => {
                outage.over();
                let (full, next_due) = (claim.jobs.len() >= asked, wait_of(&claim));
                lanes.took(&claim, &mut turns);
                start_all(&shop, &group, claim);
                if full {
                    continue;
                }
                next_due
            }
            Err(error) => Some(outage.pause(&error)),
        };
        let look = poll_pause(&shop);
        let pause = next_due.map_or(look, |due| due.min(look));
        tokio::select! {
            () = quiet.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = heard(&group, &mut hints) => {}
        }
    }
}

/// Waits for a free slot; `None` when the worker is to be quiet.
async fn free_slots(shop: &Shop, group: &Group, quiet: &CancellationToken) -> Option<usize> {
    loop {
        let freed = group.slots.freed.notified();
        if quiet.is_cancelled() {
            return None;
        }
        match group.slots.free(&shop.unsettled) {
            0 => tokio::select! {
                () = quiet.cancelled() => return None,
                () = freed => {}
            },
            free => return Some(free),
        }
    }
}

fn start_all(shop: &Arc<Shop>, group: &Group, claim: Claim) {
    let Some(token) = claim.token else { return };
    add(&shop.mill.0.counters.claimed, claim.jobs.len());
    for claimed in claim.jobs {
        let (shop, slot, now) = (Arc::clone(shop), group.slots.take(), claim.now);
        let attempts = shop.attempts.clone();
        attempts.spawn(async move {
            if let Some(item) = execute(&shop, claimed, token, now, slot).await {
                shop.unsettled.ended();
                // The receiver lives as long as the worker does.
                let _ = shop.settling.send(item);
            }
        });
    }
}

/// How long until the next job of these lanes is due, by the store's clock.
fn wait_of(claim: &Claim) -> Option<Duration> {
    let wait = claim.next_due?.duration_since(claim.now);
    Some(Duration::try_from(wait).unwrap_or_default())
}

/// Spread, so that a thousand workers do not look in step.
fn poll_pause(shop: &Shop) -> Duration {
    shop.options.poll_every.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// What is heard before a claim is answered by that claim.
fn forget(hints: &mut Receiver<Hint>) {
    while matches!(hints.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
}

/// Completes when there may be a job for this worker.
async fn heard(group: &Group, hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Ready { queue }) if group.queues.iter().any(|own| matches(own, &queue)) => {
                return;
            }
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The database is away: said once, tried ever more rarely, with jitter.
#[derive(Default)]
struct Outage {
    failures: u32,
}

impl Outage {
    fn pause(&mut self, error: &tidemill_store::Error) -> Duration {
        if self.failures == 0 {
            tracing::warn!(%error, "no jobs can be claimed; trying again until it works");
        }
        self.failures = self.failures.saturating_add(1);
        let full = Duration::from_millis(50) * 2_u32.pow(self.failures.min(10));
        full.min(OUTAGE_PAUSE_MAX).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn over(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "jobs can be claimed again");
        }
        self.failures = 0;
    }
}
