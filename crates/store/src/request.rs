//! What the engine asks of a store, and what it is answered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::wire::work::QueueSlots;
use tidemill_core::{
    Breaker, Edition, ErrorClass, Failure, Job, JobId, Priority, QueueLimit, Settlement, Token,
    WorkerId,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::run::RunWrites;

/// What became of one enqueued job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Receipt {
    /// It is durable, under its own id.
    Enqueued {
        /// Its id.
        id: JobId,
    },
    /// It is durable, under its own id, in another queue than it asked for: that one is full, and diverts.
    Diverted {
        /// Its id.
        id: JobId,
        /// Where it is.
        queue: String,
    },
    /// It is a duplicate and was rejected: nothing was written.
    Rejected {
        /// The job that holds the key.
        id: JobId,
    },
    /// It is a duplicate: this existing job stands for it.
    Joined {
        /// The job that holds the key, or the one kept for after it.
        id: JobId,
    },
    /// It is a duplicate: this waiting job took over its payload and wishes.
    Replaced {
        /// The job that holds the key.
        id: JobId,
    },
    /// It is a duplicate of a running job and is kept, blocked, for when that one has finished.
    Kept {
        /// Its own id.
        id: JobId,
    },
}

impl Receipt {
    /// The job that stands for what was enqueued.
    pub fn id(&self) -> JobId {
        match *self {
            Self::Enqueued { id }
            | Self::Diverted { id, .. }
            | Self::Rejected { id }
            | Self::Joined { id }
            | Self::Replaced { id }
            | Self::Kept { id } => id,
        }
    }

    /// Whether a job was written under its own id.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Enqueued { .. } | Self::Diverted { .. } | Self::Kept { .. })
    }

    /// One that was rejected for a job that is not the asker's to know.
    pub(crate) const UNREACHED: Self = Self::Rejected { id: JobId(Uuid::nil()) };

    /// The job that stands for what was enqueued, if the asker may know it.
    pub(crate) fn known(&self) -> Option<JobId> {
        (*self != Self::UNREACHED).then(|| self.id())
    }

    /// The word that SQL answers with.
    pub fn of_word(word: &str, id: JobId) -> Option<Self> {
        Some(match word {
            "enqueued" => Self::Enqueued { id },
            "rejected" => Self::Rejected { id },
            "unreached" => Self::UNREACHED,
            "joined" => Self::Joined { id },
            "replaced" => Self::Replaced { id },
            "kept" => Self::Kept { id },
            _ => return None,
        })
    }
}

/// One line a worker takes from: a band of a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The queue.
    pub queue: String,
    /// The band.
    pub priority: Priority,
}

/// A wish for work.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    /// Who asks. Must be registered and alive.
    pub worker: WorkerId,
    /// Where to take from, in this order, until `jobs_max` are taken.
    pub lanes: Vec<Lane>,
    /// How lanes and tenants share them.
    pub share: Share,
    /// The limits of these lanes' queues, from the finest to the coarsest.
    pub limits: Arc<Vec<QueueLimit>>,
    /// The rule book that lanes and limits were taken from: the claim is refused when another one holds by now
    /// ([`Error::RulesOutdated`](crate::Error::RulesOutdated)), so none takes what the latest rules would not give.
    /// `None`: they are the asker's own, whatever the rules are.
    pub edition: Option<Edition>,
    /// Only these kinds; `None` means all. Jobs of other kinds stay where they are.
    pub kinds: Option<Arc<Vec<String>>>,
    /// At most this many.
    pub jobs_max: usize,
    /// Stands, instead of being answered with nothing. `None`: it is answered at once.
    pub stand: Option<Stand>,
}

/// A claim that stands: it is answered once something that this process writes brings a job for it, out
/// of the same commit, or an earlier alarm; or when it is withdrawn. It sees nothing else: due times and
/// other processes are for whoever asked to look after.
#[derive(Debug, Clone)]
pub struct Stand {
    /// What the claim before it has seen, of the same worker and lanes.
    pub since: Seen,
    /// Cancelled, it withdraws the claim: that is answered soon, with nothing unless it was just running.
    pub until: CancellationToken,
}

