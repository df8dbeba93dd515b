//! What people and programs see of jobs, dead letters, queues and workers.

mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
pub use tidemill_core::QueueRules;
use tidemill_core::dead::{DeadPlace, Triage};
use tidemill_core::depth::Sample;
use tidemill_core::queue::matches;
use tidemill_core::stream::Progress;
use tidemill_core::why::TenantDepth;
use tidemill_core::wire::work::QueueSlots;
use tidemill_core::workflow::is_never;
use tidemill_core::{ErrorClass, Job, JobId, Payload, Per, Priority, State, Token, WorkerId};

use crate::request::LEASE_TTL;

/// A job and where it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "wire::JobView")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// The body; its payload is null when it is `bare`.
    #[serde(flatten)]
    pub job: Job,
    /// Where it stands.
    pub state: State,
    /// Attempts spent, the running one not counted.
    pub attempt: u16,
    /// How often it lost its worker.
    pub lost: u16,
    /// When it may start, while it waits.
    pub due_at: Option<Timestamp>,
    /// The gate that holds it, while it waits at one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<String>,
    /// Who runs it, or ran it last.
    pub worker: Option<WorkerId>,
    /// The token of that lease.
    pub token: Option<Token>,
    /// When it finished.
    pub finished_at: Option<Timestamp>,
    /// What its handler returned.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub output: Option<Payload>,
    /// Why it is dead or cancelled, or failed last.
    pub error: Option<String>,
    /// Whether it was called off while it runs.
    pub cancel_requested: bool,
    /// Retention has left its result alone, for as long as its unique key is held.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
    /// How far it has come, as its stream said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl JobView {
    /// A run that waits for nothing the clock could bring is blocked.
    pub(crate) fn of_run(mut self) -> Self {
        if self.due_at.is_some_and(is_never) {
            (self.state, self.due_at) = (State::Blocked, None);
        }
        self
    }
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// As what.
    pub state: State,
    /// What its handler returned.
    pub output: Option<Payload>,
    /// Why it is dead or cancelled.
    pub error: Option<String>,
}

/// Where a job is, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    /// Its queue: of one that was diverted not the one that it asked for.
    pub queue: String,
    /// Its tenant, if it has one.
    pub tenant: Option<String>,
}

/// Where a job stands in the line of its queue, tenant and key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineView {
    /// The key.
    pub key: String,
    /// How many are before it, counted up to 100,000.
    pub ahead: u64,
    /// The first of them.
    pub head: JobId,
    /// Whether that one is dead and blocks the others.
    pub dead: bool,
}

/// What stands in a queue. Jobs are counted up to [`COUNTED_MAX`] each, and at least that far; what gates hold is not
/// among them.
///
/// [`COUNTED_MAX`]: tidemill_core::why::COUNTED_MAX
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Crowd {
    /// Jobs that wait for a slot.
    pub due: u64,
    /// Jobs that wait for the clock.
    pub later: u64,
    /// When the first of these is due.
    pub next_at: Option<Timestamp>,
    /// When the last of these is due.
    pub last_at: Option<Timestamp>,
    /// Runs of workflows that wait for something that has no time.
    pub asleep: u64,
    /// Jobs that wait behind another of their line.
    pub lined: u64,
    /// Lines in which jobs wait behind a dead one, as far as was looked.
    pub stuck: u64,
    /// One of these: its key, and who is dead.
    pub stuck_line: Option<(String, JobId)>,
    /// The kinds of what waits for a slot or the clock, as far as was looked.
    pub kinds: BTreeSet<String>,
    /// How many jobs each worker holds, by queue: of all queues.
    pub held: Vec<(WorkerId, String, u64)>,
}

/// One attempt that did not finish its job, or finished it after others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AttemptView {
    /// Its number.
    pub attempt: u16,
    /// Its lease.
    pub token: Token,
    /// Who ran it.
    pub worker: Option<WorkerId>,
    /// When its handler started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What kind of failure; `None` when it was put off or given back.
    pub class: Option<ErrorClass>,
    /// What it said.
    pub error: Option<String>,
    /// When the next one may start.
    pub next_at: Option<Timestamp>,
}

