//! The heartbeat: one for the whole worker, however many jobs it runs.
//!
//! It brings back which running jobs were called off, and whether the worker was given up. A worker
//! that could not beat for the length of a lease drops its handlers: others may have their jobs by
//! now. If nobody has them (the database was away from all), they are given back unspent when it
//! returns, and no job is blamed for the outage.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::span::Span;
use tidemill_core::wire::work::Pulse;
use tidemill_store::Hint;
use tidemill_store::request::Beat;
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
            beat = beat_once(&shop, held_until) => beat,
            () = unheard(&shop, &done) => return,
        };
        is_away = beat.is_none();
        match beat {
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
    match tokio::time::timeout_at(deadline, ask(shop)).await {
        Ok(Ok(beat)) => Some(beat),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a heartbeat failed");
            None
        }
        Err(_) => None,
    }
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

async fn ask(shop: &Shop) -> tidemill_store::Result<Beat> {
    match &shop.boss {
        Boss::Here(mill) => mill.0.store.beat(shop.worker()).await,
        Boss::Elsewhere(boss) => {
            let wait = Some(Span(shop.options.beat_every()));
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
