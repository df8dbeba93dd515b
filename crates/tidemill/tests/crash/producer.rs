//! The producer that is killed: it writes down what it is about to enqueue, and what it was told.
//!
//! Several tasks enqueue at once: single jobs, batches, unique ones, ordered ones, and jobs in a
//! transaction of the producer's own. An enqueue that fails is one of which nobody knows; it goes on.

use std::time::Duration;

use fastrand::Rng;
use tidemill::{Enqueue, JobId, OnDead, OnDuplicate, Receipt, Tidemill, Unique};
use tidemill_testkit::eventually::eventually;

use super::history::{Ack, Intent, Log, Way};
use super::role::{Orders, open};
use super::transaction::Ledger;
use super::work::{Plan, Work};
use super::worker::retry;

const TASKS: u64 = 4;
/// It does not run far ahead of the workers.
const WAITING_MAX: u64 = 300;

/// Enqueues until it is killed.
pub async fn produce(orders: &Orders) {
    let mill = open(orders).await;
    let (intents, acks) = (Log::open(&orders.folder, "intents"), Log::open(&orders.folder, "acks"));
    let desk = Desk { mill, intents, acks, url: orders.url.clone() };
    let tasks = (0..TASKS).map(|task| {
        let line = format!("line {} {task}", orders.seed);
        desk.fill(Rng::with_seed(orders.seed * 31 + task), line)
    });
    futures::future::join_all(tasks).await;
}

struct Desk {
    mill: Tidemill,
    intents: Log,
    acks: Log,
    url: String,
}

impl Desk {
    async fn fill(&self, mut rng: Rng, line: String) {
        let mut ledger = Ledger::new(&self.url);
        loop {
            self.wait_for_room().await;
            match rng.u8(..100) {
                0..45 => self.one(&mut rng).await,
                45..60 => self.ordered(&mut rng, &line).await,
                60..72 => self.batch(&mut rng).await,
                72..88 => self.unique(&mut rng).await,
                _ => self.in_transaction(&mut rng, &mut ledger).await,
            }
        }
    }

    async fn wait_for_room(&self) {
        eventually("the workers to catch up", Duration::from_mins(5), async || {
            let unfinished = self.mill.unfinished().await.ok()?;
            (unfinished.waiting < WAITING_MAX).then_some(())
        })
        .await;
    }

    async fn one(&self, rng: &mut Rng) {
        let (id, job) = self.job(rng, None, Way::Plainly);
        if let Ok(receipt) = self.mill.enqueue(job).await {
            self.acks.write(&Ack { id, receipt });
        }
    }

    async fn ordered(&self, rng: &mut Rng, line: &str) {
        let n = rng.usize(1..4);
        let line = format!("{line} {}", rng.u8(..3));
        let (ids, jobs): (Vec<_>, Vec<_>) = (0..n)
            .map(|_| {
                let (id, job) = self.job_of(rng, None, Some(&line), Way::Plainly);
                (id, job.key(&line).ordered(OnDead::Skip))
            })
            .unzip();
        if let Ok(receipts) = self.mill.enqueue_many(jobs).await {
            self.acknowledge(&ids, &receipts);
        }
    }

    async fn batch(&self, rng: &mut Rng) {
        let n = rng.usize(2..20);
        let (ids, jobs): (Vec<_>, Vec<_>) =
            (0..n).map(|_| self.job(rng, None, Way::Plainly)).unzip();
        if let Ok(receipts) = self.mill.enqueue_many(jobs).await {
            self.acknowledge(&ids, &receipts);
        }
    }

    async fn unique(&self, rng: &mut Rng) {
        let key = format!("key {}", rng.u8(..6));
        let policies = [OnDuplicate::Reject, OnDuplicate::Join, OnDuplicate::RunOnceMore];
        let policy = policies[rng.usize(..policies.len())];
        let (id, job) = self.job(rng, Some(&key), Way::Plainly);
        let job = job.unique(Unique::by_key(&key).on_duplicate(policy));
        if let Ok(receipt) = self.mill.enqueue(job).await {
            self.acks.write(&Ack { id, receipt });
        }
    }

    async fn in_transaction(&self, rng: &mut Rng, ledger: &mut Ledger) {
        let way = if rng.u8(..4) == 0 { Way::RolledBack } else { Way::InTransaction };
        let (id, job) = self.job(rng, None, way);
        if let Ok(receipt) = ledger.enqueue(&self.mill, job, id, way).await
            && way == Way::InTransaction
        {
            self.acks.write(&Ack { id, receipt });
        }
    }

    fn acknowledge(&self, ids: &[JobId], receipts: &[Receipt]) {
        for (id, receipt) in ids.iter().zip(receipts) {
            self.acks.write(&Ack { id: *id, receipt: receipt.clone() });
        }
    }

    fn job(&self, rng: &mut Rng, unique: Option<&str>, way: Way) -> (JobId, Enqueue) {
        self.job_of(rng, unique, None, way)
    }

    /// A job, written down before anybody is asked to take it.
    fn job_of(
        &self,
        rng: &mut Rng,
        unique: Option<&str>,
        line: Option<&str>,
        way: Way,
    ) -> (JobId, Enqueue) {
        let plan = match rng.u8(..100) {
            0..60 => Plan::Plain,
            60..75 => Plan::Flaky(rng.u16(1..4)),
            75..95 => Plan::Parent,
            _ => Plan::Fatal,
        };
        // A child's id is its parent's with the last bit flipped, so a parent's is even.
        let id = JobId(uuid::Uuid::from_u128(JobId::new().0.as_u128() & !1));
        // A few run long enough to outlive a stop's patience, or a kill's.
        let takes_ms = if rng.u8(..50) == 0 { rng.u64(500..900) } else { rng.u64(..40) };
        let (unique, line) = (unique.map(str::to_owned), line.map(str::to_owned));
        self.intents.write(&Intent { id, plan, unique, line, way });
        (id, Enqueue::from(Work { plan, takes_ms }).id(id).retry(retry()))
    }
}