/// Which jobs to list. Every condition given must hold. Newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    /// This state.
    pub state: Option<State>,
    /// This kind.
    pub kind: Option<String>,
    /// This queue.
    pub queue: Option<String>,
    /// This tenant.
    pub tenant: Option<String>,
    /// This key.
    pub key: Option<String>,
    /// Bears this tag.
    pub tag: Option<String>,
    /// Made before this one: the last id of the page before.
    pub before: Option<JobId>,
    /// At most this many. Defaults to 0, which means 50; at most 1,000.
    pub limit: usize,
    /// Look at no more jobs than this for one page, whether or not they match. Defaults to 0, which means
    /// 20,000.
    pub look_max: usize,
}

impl JobFilter {
    /// The number of rows of a page.
    pub fn page_rows(&self) -> usize {
        if self.limit == 0 { 50 } else { self.limit.min(1000) }
    }

    /// How many jobs are looked at for a page.
    pub(crate) fn look_rows(&self) -> usize {
        if self.look_max == 0 { 20_000 } else { self.look_max }
    }

    /// Whether it may take a long walk from one job that matches to the next.
    pub(crate) fn is_narrow(&self) -> bool {
        let Self { state, kind, queue, tenant, key, tag, .. } = self;
        let has_words = [kind, queue, tenant, key, tag].into_iter().any(Option::is_some);
        match state {
            None => has_words,
            // Those who come to nothing, and those who run or wait for others, are found by themselves.
            Some(state) => *state == State::Done,
        }
    }
}

/// A page of jobs, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JobPage {
    /// Those that match, newest first.
    pub jobs: Vec<JobView>,
    /// What to ask for as `before` for what follows, also where this page is not full: then so many jobs were
    /// looked at as one page may. `None`: nothing follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<JobId>,
}

impl JobPage {
    /// A page of a look that ended before `end`, if it did.
    pub(crate) fn new(filter: &JobFilter, jobs: Vec<JobView>, end: Option<JobId>) -> Self {
        let is_full = jobs.len() >= filter.page_rows();
        let next = jobs.last().filter(|_| is_full).map(|last| last.job.id).or(end);
        Self { jobs, next }
    }
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadLetter {
    /// Which job.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
    /// Whose it was.
    pub tenant: Option<String>,
    /// What kind of failure ended it.
    pub class: ErrorClass,
    /// What that failure said.
    pub error: String,
    /// What groups it with its like.
    pub fingerprint: String,
    /// Attempts spent.
    pub attempt: u16,
    /// When it died.
    pub died_at: Timestamp,
    /// What was made of it.
    pub triage: Triage,
    /// How often it was sent on its way again.
    pub redrives: u16,
    /// Put aside.
    pub archived: bool,
    /// Whether it is dead now: it was not replayed since, or died again.
    pub dead: bool,
    /// Whether it has recovered since: it was replayed and is done.
    pub recovered: bool,
    /// What people noted, oldest first.
    pub notes: Vec<Note>,
}

impl DeadLetter {
    /// Where it stands among all: the page behind it begins there.
    pub fn place(&self) -> DeadPlace {
        DeadPlace { died_at: self.died_at, id: self.id }
    }
}

/// A remark or an act on a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Note {
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: String,
    /// What.
    pub text: String,
}

/// Dead letters of one fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadGroup {
    /// What they share.
    pub fingerprint: String,
    /// Their kind.
    pub kind: String,
    /// What kind of failure.
    pub class: ErrorClass,
    /// The error of one of them.
    pub error: String,
    /// How many.
    pub count: u64,
    /// How many of them nobody has looked at.
    pub new: u64,
    /// When the first died.
    pub first_at: Timestamp,
    /// When the last died.
    pub last_at: Timestamp,
    /// One of them.
    pub sample: JobId,
}

