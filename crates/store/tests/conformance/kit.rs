//! What every test of the suite stands on: a fresh store, a clock set by hand, and the few
//! sentences a test is told in.
//!
//! It refuses to hide an answer: whatever a test is about, it asks the store itself.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidemill_core::{
    Clock, ErrorClass, Failure, JobId, Limits, ManualClock, NewJob, OnDead, OnDuplicate, Options,
    Payload, Priority, Scope, Settlement, State, UniqueKey, WorkerId,
};
use tidemill_store::request::{GateEnd, RescueRules, Rescued};
use tidemill_store::{
    Claim, ClaimRequest, Hint, JobView, Lane, OpenOptions, Receipt, SettleItem, Settled, Share,
    Store, WorkerCard, open,
};
use tidemill_testkit::databases::{fresh_postgres_url, fresh_sqlite_url};
use tokio::sync::broadcast::Receiver;

/// Makes `sqlite::name` and `postgres::name` of each test function named.
macro_rules! over_both_stores {
    ($($name:ident),+ $(,)?) => {
        over_both_stores!(@on sqlite: $($name),+);
        over_both_stores!(@on postgres: $($name),+);
    };
    (@on $backend:ident: $($name:ident),+) => {
        mod $backend {
            use crate::conformance::kit::Kit;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let kit = Kit::$backend().await;
                    super::$name(&kit).await;
                    kit.store.close().await;
                }
            )+
        }
    };
}

/// How long a worker may be silent in these tests.
pub const TTL: Duration = Duration::from_secs(8);
/// A second of the manual clock.
pub const SECOND: Duration = Duration::from_secs(1);
/// An hour of the manual clock.
pub const HOUR: Duration = Duration::from_hours(1);

/// A store of its own for one test.
pub struct Kit {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its clock.
    pub clock: ManualClock,
    /// Where it is, for a second look from outside.
    pub url: String,
    _folder: Option<TempDir>,
}

impl Kit {
    /// A new file.
    pub async fn sqlite() -> Self {
        let (folder, url) = fresh_sqlite_url();
        Self::at(url, Some(folder)).await
    }

    /// A new database.
    pub async fn postgres() -> Self {
        Self::at(fresh_postgres_url(), None).await
    }

    async fn at(url: String, folder: Option<TempDir>) -> Self {
        let clock = ManualClock::default();
        let store = open(&url, options(&clock)).await.unwrap();
        Self { store, clock, url, _folder: folder }
    }

    /// Another store on the same database, as another process has it.
    pub async fn neighbour(&self) -> Arc<dyn Store> {
        open(&self.url, options(&self.clock)).await.unwrap()
    }

    /// Enqueues one.
    pub async fn enqueue(&self, job: NewJob) -> Receipt {
        self.store.enqueue(vec![job]).await.unwrap()[0].clone()
    }

    /// Enqueues one that no other stands in the way of.
    pub async fn put(&self, job: NewJob) -> JobId {
        let id = job.id;
        assert_eq!(self.enqueue(job).await, Receipt::Enqueued { id });
        id
    }

    /// Registers a worker that knows every kind.
    pub async fn worker(&self) -> WorkerId {
        let id = WorkerId::new();
        self.store.register(card(id)).await.unwrap();
        id
    }

    /// Claims up to `jobs_max` of the default queue, every band.
    pub async fn take(&self, worker: WorkerId, jobs_max: usize) -> Claim {
        self.store.claim(ask(worker, "default", jobs_max)).await.unwrap()
    }

    /// Claims exactly one job of the default queue.
    pub async fn take_one(&self, worker: WorkerId) -> Claim {
        let claim = self.take(worker, 1).await;
        assert_eq!(claim.jobs.len(), 1, "one job is due");
        claim
    }

    /// Settles the first job of a claim.
    pub async fn settle(&self, worker: WorkerId, claim: &Claim, how: Settlement) -> Settled {
        self.store.settle(worker, vec![item(claim, 0, how)]).await.unwrap()[0]
    }

    /// Enqueues a job and runs it to this end, with a worker that leaves afterwards.
    pub async fn finish(&self, job: NewJob, how: Settlement) -> JobId {
        let id = self.put(job).await;
        self.run_to(id, how).await;
        id
    }

    /// Runs the one due job, which must be this, to this end.
    pub async fn run_to(&self, id: JobId, how: Settlement) {
        let worker = self.worker().await;
        let claim = self.take_one(worker).await;
        assert_eq!(claim.jobs[0].job.id, id);
        assert_eq!(self.settle(worker, &claim, how).await, Settled::Accepted);
        self.store.deregister(worker).await.unwrap();
    }

    /// One job, which must be there.
    pub async fn view(&self, id: JobId) -> JobView {
        self.store.job(id).await.unwrap().expect("the job is known")
    }

