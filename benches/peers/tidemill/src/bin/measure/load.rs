//! Jobs to measure with, and the plainest of workers: claim, settle, no handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill::core::{Edition, Payload, QueueLimit, Settlement};
use tidemill::store::request::GateEnd;
use tidemill::store::{Claim, ClaimRequest, Lane, SettleItem, Share, WorkerCard};
use tidemill::{Enqueue, Priority, Tidemill, Timestamp, WorkerId};

use crate::Res;

pub const QUEUE: &str = "default";
/// Claims in a row that come back empty.
const IN_VAIN_MAX: usize = 1000;

/// A job with a payload of a hundred bytes or so.
pub fn job(n: u64) -> Enqueue {
    let text = format!(
        r#"{{"id":{n},"to":"user{n}@example.com","subject":"Welcome to the mill, dear user"}}"#
    );
    Enqueue::raw("measure", text)
}

/// Enqueues `n` jobs in batches; answers how long it took.
pub async fn fill(mill: &Tidemill, n: u64) -> Res<Duration> {
    const BATCH: u64 = 5000;
    let start = Instant::now();
    for first in (0..n).step_by(BATCH as usize) {
        mill.enqueue_many((first..n.min(first + BATCH)).map(job)).await?;
    }
    Ok(start.elapsed())
}

/// A worker by hand.
#[derive(Clone)]
pub struct Hand<'a> {
    mill: &'a Tidemill,
    id: WorkerId,
    limits: Arc<Vec<QueueLimit>>,
    edition: Option<Edition>,
}

impl<'a> Hand<'a> {
    pub async fn register(mill: &'a Tidemill) -> Res<Self> {
        let id = WorkerId::new();
        let card = WorkerCard {
            id,
            name: "measure".into(),
            queues: vec![QUEUE.into()],
            kinds: vec![],
            slots: 1000,
            slots_of: std::collections::BTreeMap::new(),
            lease_ttl: None,
        };
        mill.store().register(card).await?;
        Ok(Self { mill, id, limits: Arc::default(), edition: None })
    }

    /// Claims under these limits from now on.
    pub fn under(self, limits: &Arc<Vec<QueueLimit>>) -> Self {
        Self { limits: Arc::clone(limits), ..self }
    }

    /// Claims by the rules that are set now.
    pub async fn by_rules(self) -> Res<Self> {
        let book = self.mill.store().queue_rules().await?;
        let (limits, edition) = (Arc::new(book.limits(QUEUE)), Some(book.edition()));
        Ok(Self { limits, edition, ..self })
    }

    pub async fn leave(self) -> Res<()> {
        self.mill.store().deregister(self.id).await?;
        Ok(())
    }

    pub async fn claim(&self, jobs_max: usize) -> Res<Claim> {
        let lane = |priority| Lane { queue: QUEUE.into(), priority };
        let lanes = Priority::ALL.into_iter().map(lane).collect();
        let share = Share::default();
        let limits = Arc::clone(&self.limits);
        let worker = self.id;
        let (edition, kinds, stand) = (self.edition, None, None);
        let ask = ClaimRequest { worker, lanes, share, limits, edition, kinds, jobs_max, stand };
        Ok(self.mill.store().claim(ask).await?)
    }

    pub async fn settle(&self, claim: Claim) -> Res<()> {
        let Some(token) = claim.token else { return Ok(()) };
        let done = || Settlement::Done { output: Payload::null(), follow_ups: vec![] };
        let item = |job: tidemill::store::ClaimedJob| SettleItem {
            job: job.job,
            token,
            attempt: job.attempt,
            lost: job.lost,
            started_at: Timestamp::now(),
            gates: job.gates.into_iter().map(GateEnd::new).collect(),
            settlement: done(),
            decided: false,
            run: None,
        };
        let items = claim.jobs.into_iter().map(item).collect();
        self.mill.store().settle(self.id, items).await?;
        Ok(())
    }

    /// Answers whether there was nothing any more.
    pub async fn claim_and_settle(&self, jobs_max: usize) -> Res<bool> {
        let claim = self.claim(jobs_max).await?;
        let is_over = claim.jobs.is_empty();
        self.settle(claim).await?;
        Ok(is_over)
    }

    pub async fn beat(&self) -> Res<()> {
        self.mill.store().beat(self.id).await?;
        Ok(())
    }
}

/// Takes `n` jobs with two claimers, each settling one batch while it claims the next. Answers jobs
/// per second and the claims' times.
pub async fn drain(mill: &Tidemill, n: u64, batch: usize) -> Res<(f64, Vec<Duration>)> {
    let start = Instant::now();
    let (one, two) = tokio::join!(drain_one(mill, n / 2, batch), drain_one(mill, n - n / 2, batch));
    let secs = start.elapsed().as_secs_f64();
    let mut times = one?;
    times.extend(two?);
    times.sort();
    Ok((n as f64 / secs, times))
}

async fn drain_one(mill: &Tidemill, n: u64, batch: usize) -> Res<Vec<Duration>> {
    let hand = Hand::register(mill).await?;
    let (mut times, mut taken, mut before, mut in_vain) = (Vec::new(), 0, None, 0);
    while taken < n {
        let ask = batch.min((n - taken) as usize);
        let claiming = async {
            let start = Instant::now();
            hand.claim(ask).await.map(|claim| (claim, start.elapsed()))
        };
        let settling = async {
            match before.take() {
                Some(claim) => hand.settle(claim).await,
                None => Ok(()),
            }
        };
        let (claimed, settled) = tokio::join!(claiming, settling);
        settled?;
        let (claim, took) = claimed?;
        // Others may hold what is due for a moment; without end, that is a store that ran dry.
        in_vain = if claim.jobs.is_empty() { in_vain + 1 } else { 0 };
        if in_vain > IN_VAIN_MAX {
            return Err("the store ran dry".into());
        }
        taken += claim.jobs.len() as u64;
        times.push(took);
        before = Some(claim);
    }
    if let Some(claim) = before {
        hand.settle(claim).await?;
    }
    Ok(times)
}

/// The p-th part of sorted times, in milliseconds.
pub fn part(sorted: &[Duration], p: f64) -> f64 {
    let at = ((sorted.len() as f64 * p) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}

/// Lets some time pass: what is measured here is an idle machine.
pub async fn rest(time: Duration) {
    let mut ticks = tokio::time::interval(time);
    ticks.tick().await;
    ticks.tick().await;
}