/// A queue and what is in it now.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Jobs that could start, by band.
    pub ready: BTreeMap<Priority, u64>,
    /// Jobs that wait for the clock.
    pub scheduled: u64,
    /// Jobs that run.
    pub running: u64,
    /// Dead letters that are not archived and have not recovered.
    pub dead: u64,
    /// When the oldest job that could start was due.
    pub oldest_due_at: Option<Timestamp>,
    /// When the one that has run longest was claimed.
    #[serde(default)]
    pub oldest_running_at: Option<Timestamp>,
    /// When the first of its dead letters died.
    #[serde(default)]
    pub oldest_dead_at: Option<Timestamp>,
    /// Kinds that wait here and that no live worker knows.
    pub orphan_kinds: Vec<String>,
    /// Jobs that wait in it, for a slot or the clock, as they were counted coming and going.
    pub depth: u64,
    /// Since when it is above its high watermark and has not been down at the low one.
    pub above_since: Option<Timestamp>,
    /// Its stored rules, if any were set.
    pub rules: Option<QueueRules>,
}

/// What a queue has counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DepthView {
    /// Which queue.
    pub queue: String,
    /// What came and went until now.
    pub now: Sample,
    /// What had come and gone about a minute ago, or as long as is known.
    pub before: Option<Sample>,
    /// Since when it is above its high watermark and has not been down at the low one.
    pub above_since: Option<Timestamp>,
    /// The tenants with the most jobs waiting, most first, at most ten.
    pub tenants: Vec<TenantDepth>,
}

impl DepthView {
    /// How many jobs wait in it.
    pub fn depth(&self) -> u64 {
        self.now.came.saturating_sub(self.now.went)
    }
}

/// A worker that beats.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerView {
    /// This run of it.
    pub id: WorkerId,
    /// Its name for people.
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
    /// When it registered.
    pub started_at: Timestamp,
    /// When it beat last.
    pub beat_at: Timestamp,
    /// How long it may be silent before it is given up, in ms, where that is not the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
}

impl WorkerView {
    /// Whether it has not beaten for longer than it may. It is listed all the same until a process is there that gives
    /// it up; none is when all have died.
    pub fn is_silent(&self, now: Timestamp) -> bool {
        // Those who give it up look once a second, and a database may stall.
        const GRACE: Duration = Duration::from_secs(4);
        let lease = self.lease_ms.map_or(LEASE_TTL, Duration::from_millis);
        now.duration_since(self.beat_at).as_millis() > (lease + GRACE).as_millis() as i128
    }

    /// How many of its slots jobs of this queue may take: by its name, else by the longest pattern.
    pub fn slots_for(&self, queue: &str) -> u32 {
        self.nearest(queue).map_or(self.slots, |(_, slots)| slots.all())
    }

    /// By which name or pattern jobs of this queue take slots, and which; `None`: any slot.
    pub fn nearest(&self, queue: &str) -> Option<(&str, QueueSlots)> {
        let meant = self.slots_of.iter().filter(|(name, _)| matches(name, queue));
        let nearest = meant.max_by_key(|(name, _)| (name.as_str() == queue, name.len()));
        nearest.map(|(name, slots)| (name.as_str(), *slots))
    }
}

/// One thing `doctor` looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What was found.
    pub found: String,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What to do when it is not.
    pub hint: Option<String>,
}

/// How much is in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unfinished {
    /// Jobs that wait, for a slot, the clock or another job.
    pub waiting: u64,
    /// Jobs that run.
    pub running: u64,
}

/// Jobs that a limit by tenant or key means, and that lack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacks {
    /// The queue or pattern.
    pub queue: String,
    /// Only jobs of this kind.
    pub kind: Option<String>,
    /// What they lack; by `all` nothing is lacked.
    pub per: Per,
}

impl Lacks {
    /// The first and the last name of the queues that are meant, as texts are compared byte by byte.
    pub(crate) fn queues(&self) -> (String, String) {
        match self.queue.strip_suffix('*') {
            Some(prefix) => (prefix.to_owned(), format!("{prefix}{}", char::MAX)),
            None => (self.queue.clone(), self.queue.clone()),
        }
    }
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Which.
    pub id: JobId,
    /// Its kind.
    pub kind: String,
    /// Its queue.
    pub queue: String,
}

/// At most so many rows are looked at in each place where jobs wait, run or are blocked: a fraction of a second.
pub(crate) const LACKING_ROWS_MAX: i64 = 100_000;