/// What a claim has seen; the next one can stand from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// How many operations of this process had brought something that waits.
    pub(crate) brought: u64,
    /// The alarm it was answered with.
    pub(crate) next_due: Option<Timestamp>,
}

/// How those that have work share a claim.
#[derive(Debug, Clone, Default)]
pub struct Share {
    /// One weight per lane: queues that have something due share the claim alike, and of each those lanes by weight
    /// that have; what cannot be divided goes to the first ones. Empty: each lane is emptied before the next.
    pub weights: Vec<u32>,
    /// Tenants whose weight is not 1, by queue. The tenants of a lane take turns, whatever they have
    /// waiting; jobs without a tenant count as one.
    pub tenants: Arc<BTreeMap<(String, String), u32>>,
}

impl Share {
    /// The weight of a tenant in a queue.
    pub fn of(&self, queue: &str, tenant: &str) -> u32 {
        if self.tenants.is_empty() {
            return 1;
        }
        self.tenants.get(&(queue.to_owned(), tenant.to_owned())).copied().unwrap_or(1)
    }
}

/// A job with a lease on it.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The body.
    pub job: Arc<Job>,
    /// The number of this attempt; the first is 1.
    pub attempt: u16,
    /// How often it lost its worker.
    pub lost: u16,
    /// When it was due.
    pub due_at: Timestamp,
    /// The gates it went through; its settle names them. Jobs of one claim share the names.
    pub gates: Vec<Arc<str>>,
    /// Something is kept of its run: a journal, or mail.
    pub has_run: bool,
}

/// A gate that an attempt comes out of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateEnd {
    /// Its name.
    pub gate: Arc<str>,
    /// Nobody may pass for so long: the other side asked for it.
    pub shut_for: Option<Duration>,
    /// By which rule the end of the attempt counts for or against the other side.
    pub breaker: Option<Breaker>,
    /// The job was taken and not started: so much of its rate's time is somebody else's again.
    pub unused: Option<Duration>,
}

impl GateEnd {
    /// One that nothing but the end is to be said of.
    pub fn new(gate: impl Into<Arc<str>>) -> Self {
        Self { gate: gate.into(), shut_for: None, breaker: None, unused: None }
    }
}

/// What a claim took. All its jobs are under one token.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Proves the lease on all of them; `None` when there are none.
    pub token: Option<Token>,
    /// The store's present.
    pub now: Timestamp,
    /// The jobs, in order.
    pub jobs: Vec<ClaimedJob>,
    /// When the next job of these lanes is due, if the claim came back short and one waits for
    /// the clock. The one who asked sets its alarm by it.
    pub next_due: Option<Timestamp>,
    /// From where on the next claim can stand; `None` where a store has no use for that.
    pub seen: Option<Seen>,
}

/// One attempt to settle.
#[derive(Debug, Clone)]
pub struct SettleItem {
    /// The claimed job.
    pub job: Arc<Job>,
    /// The token of its claim.
    pub token: Token,
    /// The number of the attempt.
    pub attempt: u16,
    /// How often it had lost its worker before.
    pub lost: u16,
    /// When the handler started, by the worker's clock; for the history only.
    pub started_at: Timestamp,
    /// The gates that its claim named.
    pub gates: Vec<GateEnd>,
    /// What is to be written.
    pub settlement: Settlement,
    /// Its handler asked to be settled in a transaction of its own: if that was committed, what was decided there is
    /// written instead.
    pub decided: bool,
    /// What its run wants written with it.
    pub run: Option<Box<RunWrites>>,
}

impl SettleItem {
    /// Whether it finished well, and nothing follows from it but what its flow does next: such are settled by one
    /// statement, which waits for nothing but their leases.
    pub fn is_plain(&self) -> bool {
        let simple = matches!(&self.settlement, Settlement::Done { follow_ups, .. } if follow_ups.is_empty());
        simple
            && !self.decided
            && self.job.unique_key.is_none()
            && self.job.line().is_none()
            && self.job.options.parent.is_none()
            && self.run.as_ref().is_none_or(|run| run.is_plain())
    }

