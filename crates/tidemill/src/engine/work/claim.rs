//! Claims for a worker elsewhere: answered when there is something, or when it has waited long enough.
//!
//! What was taken for an asker who is gone by the time of the answer is given back.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::queue::takes;
use tidemill_core::{JobId, QueueRules, Token, WorkerId};
use tidemill_store::{Claim, ClaimRequest, ClaimedJob, Error as StoreError, Hint, SettleItem};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::{CLAIM_JOBS_MAX, Work, check_names};
use crate::engine::Tidemill;
use crate::engine::judge::{too_late, turn_back};
use crate::engine::patience::ends_at;
use crate::engine::rules::{look, renew};
use crate::engine::settle;
use crate::error::Result;

/// The store is looked at this often when no hint comes: hints may be lost.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A claim is held up no longer by a store that cannot say whether jobs have begun: it is part of a lease.
const JUDGE_MAX: Duration = Duration::from_secs(2);

/// What a worker asks for.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// The queues to take from, by name or pattern.
    pub queues: Vec<String>,
    /// Only these kinds; none means all.
    pub kinds: Vec<String>,
    /// At most this many, and no more than 500.
    pub jobs_max: usize,
    /// How long to wait for something.
    pub wait: Duration,
}

/// A job that a worker is given.
#[derive(Debug, Clone)]
pub struct Given {
    /// The job, and which attempt this is.
    pub claimed: ClaimedJob,
    /// How long the attempt may run, if the job or its queue says so.
    pub run_timeout: Option<Duration>,
    /// When it must have finished, if the job or its queue says so.
    pub finish_by: Option<Timestamp>,
}

/// What a claim took. Dropped before it was handed over, its jobs are given back.
#[derive(Debug)]
pub struct Taken {
    mill: Tidemill,
    worker: WorkerId,
    /// Proves the lease on all of them; `None` when there are none.
    pub token: Option<Token>,
    /// The store's present.
    pub now: Timestamp,
    jobs: Vec<Given>,
}

impl Taken {
    /// The jobs; from now on they are the worker's.
    pub fn hand_over(mut self) -> Vec<Given> {
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let (Some(token), Ok(runtime)) = (self.token, tokio::runtime::Handle::try_current()) else {
            return;
        };
        let ids: Vec<JobId> = self.jobs.drain(..).map(|given| given.claimed.job.id).collect();
        if ids.is_empty() {
            return;
        }
        let (mill, worker) = (self.mill.clone(), self.worker);
        runtime.spawn(async move {
            if let Err(error) = mill.work().give_back(worker, token, ids).await {
                tracing::warn!(%error, %worker, %token, "jobs that nobody took could not be given back");
            }
        });
    }
}

impl Work<'_> {
    /// Takes jobs for a worker. Ask once at a time: answers of claims that cross might be taken for each other.
    pub async fn claim(&self, worker: WorkerId, demand: Demand) -> Result<Taken> {
        check_names(&demand.queues, &demand.kinds)?;
        let (mill, demand) = (self.0, Arc::new(demand));
        let mut hints = mill.0.store.wake().listen();
        if mill.0.hands.wants(worker, &mill.0.rules, &demand.queues) {
            look(mill).await?;
        }
        let (deadline, mut beats_at) = (ends_at(demand.wait), Instant::now());
        loop {
            // In a task of its own: a claim that is cut off in the middle would leave jobs that nobody knows of.
            let claim = once(mill.clone(), worker, Arc::clone(&demand));
            let claimed = tokio::spawn(claim).await;
            let (taken, next_due) = claimed.map_err(|error| {
                let reason = format!("a claim was cut off: {error}");
                StoreError::Database { reason }
            })??;
            if !taken.jobs.is_empty() {
                return Ok(taken);
            }
            let now = Instant::now();
            if now >= beats_at {
                // Many wait, and are woken by whatever comes for one of them.
                beats_at = self.next_beat(worker).await?;
            }
            if now >= deadline {
                return Ok(taken);
            }
            let look = LOOK_EVERY.mul_f64(0.75 + fastrand::f64() / 2.0);
            let looks_at = deadline.min(now + next_due.map_or(look, |due| due.min(look)));
            while tokio::select! {
                () = tokio::time::sleep_until(looks_at.min(beats_at)) => Instant::now() < looks_at,
                () = heard(&demand.queues, &mut hints) => false,
            } {
                // Its beat alone is due, which is no reason to look.
                beats_at = self.next_beat(worker).await?;
            }
        }
    }

    /// Beats for a worker that waits; says when to do so again.
    async fn next_beat(&self, worker: WorkerId) -> Result<Instant> {
        let now = Instant::now();
        self.live(worker).await?;
        Ok(now + self.0.0.hands.beat_every(worker))
    }
}

