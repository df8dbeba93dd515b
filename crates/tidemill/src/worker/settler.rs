//! The loop that settles: what ended while a settle was in flight goes with the next one.

use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{ErrorClass, Failure, Settlement};
use tidemill_store::{Error as StoreError, SettleItem, Settled};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::engine::telemetry::verb;
use crate::worker::shop::Shop;

/// Attempts settled in one transaction.
const BATCH_MAX: usize = 500;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs until everything that can still come was settled.
pub(crate) async fn settle_all(shop: Arc<Shop>, mut ended: UnboundedReceiver<SettleItem>) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let items = std::mem::take(&mut batch);
        let attempts = items.len();
        settle(&shop, items).await;
        shop.settled(attempts);
    }
}

/// Settles one batch, for as long as it takes: the answer of a database that is away is not `no`.
pub(crate) async fn settle(shop: &Shop, mut items: Vec<SettleItem>) {
    let store = &shop.mill.0.store;
    let mut pause = Duration::from_millis(20);
    loop {
        let settling = store.settle(shop.worker(), items.clone());
        match verb("settle", items.len(), settling).await {
            Ok(answers) => {
                shop.mill.0.measures.settled(&items, &answers);
                return tell_stale(&items, &answers);
            }
            // One attempt that the store cannot write must not take the others with it.
            Err(StoreError::Database { .. }) if items.len() > 1 => {
                for item in items {
                    Box::pin(settle(shop, vec![item])).await;
                }
                return;
            }
            Err(StoreError::Database { reason }) => match unwritable(&items, &reason) {
                Some(item) => items = vec![item],
                None => return,
            },
            Err(_) => {
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// What to settle instead of an outcome that the database refuses to keep: else the job would run
/// for as long as its worker lives, and nobody would see why.
fn unwritable(items: &[SettleItem], reason: &str) -> Option<SettleItem> {
    let item = items.first()?;
    let id = item.job.id;
    tracing::error!(%id, reason, "the outcome of an attempt cannot be written");
    if matches!(item.settlement, Settlement::Dead { .. }) {
        return None;
    }
    let message = format!("its outcome cannot be kept: {reason}");
    let failure = Failure::new(&item.job.kind, ErrorClass::Ambiguous, message);
    Some(SettleItem { settlement: Settlement::Dead { failure }, ..item.clone() })
}

fn tell_stale(items: &[SettleItem], answers: &[Settled]) {
    for (item, _) in items.iter().zip(answers).filter(|(_, answer)| **answer == Settled::Stale) {
        let (id, token) = (item.job.id, item.token);
        tracing::warn!(%id, %token, "a stale attempt was refused: its lease was lost");
    }
}
