//! The heartbeat: one for the whole worker, however many jobs it runs.
//!
//! It brings back which running jobs were called off, and whether the worker was given up. A worker
//! that could not beat for the length of a lease drops its handlers: others may have their jobs by
//! now. If nobody has them (the database was away from all), they are given back unspent when it
//! returns, and no job is blamed for the outage.

use std::sync::Arc;
use std::time::Duration;

use tidemill_store::Hint;
use tidemill_store::request::Beat;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::worker::shop::{Shop, Why};

/// Beats until `done`.
pub(crate) async fn beat(shop: Arc<Shop>, done: CancellationToken) {
    let mut hints = shop.mill.0.store.wake().listen();
    let mut held_until = Instant::now() + shop.options.lease_ttl;
    loop {
        tokio::select! {
            () = done.cancelled() => return,
            () = tokio::time::sleep(shop.options.beat_every()) => {}
            () = called_off(&shop, &mut hints) => {}
        }
        let sent = Instant::now();
        match beat_once(&shop, held_until).await {
            Some(Beat { lost: false, cancelled }) => {
                held_until = sent + shop.options.lease_ttl;
                shop.call_off(&cancelled);
            }
            Some(Beat { lost: true, .. }) => {
                start_anew(&shop, &done).await;
                held_until = Instant::now() + shop.options.lease_ttl;
            }
            None if Instant::now() >= held_until => shop.end_all(Why::CutOff),
            None => {}
        }
    }
}

/// One beat; `None` when the store did not answer in time.
async fn beat_once(shop: &Shop, held_until: Instant) -> Option<Beat> {
    let now = Instant::now();
    // To the end of the lease and no further. Sooner would not help: a beat that waits behind others
    // for a busy database would lose its place, and be late again.
    let deadline = if now < held_until { held_until } else { now + shop.options.lease_ttl };
    let beating = shop.mill.0.store.beat(shop.worker());
    match tokio::time::timeout_at(deadline, beating).await {
        Ok(Ok(beat)) => Some(beat),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a heartbeat failed");
            None
        }
        Err(_) => None,
    }
}

/// Drops everything that runs and registers as a new worker, for as long as that takes.
async fn start_anew(shop: &Shop, done: &CancellationToken) {
    tracing::warn!(worker = %shop.worker(), "the lease is lost: running handlers are dropped");
    shop.end_all(Why::LeaseLost);
    shop.renew();
    let mut pause = Duration::from_millis(50);
    while shop.register().await.is_err() {
        tokio::select! {
            () = done.cancelled() => return,
            () = tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)) => {}
        }
        pause = (pause * 2).min(shop.options.lease_ttl);
    }
    shop.mill.0.store.wake().tell(Hint::Any);
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
