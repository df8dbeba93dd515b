//! The heartbeat: one for the whole worker, however many jobs it runs.
//!
//! It brings back which running jobs were called off, and whether the worker was given up. A worker
//! that could not beat for the length of a lease drops its handlers: others may have their jobs by
//! now. If nobody has them (the database was away from all), they are given back unspent when it
//! returns, and no job is blamed for the outage.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::span::Span;
use tidemill_core::wire::work::{Beaten, Pulse};
use tidemill_store::{Error, Hint, Result};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::worker::boss::Boss;
use crate::worker::shop::{Shop, Why};

/// Between two beats elsewhere, however often hints end them early.
const REST: Duration = Duration::from_millis(50);

/// Beats until `done`.
pub(crate) async fn beat(shop: Arc<Shop>, done: CancellationToken) {
    let mut hints = shop.boss.listen();
    let mut held_until = Instant::now() + shop.options.lease_ttl;
    let mut is_away = false;
    loop {
        tokio::select! {
            () = done.cancelled() => return,
            () = rested(&shop, is_away) => {}
            () = called_off(&shop, &mut hints) => {}
        }
        let sent = Instant::now();
        let beat = tokio::select! {
            biased;
            beat = beat_once(&shop, held_until, is_away) => beat,
            () = unheard(&shop, &done) => return,
        };
        is_away = beat.is_err();
        match beat {
            Ok(Some(Beaten { cancelled, waited_ms })) => {
                // It was written no sooner than so long after it was sent.
                let waited = Duration::from_millis(waited_ms).min(sent.elapsed());
                held_until = sent + waited + shop.options.lease_ttl;
                shop.call_off(&cancelled);
            }
            Ok(None) => {
                start_anew(&shop, &done).await;
                held_until = Instant::now() + shop.options.lease_ttl;
            }
            Err(error) => {
                tracing::debug!(%error, "a heartbeat failed");
                if Instant::now() >= held_until {
                    shop.end_all(Why::CutOff);
                }
            }
        }
    }
}

/// One beat; `None` when the worker was given up.
async fn beat_once(shop: &Shop, held_until: Instant, is_away: bool) -> Result<Option<Beaten>> {
    let left = held_until.saturating_duration_since(Instant::now());
    // What is over cannot be lost any more: there is time again.
    let left = if left.is_zero() { shop.options.lease_ttl } else { left };
    let (wait, patience) = match &shop.boss {
        // To the end of the lease and no further. Sooner would not help: a beat that waits behind others
        // for a busy database would lose its place, and be late again.
        Boss::Here(_) => (Duration::ZERO, left),
        Boss::Elsewhere(_) => pace(shop.options.lease_ttl, left, is_away),
    };
    let beaten = tokio::time::timeout(patience, ask(shop, wait)).await;
    beaten.unwrap_or_else(|_| {
        let reason = "a heartbeat was not answered in time".to_owned();
        Err(Error::Unavailable { reason, unknown: true })
    })
}

/// How long a beat may wait elsewhere, and by when its answer is there. It does not wait after one that was lost, or
/// where little of the lease is left; and as its connection may be dead, there is time for another one.
fn pace(lease_ttl: Duration, left: Duration, is_away: bool) -> (Duration, Duration) {
    let (wait, margin) = (lease_ttl / 3, lease_ttl / 6);
    let wait = if is_away || left < wait + 2 * margin { Duration::ZERO } else { wait };
    let patience = wait + (left.saturating_sub(wait) / 2).max(margin);
    (wait, patience.min(left))
}

/// Here a rest comes before a beat. Elsewhere the beat itself takes as long, so that what is called off is heard.
async fn rested(shop: &Shop, is_away: bool) {
    let rest = match &shop.boss {
        Boss::Here(_) => shop.options.beat_every(),
        Boss::Elsewhere(_) if is_away => shop.options.beat_every() / 4,
        Boss::Elsewhere(_) => REST,
    };
    tokio::time::sleep(rest).await;
}

/// Completes when a beat that takes its time elsewhere is of no use any more.
async fn unheard(shop: &Shop, done: &CancellationToken) {
    match &shop.boss {
        Boss::Here(_) => std::future::pending().await,
        Boss::Elsewhere(_) => done.cancelled().await,
    }
}

async fn ask(shop: &Shop, wait: Duration) -> Result<Option<Beaten>> {
    match &shop.boss {
        Boss::Here(mill) => {
            let beat = mill.0.store.beat(shop.worker()).await?;
            Ok((!beat.lost).then_some(Beaten { cancelled: beat.cancelled, waited_ms: 0 }))
        }
        Boss::Elsewhere(boss) => {
            let wait = (!wait.is_zero()).then_some(Span(wait));
            let pulse = Pulse { wait, tokens: Some(boss.held.tokens()) };
            boss.broker.beat(shop.worker(), pulse).await
        }
    }
}

/// Drops everything that runs and registers as a new worker, for as long as that takes.
async fn start_anew(shop: &Shop, done: &CancellationToken) {
    tracing::warn!(worker = %shop.worker(), "the lease is lost: running handlers are dropped");
    shop.renew();
    let mut pause = Duration::from_millis(50);
    while let Err(error) = shop.register().await {
        tracing::warn!(%error, "the worker could not register anew; trying again until it works");
        tokio::select! {
            () = done.cancelled() => return,
            () = tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
        }
        pause = (pause * 2).min(shop.options.lease_ttl);
    }
    shop.boss.tell(Hint::Any);
}

/// Completes when a job of this worker was called off, so that its handler need not wait a beat.
async fn called_off(shop: &Shop, hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Cancel { worker }) if worker == shop.worker() => return,
            // On SQLite other processes are heard only so; a beat is cheap.
            Ok(Hint::Any) if shop.used() > 0 => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_waits_only_where_another_one_still_fits_into_the_lease() {
        let seconds = Duration::from_secs_f64;
        let table = [
            // What is left of six seconds, whether the last beat was lost; how long it waits and what it may take.
            (5.9, false, 2.0, 3.95),
            (4.0, false, 2.0, 3.0),
            (3.9, false, 0.0, 1.95),
            (4.0, true, 0.0, 2.0),
            (1.5, true, 0.0, 1.0),
            (0.5, true, 0.0, 0.5),
        ];
        for (left, is_away, wait, patience) in table {
            let pace = pace(seconds(6.0), seconds(left), is_away);
            assert_eq!(pace, (seconds(wait), seconds(patience)), "{left} s left");
        }
    }
}
