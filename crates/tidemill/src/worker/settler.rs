//! The loop that settles: what ended while a settle was in flight goes with the next one.

use std::sync::Arc;
use std::time::Duration;

use tidemill_store::SettleItem;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::engine::{Tidemill, settle};
use crate::worker::shop::Shop;

/// Attempts settled in one transaction.
const BATCH_MAX: usize = 500;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Runs until everything that can still come was settled.
pub(crate) async fn settle_all(
    shop: Arc<Shop>,
    mill: Tidemill,
    mut ended: UnboundedReceiver<SettleItem>,
) {
    let mut batch = Vec::with_capacity(BATCH_MAX);
    while ended.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let items = std::mem::take(&mut batch);
        let attempts = items.len();
        settle(&shop, &mill, &items).await;
        shop.settled(attempts);
    }
}

/// Settles one batch, for as long as it takes: the answer of a database that is away is not `no`.
pub(crate) async fn settle(shop: &Shop, mill: &Tidemill, items: &[SettleItem]) {
    let mut pause = Duration::from_millis(20);
    while settle::settle_own(mill, shop.worker(), items).await.is_err() {
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
