//! The loop that settles: what ended while a settle was in flight goes with the next one.
//!
//! A second settle goes beside the first where many attempts wait that finished well, cause nothing else, and have no
//! lease and no flow in common with those in flight: it waits for nobody. Postgres works on each settle with one
//! processor, and has more; SQLite has one writer.
//!
//! What the store cannot do now is tried for as long as it takes. While it is away, that is all. Where it answers and
//! still cannot write a batch, the batch may be what it cannot do: it is halved until it is known which attempt that
//! is, and that one waits apart, so that it holds up no other.

use std::collections::{HashSet, VecDeque};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{FlowId, Token};
use tidemill_store::{Error, Result, SettleItem};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::engine::{Tidemill, settle};
use crate::worker::shop::Shop;

/// Attempts settled in one transaction.
const BATCH_MAX: usize = 500;
/// Attempts that are worth a second settle beside the one in flight.
pub(crate) const BESIDE_MIN: usize = 100;
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
    ended: UnboundedReceiver<SettleItem>,
) {
    let mut desk = Desk {
        shop,
        mill,
        ended,
        fresh: Vec::new(),
        left: VecDeque::new(),
        is_turn_of_fresh: false,
        flights: JoinSet::new(),
        aboard: Vec::new(),
        pause: PAUSE_MIN,
        rests_until: None,
    };
    loop {
        desk.collect();
        if let Some(batch) = desk.next() {
            desk.fly(batch);
        } else if !desk.wait().await {
            return;
        }
    }
}

/// A batch that was in flight, and what became of it.
type Landed = (Batch, Result<()>);

/// What two settles must not have in common.
struct Aboard {
    flight: task::Id,
    leases: HashSet<Token>,
    flows: HashSet<FlowId>,
}

/// What waits to be settled, and is under way.
struct Desk {
    shop: Arc<Shop>,
    mill: Tidemill,
    ended: UnboundedReceiver<SettleItem>,
    /// What has ended since.
    fresh: Vec<SettleItem>,
    /// What is left of batches that failed.
    left: VecDeque<Batch>,
    /// Many may be left, and each takes its time to fail: what has ended since takes turns with them.
    is_turn_of_fresh: bool,
    flights: JoinSet<Landed>,
    aboard: Vec<Aboard>,
    /// How long it rests if the store is away.
    pause: Duration,
    rests_until: Option<Instant>,
}

impl Desk {
    /// Takes what is there.
    fn collect(&mut self) {
        let before = self.fresh.len();
        while let Ok(item) = self.ended.try_recv() {
            self.fresh.push(item);
        }
        self.shop.unsettled.taken(self.fresh.len() - before);
    }

    /// Waits for what ends next; answers whether anything did.
    async fn receive(&mut self) -> bool {
        let number = self.ended.recv_many(&mut self.fresh, BATCH_MAX).await;
        self.shop.unsettled.taken(number);
        number > 0
    }

    /// What is to be settled now, if anything is.
    fn next(&mut self) -> Option<Batch> {
        let now = Instant::now();
        if self.rests_until.is_some_and(|until| until > now) {
            return None;
        }
        self.rests_until = None;
        if !self.flights.is_empty() {
            return self.beside();
        }
        let number = self.fresh.len().min(BATCH_MAX);
        let due = self.left.iter().position(|batch| batch.is_due(now));
        if number > 0 && (due.is_none() || std::mem::take(&mut self.is_turn_of_fresh)) {
            return Some(Batch::of(self.fresh.drain(..number).collect()));
        }
        self.is_turn_of_fresh = true;
        self.left.remove(due?)
    }

    /// What may go beside the settle in flight, if that is much, and nothing has failed.
    fn beside(&mut self) -> Option<Batch> {
        let [first] = &self.aboard[..] else { return None };
        let has_one_writer = self.mill.0.store.backend() == "sqlite";
        if has_one_writer || !self.left.is_empty() || self.fresh.len() < BESIDE_MIN {
            return None;
        }
        let is_free = |item: &SettleItem| {
            let flow = item.job.options.flow.as_ref();
            item.is_plain()
                && !first.leases.contains(&item.token)
                && flow.is_none_or(|place| !first.flows.contains(&place.id))
        };
        if self.fresh.iter().filter(|item| is_free(item)).count() < BESIDE_MIN {
            return None;
        }
        let mut free = Vec::new();
        self.fresh = std::mem::take(&mut self.fresh)
            .into_iter()
            .filter_map(|item| {
                if free.len() < BATCH_MAX && is_free(&item) {
                    free.push(item);
                    return None;
                }
                Some(item)
            })
            .collect();
        Some(Batch::of(free))
    }

    fn fly(&mut self, batch: Batch) {
        let leases = batch.items.iter().map(|item| item.token).collect();
        let flows = batch.items.iter().filter_map(|item| item.job.options.flow.as_ref());
        let flows = flows.map(|place| place.id).collect();
        let (mill, worker) = (self.mill.clone(), self.shop.worker());
        let flight = self.flights.spawn(async move {
            let settled = settle::settle_own(&mill, worker, &batch.items).await.map(drop);
            (batch, settled)
        });
        self.aboard.push(Aboard { flight: flight.id(), leases, flows });
    }

    /// Waits for what comes next; answers whether anything can come.
    async fn wait(&mut self) -> bool {
        if !self.flights.is_empty() {
            let landed = tokio::select! {
                landed = self.flights.join_next_with_id() => landed,
                () = self.shop.unsettled.plenty.notified() => None,
            };
            if let Some(landed) = landed {
                self.land(landed).await;
            }
            return true;
        }
        let due = self.left.iter().filter_map(|batch| batch.again_at).min();
        match self.rests_until.or(due) {
            // While the store is away, nothing that comes can be settled.
            Some(until) if self.rests_until.is_some() || self.ended.is_closed() => {
                sleep_until(until).await;
                true
            }
            // Who comes meanwhile goes before those that wait.
            Some(until) => {
                let _ = tokio::time::timeout_at(until, self.receive()).await;
                true
            }
            None => self.receive().await,
        }
    }

    async fn land(&mut self, landed: Result<(task::Id, Landed), JoinError>) {
        let (flight, (batch, settled)) = match landed {
            Ok(landed) => landed,
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            // Nobody breaks a flight off but the end of this.
            Err(_) => return,
        };
        self.aboard.retain(|aboard| aboard.flight != flight);
        let Err(error) = settled else {
            self.shop.settled(batch.items.len());
            (self.pause, self.rests_until) = (PAUSE_MIN, None);
            return;
        };
        if settle::is_there(&self.mill, &error).await {
            put_back(&mut self.left, batch, &error);
        } else {
            self.left.push_front(batch);
            self.rests_until = Some(Instant::now() + jittered(self.pause));
            self.pause = (self.pause * 2).min(PAUSE_MAX);
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
