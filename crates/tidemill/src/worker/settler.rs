//! The loop that settles: what ended while a settle was in flight goes with the next one.
//!
//! What the store cannot do now is tried for as long as it takes. While it is away, that is all. Where it answers and
//! still cannot write a batch, the batch may be what it cannot do: it is halved until it is known which attempt that
//! is, and that one waits apart, so that it holds up no other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tidemill_store::{Error, SettleItem};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::engine::{Tidemill, settle};
use crate::worker::shop::Shop;

/// Attempts settled in one transaction.
const BATCH_MAX: usize = 500;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The longest pause of an attempt that alone cannot be settled: each try keeps the others waiting.
const PAUSE_LONE_MAX: Duration = Duration::from_secs(10);

/// Attempts that are settled together.
#[derive(Default)]
struct Batch {
    items: Vec<SettleItem>,
    /// The pause after which it is tried again, if it has to wait for that.
    pause: Option<Duration>,
    /// When it is.
    again_at: Option<Instant>,
}

impl Batch {
    fn of(items: Vec<SettleItem>) -> Self {
        Self { items, ..Self::default() }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.again_at.is_none_or(|at| at <= now)
    }
}

/// Runs until everything that can still come was settled.
pub(crate) async fn settle_all(
    shop: Arc<Shop>,
    mill: Tidemill,
    mut ended: UnboundedReceiver<SettleItem>,
) {
    let (mut left, mut pause) = (VecDeque::new(), PAUSE_MIN);
    while let Some(batch) = next(&mut left, &mut ended).await {
        let Err(error) = settle::settle_own(&mill, shop.worker(), &batch.items).await else {
            shop.settled(batch.items.len());
            pause = PAUSE_MIN;
            continue;
        };
        if settle::is_there(&mill, &error).await {
            put_back(&mut left, batch, &error);
        } else {
            left.push_front(batch);
            pause = rest(pause).await;
        }
    }
}

/// Settles one batch, for as long as it takes: the answer of a database that is away is not `no`.
pub(crate) async fn settle(shop: &Shop, mill: &Tidemill, items: &[SettleItem]) {
    let mut pause = PAUSE_MIN;
    while settle::settle_own(mill, shop.worker(), items).await.is_err() {
        pause = rest(pause).await;
    }
}

/// Lets some time pass; answers how much the next time.
async fn rest(pause: Duration) -> Duration {
    tokio::time::sleep(jittered(pause)).await;
    (pause * 2).min(PAUSE_MAX)
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// What is to be settled next: what has ended, and in turn with it what is left of batches that failed. `None`: nothing
/// comes any more.
async fn next(
    left: &mut VecDeque<Batch>,
    ended: &mut UnboundedReceiver<SettleItem>,
) -> Option<Batch> {
    let mut items = Vec::new();
    if left.is_empty() {
        ended.recv_many(&mut items, BATCH_MAX).await;
        return (!items.is_empty()).then(|| Batch::of(items));
    }
    loop {
        while items.len() < BATCH_MAX
            && let Ok(item) = ended.try_recv()
        {
            items.push(item);
        }
        if !items.is_empty() {
            left.push_back(Batch::of(std::mem::take(&mut items)));
        }
        let now = Instant::now();
        if let Some(at) = left.iter().position(|batch| batch.is_due(now)) {
            return left.remove(at);
        }
        let first = left.iter().filter_map(|batch| batch.again_at).min()?;
        if ended.is_closed() {
            sleep_until(first).await;
        } else {
            // Who comes meanwhile goes before those that wait.
            let _ = timeout_at(first, ended.recv_many(&mut items, BATCH_MAX)).await;
        }
    }
}

/// Keeps what the store cannot write now, behind what has ended since: halves of it, or alone, after a pause.
fn put_back(left: &mut VecDeque<Batch>, mut batch: Batch, error: &Error) {
    if batch.items.len() > 1 {
        let rest = batch.items.split_off(batch.items.len() / 2);
        left.extend([batch.items, rest].map(Batch::of));
        return;
    }
    if batch.pause.is_none() {
        let id = batch.items.first().map(|item| tracing::field::display(item.job.id));
        tracing::warn!(id, %error, "an attempt cannot be settled now; it is tried again beside the others");
    }
    let pause = batch.pause.unwrap_or(PAUSE_MIN);
    batch.again_at = Some(Instant::now() + jittered(pause));
    batch.pause = Some((pause * 2).min(PAUSE_LONE_MAX));
    left.push_back(batch);
}