/// One claim by the rules as they are; and when to look again, if the clock says.
async fn once(
    mill: Tidemill,
    worker: WorkerId,
    demand: Arc<Demand>,
) -> Result<(Taken, Option<Duration>)> {
    let store = &mill.0.store;
    let (lanes, claim) = loop {
        let known = mill.0.rules.known();
        let lanes = mill.0.hands.lanes(worker, &demand.queues, &known);
        let ask = ClaimRequest {
            worker,
            lanes: lanes.lanes.clone(),
            share: lanes.share(&known),
            limits: lanes.limits(&known),
            edition: Some(known.book.edition()),
            kinds: (!demand.kinds.is_empty()).then(|| Arc::new(demand.kinds.clone())),
            jobs_max: demand.jobs_max.min(CLAIM_JOBS_MAX),
            stand: None,
        };
        match store.claim(ask).await {
            Err(StoreError::RulesOutdated) => renew(&mill).await?,
            claim => break (lanes, claim?),
        }
    };
    mill.0.hands.gave(worker, &lanes, &claim);
    let sorts = mill.0.measures.claimed(&claim.jobs);
    for (claimed, series) in claim.jobs.iter().zip(sorts.each()) {
        let waited = claim.now.duration_since(claimed.due_at);
        series.starts.see_time(Duration::try_from(waited).unwrap_or_default());
    }
    let next_due = claim.next_due.map(|due| due.duration_since(claim.now));
    let next_due = next_due.map(|wait| Duration::try_from(wait).unwrap_or_default());
    Ok((in_time(mill, worker, claim).await?, next_due))
}

/// Those of a claim that may still start; the others are settled.
async fn in_time(mill: Tidemill, worker: WorkerId, claim: Claim) -> Result<Taken> {
    let Claim { token, now, jobs, .. } = claim;
    let (mut given, mut late) = (Vec::with_capacity(jobs.len()), Vec::new());
    let known = mill.0.rules.known();
    let mut unfit = too_late(&mill, &jobs, now, tokio::time::sleep(JUDGE_MAX)).await;
    for claimed in jobs {
        if let (Some(settlement), Some(token)) = (unfit.remove(&claimed.job.id), token) {
            let ClaimedJob { job, attempt, lost, gates, .. } = claimed;
            let gates = turn_back(&known.book, &job, gates, &settlement);
            // It was never begun.
            let attempt = attempt.saturating_sub(1);
            let (started_at, decided, run) = (now, false, None);
            late.push(SettleItem {
                job,
                token,
                attempt,
                lost,
                started_at,
                gates,
                settlement,
                decided,
                run,
            });
            continue;
        }
        let own = claimed.job.options.run_timeout_ms.map(Duration::from_millis);
        let of_queue = || known.book.of(&claimed.job.queue).and_then(QueueRules::run_timeout);
        let finish_by = known.deadlines(&claimed.job).finish_by();
        given.push(Given { run_timeout: own.or_else(of_queue), finish_by, claimed });
    }
    let taken = Taken { mill: mill.clone(), worker, token, now, jobs: given };
    if !late.is_empty() {
        mill.0.hands.settled(worker, late.iter().map(|item| (item.token, item.job.id)));
        settle::settle(&mill, worker, &late).await?;
    }
    Ok(taken)
}

/// Completes when there may be a job in one of these queues.
async fn heard(queues: &[String], hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Ready { queue }) if queues.iter().any(|own| takes(own, &queue)) => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
