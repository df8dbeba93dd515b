//! What this process remembers of workers elsewhere: what it gave them, and whose turn is next.
//!
//! Only so that nobody need be asked again: whatever is forgotten is looked up. Payloads are not kept, unless fields of
//! them are hidden: what is hidden must be known where a worker says something.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::{Job, JobId, Payload, Token, WorkerId};
use tidemill_store::{Claim, ClaimedJob};
use tokio::time::Instant;

use super::{LEASE_TTL_MIN, is_unheard};
use crate::engine::heard::Heard;
use crate::engine::rules::{Known, Rules, Wanted};
use crate::worker::shop::locked;
use crate::worker::wish::{Had, Lanes};

/// A worker that was not heard of for this long is forgotten; one with a longer lease is looked up.
const KEPT: Duration = Duration::from_mins(10);

/// Jobs of one worker that are remembered, the latest ones: they may be settled at another node, which nobody hears of.
const JOBS_MAX: usize = 2000;

/// Lists of queues that one worker takes from, in claims of their own.
const WANTED_MAX: usize = 32;

/// All of them.
#[derive(Debug)]
pub(crate) struct Hands {
    all: Mutex<HashMap<WorkerId, Remembered>>,
    keeps_payloads: bool,
    /// Since when workers elsewhere can reach this process, if they can.
    open_since: Mutex<Option<Instant>>,
}

/// A job that a worker was given, and when if that is known.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) claimed: ClaimedJob,
    pub(crate) at: Option<Heard>,
}

#[derive(Debug)]
struct Remembered {
    heard: Instant,
    /// How long it may be silent, if it has registered or beat here.
    lease_ttl: Option<Duration>,
    had: Had,
    /// By their tokens, which only grow.
    jobs: BTreeMap<(Token, JobId), Given>,
    /// Jobs of it that are called off, and of which it was told so.
    told: HashSet<JobId>,
    /// What it takes from. A worker that keeps slots for a queue asks for these and for the others apart.
    wanted: VecDeque<Wanted>,
}

impl Default for Remembered {
    fn default() -> Self {
        let (had, jobs, told) = (Had::default(), BTreeMap::new(), HashSet::new());
        Self { heard: Instant::now(), lease_ttl: None, had, jobs, told, wanted: VecDeque::new() }
    }
}

impl Hands {
    pub(crate) fn new(keeps_payloads: bool) -> Self {
        Self { all: Mutex::default(), keeps_payloads, open_since: Mutex::default() }
    }

    /// From now on workers elsewhere can reach this process.
    pub(crate) fn open(&self) {
        *locked(&self.open_since) = Some(Instant::now());
    }

