//! What came of the demo's attempts, counted as they end.
//!
//! It watches from a hook around every attempt, and only those of this run: jobs that an earlier
//! run left behind are worked off, but not counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidemill::{Attempted, Context, ErrorClass, FlowId, Job, JobId, Middleware, Next, Timestamp};

use super::handlers::Plan;
use super::kinds::{FollowUpMail, KINDS};
use super::signup;

/// What came of one kind.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Jobs that are done, cancelled or dead.
    pub finished: u64,
    /// Attempts that failed and were tried again.
    pub retried: u64,
    /// Attempts that were told to wait.
    pub limited: u64,
    /// Jobs that are dead.
    pub dead: u64,
    /// From being due to the start of the first attempt.
    pub waits: Vec<Duration>,
    /// How long handlers ran.
    pub runs: Vec<Duration>,
}

/// What came of all kinds.
#[derive(Debug)]
pub struct Tally {
    run: String,
    follow_up_delay: Duration,
    counts: Mutex<(BTreeMap<String, Counts>, HashSet<JobId>)>,
    /// When the steps of flows ended, by the kinds of their jobs.
    ends: Mutex<HashMap<(FlowId, String), Timestamp>>,
    /// Second clicks, which started nothing.
    pub joined: AtomicU64,
}

impl Tally {
    /// Nothing yet.
    pub fn new(plan: &Plan) -> Self {
        let (run, follow_up_delay) = (plan.run.clone(), plan.follow_up_delay);
        let (counts, ends) = (Mutex::default(), Mutex::default());
        Self { run, follow_up_delay, counts, ends, joined: AtomicU64::new(0) }
    }

    /// What came of a kind.
    pub fn of(&self, kind: &str) -> Counts {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0.get(kind).cloned().unwrap_or_default()
    }

    /// How many jobs have finished.
    pub fn finished(&self) -> u64 {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.0.values().map(|counts| counts.finished).sum()
    }

    fn is_mine(&self, cx: &Context) -> bool {
        cx.job().options.tags.contains(&self.run)
    }

    /// How long a job waited for its first attempt: since it was enqueued, or since what it comes after ended.
    fn waited(&self, cx: &Context, now: Timestamp) -> Duration {
        let kind = &cx.job().kind;
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let end_of = |flow: FlowId, kind: &str| ends.get(&(flow, kind.to_owned())).copied();
        let last_end = cx.job().options.flow.as_ref().and_then(|place| {
            signup::waits_for(kind).iter().filter_map(|kind| end_of(place.id, kind)).max()
        });
        let since = now.duration_since(last_end.unwrap_or(cx.job().created_at));
        let delay = if kind == FollowUpMail::KIND { self.follow_up_delay } else { Duration::ZERO };
        Duration::try_from(since).unwrap_or_default().saturating_sub(delay)
    }

    /// Whoever comes after this job may go on now.
    fn end(&self, cx: &Context, now: Timestamp) {
        let Some(place) = &cx.job().options.flow else { return };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.insert((place.id, cx.job().kind.clone()), now);
    }

    fn add(&self, cx: &Context, waited: Duration, ran: Duration, attempted: &Attempted) {
        let kind = &cx.job().kind;
        let attempts_max = KINDS.iter().find(|(name, _)| name == kind).map_or(1, |(_, max)| *max);
        let mut guard = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let first = guard.1.insert(cx.id());
        let counts = guard.0.entry(kind.clone()).or_default();
        if first {
            counts.waits.push(waited);
        }
        counts.runs.push(ran);
        match attempted.as_ref().map_err(tidemill::Fail::class) {
            Err(Some(ErrorClass::RateLimited)) => counts.limited += 1,
            Err(Some(_)) if cx.attempt() < attempts_max => counts.retried += 1,
            Err(Some(_)) => {
                counts.dead += 1;
                counts.finished += 1;
            }
            Ok(_) | Err(None) => counts.finished += 1,
        }
    }
}

/// The hook that watches.
pub struct Watch(pub Arc<Tally>);

#[tidemill::async_trait]
impl Middleware for Watch {
    async fn around(&self, cx: &Context, next: Next<'_>) -> Attempted {
        let (waited, since) = (self.0.waited(cx, Timestamp::now()), Instant::now());
        let attempted = next.run(cx).await;
        if self.0.is_mine(cx) {
            self.0.end(cx, Timestamp::now());
            self.0.add(cx, waited, since.elapsed(), &attempted);
        }
        attempted
    }
}