    /// Where one job stands.
    pub async fn state(&self, id: JobId) -> State {
        self.view(id).await.state
    }

    /// Gives up all workers that have not beaten within [`TTL`]; three losses are one too many.
    pub async fn rescue(&self) -> Rescued {
        self.store.rescue(rules()).await.unwrap()
    }

    /// Lets every worker be silent for too long, and rescues.
    pub async fn lose_workers(&self) -> Rescued {
        self.clock.advance(TTL + SECOND);
        self.rescue().await
    }
}

fn options(clock: &ManualClock) -> OpenOptions {
    OpenOptions { clock: Clock::Manual(clock.clone()), ..OpenOptions::default() }
}

/// The rules of rescue in these tests.
pub fn rules() -> RescueRules {
    RescueRules { lease_ttl: TTL, clear_for: None, lost_max: 3 }
}

/// A worker's card with every kind.
pub fn card(id: WorkerId) -> WorkerCard {
    WorkerCard {
        id,
        name: "host:1".into(),
        queues: vec!["default".into()],
        kinds: Vec::new(),
        slots: 10,
        slots_of: std::collections::BTreeMap::new(),
        lease_ttl: None,
    }
}

/// A wish for every band of a queue.
pub fn ask(worker: WorkerId, queue: &str, jobs_max: usize) -> ClaimRequest {
    ClaimRequest {
        worker,
        lanes: lanes(queue),
        share: Share::default(),
        limits: Arc::default(),
        edition: None,
        kinds: None,
        jobs_max,
        stand: None,
    }
}

/// Every band of a queue, first served first.
pub fn lanes(queue: &str) -> Vec<Lane> {
    Priority::ALL.map(|priority| Lane { queue: queue.into(), priority }).into()
}

/// A job of this kind with every wish at its default.
pub fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::null())
}

/// JSON as it is written.
pub fn json(text: &str) -> Payload {
    Payload::parse(text, &Limits::default()).unwrap()
}

/// A job with a unique key.
pub fn unique(key: &str, scope: Scope, on_duplicate: OnDuplicate) -> NewJob {
    let key = UniqueKey {
        key: UniqueKey::given("k", key),
        scope,
        on_duplicate,
        force: false,
        together: false,
        within: Vec::new(),
    };
    NewJob { unique: Some(key), ..job("k") }
}

/// A job that takes its turn in the line of this key.
pub fn ordered(key: &str, on_dead: OnDead) -> NewJob {
    let options = Options { ordered: Some(on_dead), ..Options::default() };
    NewJob { key: Some(key.into()), options, ..job("k") }
}

/// The same job with another payload.
pub fn with_payload(job: NewJob, text: &str) -> NewJob {
    NewJob { payload: json(text), ..job }
}

/// Finished well, with nothing to say.
pub fn done() -> Settlement {
    Settlement::Done { output: Payload::null(), follow_ups: Vec::new() }
}

/// Failed, and runs again.
pub fn retry(delay: Duration, spent: u16) -> Settlement {
    Settlement::Again { delay, spent, failure: Some(failure("it broke")) }
}

/// Gave up.
pub fn dead(message: &str) -> Settlement {
    Settlement::Dead { failure: failure(message) }
}

/// Called off by its handler.
pub fn cancelled(reason: &str) -> Settlement {
    Settlement::Cancelled { reason: reason.into() }
}

/// A transient failure of kind `k`.
pub fn failure(message: &str) -> Failure {
    Failure::new("k", ErrorClass::Transient, message)
}

/// The settle of one job of a claim.
pub fn item(claim: &Claim, at: usize, settlement: Settlement) -> SettleItem {
    let taken = &claim.jobs[at];
    SettleItem {
        job: taken.job.clone(),
        token: claim.token.expect("a claim with jobs has a token"),
        attempt: taken.attempt,
        lost: taken.lost,
        started_at: claim.now,
        gates: taken.gates.iter().cloned().map(GateEnd::new).collect(),
        settlement,
        decided: false,
        run: None,
    }
}

/// Waits until a hint like this is heard; one that is never told fails the test.
pub async fn hears(heard: &mut Receiver<Hint>, what: impl Fn(&Hint) -> bool) {
    let listening = async { while !what(&heard.recv().await.unwrap()) {} };
    let told = tokio::time::timeout(Duration::from_secs(20), listening).await;
    told.expect("the hint is told");
}

/// Jobs may wait in this queue.
pub fn ready(queue: &str) -> Hint {
    Hint::Ready { queue: queue.into() }
}

/// The ids of a claim, in its order.
pub fn ids(claim: &Claim) -> Vec<JobId> {
    claim.jobs.iter().map(|taken| taken.job.id).collect()
}