    /// Whether the attempt speaks for (`true`) or against the health of the other side, if it does.
    pub fn is_well(&self) -> Option<bool> {
        use tidemill_core::ErrorClass::{Ambiguous, Transient};
        match &self.settlement {
            Settlement::Done { .. } => Some(true),
            Settlement::Again { failure: Some(failure), .. } | Settlement::Dead { failure } => {
                matches!(failure.class, Transient | Ambiguous).then_some(false)
            }
            _ => None,
        }
    }

    /// The same attempt, of which the outcome cannot be kept: the job is dead, and nobody knows what it did. What its
    /// run has done is kept.
    #[must_use]
    pub fn unkept(&self, why: &dyn std::fmt::Display) -> Self {
        let message = format!("its outcome cannot be kept: {why}");
        let failure = Failure::new(&self.job.kind, ErrorClass::InDoubt, message);
        let run = self.run.clone().map(|mut run| {
            // These come only with the end that there is not.
            (run.renewal, run.object) = (None, None);
            run
        });
        Self { settlement: Settlement::Dead { failure }, run, ..self.clone() }
    }
}

/// What became of one settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It is durable. Also answered when the same token settled this job before.
    Accepted,
    /// It would have run again, but was called off meanwhile: it is cancelled.
    Cancelled,
    /// The lease was lost: nothing was written.
    Stale,
}

/// What became of one cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CancelAnswer {
    /// It waited and is cancelled.
    Cancelled,
    /// It runs; its handler will be told, and no further attempt starts.
    Requested,
    /// It had finished already.
    Finished,
    /// There is no such job.
    Unknown,
}

/// What became of a change of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditAnswer {
    /// It waits, and is changed.
    Edited,
    /// It runs.
    Running,
    /// It has finished.
    Finished,
    /// It is not the one that the change was made of: somebody changed it meanwhile.
    Changed,
    /// There is no such job.
    Unknown,
}

/// What a worker says of itself when it registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCard {
    /// This run of it.
    pub id: WorkerId,
    /// A name for people: host and process.
    pub name: String,
    /// The queues it takes from.
    pub queues: Vec<String>,
    /// The kinds it knows; empty means all.
    pub kinds: Vec<String>,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// Which of them the jobs of a queue or pattern may take, where that is not all.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub slots_of: BTreeMap<String, QueueSlots>,
    /// How long after a beat it is given up; `None`: as whoever rescues is told.
    pub lease_ttl: Option<Duration>,
}

/// A claim that takes jobs is a beat where the last one is older than this: who takes something lives. Claims come by
/// thousands, and are not all written down.
pub const BEAT_AGE: Duration = Duration::from_millis(500);

/// What a heartbeat is answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Beat {
    /// The worker was given up: all its leases are gone. It must drop everything and register anew.
    pub lost: bool,
    /// Running jobs of this worker that were called off.
    pub cancelled: Vec<JobId>,
    /// How long it may be silent, if it said so when it registered.
    pub lease_ttl: Option<Duration>,
}

/// What a rescue found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rescued {
    /// Workers given up.
    pub workers: u64,
    /// Jobs that are ready again.
    pub ready: u64,
    /// Jobs that lost their worker once too often and are dead.
    pub poisoned: u64,
    /// Jobs that had been called off and are cancelled.
    pub cancelled: u64,
}

/// What a look at deadlines found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    /// Jobs that are dead.
    pub jobs: u64,
    /// Whether there may be more to look at now.
    pub more: bool,
}

/// How long after its last heartbeat a worker is given up, where nobody says otherwise.
pub const LEASE_TTL: Duration = Duration::from_secs(6);

/// When a worker is given up, and when a job that loses its workers is.
#[derive(Debug, Clone, Copy)]
pub struct RescueRules {
    /// A worker that has not beaten for this long is given up, unless it has a lease of its own.
    pub lease_ttl: Duration,
    /// For how long workers could beat at all, if not always: none is given up whose lease is longer.
    pub clear_for: Option<Duration>,
    /// A job that has lost its worker this often is dead.
    pub lost_max: u16,
}