    /// For how long they can, if at all.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        locked(&self.open_since).map(|since| since.elapsed())
    }

    /// Notes that a worker has registered, and how long it may be silent.
    pub(crate) fn registered(&self, worker: WorkerId, lease_ttl: Duration) {
        let mut all = locked(&self.all);
        all.retain(|_, one| one.heard.elapsed() < KEPT);
        all.entry(worker).or_default().lease_ttl = Some(lease_ttl);
    }

    /// Notes how long a worker may be silent, as the store says: it may have registered elsewhere.
    pub(crate) fn lives(&self, worker: WorkerId, lease_ttl: Option<Duration>) {
        if let Some(one) = locked(&self.all).get_mut(&worker) {
            one.lease_ttl = lease_ttl.or(one.lease_ttl);
        }
    }

    /// How often to beat for a worker that waits: three beats fit into its lease, or into the shortest there may be.
    pub(crate) fn beat_every(&self, worker: WorkerId) -> Duration {
        let lease_ttl = locked(&self.all).get(&worker).and_then(|one| one.lease_ttl);
        lease_ttl.unwrap_or(LEASE_TTL_MIN) / 3
    }

    /// Notes what a worker takes from; answers whether that is new.
    pub(crate) fn wants(&self, worker: WorkerId, rules: &Arc<Rules>, queues: &[String]) -> bool {
        let mut all = locked(&self.all);
        let is_known = all.contains_key(&worker);
        if !is_known {
            all.retain(|_, one| one.heard.elapsed() < KEPT);
        }
        let one = all.entry(worker).or_default();
        one.heard = Instant::now();
        if one.wanted.iter().any(|wanted| wanted.queues() == queues) {
            return false;
        }
        if one.wanted.len() == WANTED_MAX {
            one.wanted.pop_front();
        }
        one.wanted.push_back(Wanted::new(rules, queues.to_vec()));
        true
    }

    /// The lanes of these queues, by what the worker has had.
    pub(crate) fn lanes(&self, worker: WorkerId, queues: &[String], known: &Known) -> Lanes {
        let mut all = locked(&self.all);
        Lanes::of(queues, known, &all.entry(worker).or_default().had)
    }

    /// Remembers what a worker was given.
    pub(crate) fn gave(&self, worker: WorkerId, lanes: &Lanes, claim: &Claim) {
        let mut all = locked(&self.all);
        let one = all.entry(worker).or_default();
        lanes.took(claim, &mut one.had);
        let Some(token) = claim.token else { return };
        // Called off once more, that is news once more.
        one.told.retain(|id| claim.jobs.iter().all(|job| job.job.id != *id));
        let given = |job| Given { claimed: self.kept(job), at: Some(Heard::now(claim.now)) };
        one.jobs.extend(claim.jobs.iter().map(|job| ((token, job.job.id), given(job))));
        while one.jobs.len() > JOBS_MAX {
            one.jobs.pop_first();
        }
    }

    /// Forgets what a worker was given so long before this that it would have it now, and has not.
    pub(crate) fn has(&self, worker: WorkerId, tokens: &HashSet<Token>, at: Timestamp) {
        let is_new = |given: &Given| given.at.is_some_and(|since| !is_unheard(since.at(), at));
        if let Some(one) = locked(&self.all).get_mut(&worker) {
            one.jobs.retain(|(token, _), given| tokens.contains(token) || is_new(given));
        }
    }

    /// What was given, as far as it is remembered, in the order asked.
    pub(crate) fn find(
        &self,
        worker: WorkerId,
        asked: impl Iterator<Item = (Token, JobId)>,
    ) -> Vec<Option<ClaimedJob>> {
        let given = self.given(worker, asked).into_iter();
        given.map(|given| given.map(|given| given.claimed)).collect()
    }

    /// The same, with when it was.
    pub(crate) fn given(
        &self,
        worker: WorkerId,
        asked: impl Iterator<Item = (Token, JobId)>,
    ) -> Vec<Option<Given>> {
        let mut all = locked(&self.all);
        let Some(one) = all.get_mut(&worker) else { return asked.map(|_| None).collect() };
        one.heard = Instant::now();
        asked.map(|key| one.jobs.get(&key).cloned()).collect()
    }

    /// Forgets what was settled.
    pub(crate) fn settled(&self, worker: WorkerId, done: impl Iterator<Item = (Token, JobId)>) {
        if let Some(one) = locked(&self.all).get_mut(&worker) {
            for key in done {
                one.told.remove(&key.1);
                one.jobs.remove(&key);
            }
        }
    }

    /// Whether a worker was given something that it has not settled here.
    pub(crate) fn has_jobs(&self, worker: WorkerId) -> bool {
        locked(&self.all).get(&worker).is_some_and(|one| !one.jobs.is_empty())
    }

    /// Whether any of these, which are called off, is one of which a worker was not told.
    pub(crate) fn is_news(&self, worker: WorkerId, cancelled: &[JobId]) -> bool {
        let all = locked(&self.all);
        let told = all.get(&worker).map(|one| &one.told);
        cancelled.iter().any(|id| told.is_none_or(|told| !told.contains(id)))
    }

    /// Remembers that a worker is told of these.
    pub(crate) fn told(&self, worker: WorkerId, cancelled: &[JobId]) {
        let mut all = locked(&self.all);
        if let Some(one) = all.get_mut(&worker) {
            one.heard = Instant::now();
            one.told = cancelled.iter().copied().collect();
        } else if !cancelled.is_empty() {
            let told = cancelled.iter().copied().collect();
            all.insert(worker, Remembered { told, ..Remembered::default() });
        }
    }

    pub(crate) fn forget(&self, worker: WorkerId) {
        locked(&self.all).remove(&worker);
    }

    /// A job as it is remembered: a settle needs no payload.
    fn kept(&self, claimed: &ClaimedJob) -> ClaimedJob {
        if self.keeps_payloads {
            return claimed.clone();
        }
        let job = Job { payload: Payload::null(), ..(*claimed.job).clone() };
        ClaimedJob { job: Arc::new(job), ..claimed.clone() }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::ManualClock;

    use crate::engine::Tidemill;
    use crate::engine::work::{Demand, Hand};
    use crate::worker::job::Enqueue;

    use super::*;

    /// What a worker settles elsewhere, nobody says here.
    #[tokio::test]
    async fn of_a_worker_the_latest_jobs_are_remembered() {
        let clock = ManualClock::default();
        let still = crate::Clock::Manual(clock.clone());
        let mill = Tidemill::builder().clock(still).open("sqlite::memory:").await.unwrap();
        let (work, queues) = (mill.work(), vec!["default".to_owned()]);
        let hand = Hand { name: "w".into(), queues: queues.clone(), slots: 9, ..Hand::default() };
        let worker = work.register(hand).await.unwrap();
        let remembered = || locked(&mill.0.hands.all)[&worker].jobs.len();
        let jobs = (0..JOBS_MAX + 500).map(|_| Enqueue::raw("k", "1"));
        mill.enqueue_many(jobs).await.unwrap();
        let mut last = None;
        for _ in 0..=JOBS_MAX / 500 {
            let demand = Demand { queues: queues.clone(), jobs_max: 500, ..Demand::default() };
            let taken = work.claim(worker, demand).await.unwrap();
            last = taken.token;
            assert_eq!(taken.hand_over().len(), 500);
        }
        assert_eq!(remembered(), JOBS_MAX);
        let tokens: Vec<Token> = last.into_iter().collect();
        work.beat(worker, Duration::ZERO, Some(&tokens)).await.unwrap();
        assert_eq!(remembered(), JOBS_MAX, "they may be on their way");
        clock.advance(Duration::from_mins(1));
        work.beat(worker, Duration::ZERO, Some(&tokens)).await.unwrap();
        assert_eq!(remembered(), 500);
        mill.close().await;
    }
}
