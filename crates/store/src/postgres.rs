//! The Postgres backend: the schema `tidemill` of a database that others may use too.
//!
//! Bodies are written once; what waits is kept in sheaves of up to a hundred ids; a claim is one lease row whose key
//! is the token; a finished job is one outcome row (`migrations/0001_heart.sql` tells the story). Connections: a pool
//! for the verbs, one for heartbeats, one that listens, one that notifies. Losing any, or the server, loses no job.

pub mod adapter;
mod audit;
mod batch;
mod body;
mod cancel;
mod claim;
mod connect;
mod credentials;
mod crowd;
mod dead;
mod depth;
mod dial;
mod doors;
mod edit;
mod enqueue;
mod error;
mod examine;
mod expire;
mod fire;
mod flows;
mod gather;
mod held;
mod holding;
mod judged;
mod lacking;
mod lane;
mod leases;
mod lines;
mod listen;
mod marks;
mod measure;
mod migrate;
mod notify;
mod plans;
mod query;
mod queues;
mod reach;
mod record;
mod rescue;
mod runs;
mod schedules;
mod settle;
mod statement;
mod stowaways;
mod streams;
mod sweep;
mod tls;
mod unique;
mod values;
mod watch;
mod webhooks;
mod workers;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::gate::GateView;
use tidemill_core::job::edit::Edit;
use tidemill_core::retention::Finished;
use tidemill_core::why::LaneView;
use tidemill_core::{By, JobId, NewJob, Payload, RuleBook, WorkerId};
use tokio::task::JoinHandle;
pub use tokio_postgres;

use crate::error::{Error, Result};
use crate::followed::Followed;
use crate::open::OpenOptions;
use crate::over::Over;
use crate::request::{
    Beat, CancelAnswer, Claim, ClaimRequest, EditAnswer, Expired, Receipt, RescueRules, Rescued,
    SettleItem, Settled, WorkerCard,
};
use crate::schedule::{FireAnswer, FireRequest, FireView, ScheduleChange, ScheduleView, Which};
use crate::store::Store;
use crate::stream::{StreamAnswer, StreamItem, StreamPage, Streams};
use crate::view::{
    AttemptView, Crowd, DeadGroup, DeadLetter, DepthView, End, Finding, JobFilter, JobPage,
    JobPlace, JobView, Lacking, Lacks, LineView, QueueRules, QueueView, Unfinished, WorkerView,
};
use crate::wake::{Hint, Wake};
use crate::wanted::Wanted;
use connect::NOW;
use statement::At;
use watch::Where;

/// How long the end of a process waits for its last hints to be on their way: without them, others find out by polling.
const LAST_HINTS: Duration = Duration::from_secs(1);

/// A store on Postgres.
pub struct Postgres {
    shared: Arc<Shared>,
    /// Taken by whoever waits for its end.
    sending: Mutex<Option<JoinHandle<()>>>,
    listening: JoinHandle<()>,
}

/// What the verbs and the background tasks share.
struct Shared {
    db: Arc<connect::Db>,
    wake: Wake,
    notifier: notify::Notifier,
    enqueues: enqueue::Enqueues,
    starts: flows::Starts,
    appends: runs::Appends,
    leases: leases::Leases,
    doors: doors::Doors,
    arrivals: flows::Arrivals,
    marks: marks::Marks,
    watched: watch::Watched,
    wanted: Wanted,
    followed: Followed,
    bounds: depth::Bounds,
    beats: workers::Reserved,
    listening: tokio::sync::watch::Sender<bool>,
    swept: Mutex<Option<Instant>>,
    unstuck: Mutex<Option<Instant>>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("db", &self.shared.db).finish_non_exhaustive()
    }
}

impl Postgres {
    /// Opens `postgres://USER@HOST/DATABASE`.
    ///
    /// Our own option is `prepare=off`, for a pooler that shares connections between statements (one
    /// is recognised without it), or `prepare=on`, for one that follows prepared statements.
    pub async fn open(url: &str, options: OpenOptions) -> Result<Self> {
        let db = Arc::new(connect::Db::open(url, &options).await?);
        migrate::run(&db, options.migrate).await?;
        let (notifier, told) = notify::Notifier::new();
        let (process, told_at) = (notifier.process().to_owned(), notifier.told_at());
        let last_call = notifier.last_call().clone();
        let shared = Arc::new(Shared {
            db: Arc::clone(&db),
            wake: Wake::default(),
            notifier,
            enqueues: enqueue::Enqueues::default(),
            starts: flows::Starts::default(),
            appends: runs::Appends::default(),
            leases: leases::Leases::default(),
            doors: doors::Doors::default(),
            arrivals: flows::Arrivals::default(),
            marks: marks::Marks::default(),
            watched: watch::Watched::default(),
            wanted: Wanted::default(),
            followed: Followed::default(),
            bounds: depth::Bounds::default(),
            beats: workers::Reserved::default(),
            listening: tokio::sync::watch::Sender::new(false),
            swept: Mutex::new(None),
            unstuck: Mutex::new(None),
        });
        let sending = tokio::spawn(async move {
            notify::send(&db, &process, &told_at, &last_call, told).await;
        });
        let listening = tokio::spawn(listen::listen(Arc::clone(&shared)));
        Ok(Self { shared, sending: Mutex::new(Some(sending)), listening })
    }
}

impl Postgres {
    fn take_sending(&self) -> Option<JoinHandle<()>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let sending = self.take_sending();
        for task in sending.iter().chain([&self.listening]) {
            task.abort();
        }
    }
}

impl Shared {
    /// The time by the clock that judges.
    async fn now(&self) -> Result<Timestamp> {
        let rows = self.db.read(&NOW, &[&self.db.manual_now()]).await?;
        let now = rows.first().map(|row| row.get::<_, At>(0).0);
        now.ok_or_else(|| Error::Database { reason: "it does not know the time".into() })
    }

    /// Tells this process at once, and the others as soon as may be.
    fn hint(&self, hint: Hint) {
        self.note(&hint, Where::Here);
        self.wake.tell(hint.clone());
        self.notifier.tell(hint);
    }

    /// Remembers who waits for something.
    fn note(&self, hint: &Hint, place: Where) {
        match hint {
            Hint::Watch { id } => self.watched.add(*id, place),
            Hint::Wanted { queue } => self.wanted.add(queue),
            Hint::Rules => self.bounds.forget(),
            Hint::Follow { ids } => {
                for id in ids {
                    self.watched.add(*id, place);
                }
                for id in self.followed.follow(ids) {
                    self.hint(Hint::Stream { id });
                }
            }
            _ => {}
        }
    }

    /// Another process told something.
    fn heard(&self, payload: &str) {
        let Some(hint) = self.notifier.hear(payload) else { return };
        self.note(&hint, Where::Elsewhere);
        self.wake.tell(hint);
    }

    /// These jobs have finished: tells whoever waits for one of them.
    fn finished(&self, ids: impl Iterator<Item = JobId>) {
        for (id, place) in self.watched.take(ids) {
            let hint = Hint::Finished { id };
            match place {
                Where::Here => self.wake.tell(hint),
                Where::Elsewhere => self.hint(hint),
            }
        }
    }

    /// Whether this process should sweep leases now; says so once per period.
    fn sweep_is_due(&self, every: Duration) -> bool {
        is_due(&self.swept, every)
    }

    /// Whether this process should look for gates that are stuck; says so once per period.
    fn unstick_is_due(&self, every: Duration) -> bool {
        is_due(&self.unstuck, every)
    }
}

fn is_due(last: &Mutex<Option<Instant>>, every: Duration) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let due = last.is_none_or(|last| last.elapsed() >= every);
    if due {
        *last = Some(Instant::now());
    }
    due
}

#[async_trait]
impl Streams for Postgres {
    async fn append_stream(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
        bytes_max: u64,
    ) -> Result<Vec<StreamAnswer>> {
        streams::append(&self.shared, worker, items, bytes_max).await
    }

    async fn streams_after(&self, jobs: Vec<(JobId, u64)>) -> Result<Vec<StreamPage>> {
        streams::after(&self.shared.db, &jobs).await
    }
}

#[async_trait]
impl Store for Postgres {
    fn backend(&self) -> &'static str {
        "postgres"
    }

    fn wake(&self) -> &Wake {
        &self.shared.wake
    }

    fn hint(&self, hint: Hint) {
        self.shared.hint(hint);
    }

    async fn now(&self) -> Result<Timestamp> {
        self.shared.now().await
    }

    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
        enqueue::enqueue(&self.shared, jobs).await
    }

    async fn claim(&self, ask: ClaimRequest) -> Result<Claim> {
        let claim = claim::claim(&self.shared, ask).await?;
        self.shared.went(claim.jobs.iter().map(|taken| taken.job.queue.as_str()));
        Ok(claim)
    }

    async fn settle(&self, worker: WorkerId, items: Vec<SettleItem>) -> Result<Vec<Settled>> {
        settle::settle(&self.shared, worker, items).await
    }

    async fn register(&self, card: WorkerCard) -> Result<()> {
        workers::register(&self.shared.db, card).await
    }

    async fn beat(&self, worker: WorkerId) -> Result<Beat> {
        workers::beat(&self.shared, worker).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<Rescued> {
        rescue::deregister(&self.shared, worker).await
    }

    async fn rescue(&self, rules: RescueRules) -> Result<Rescued> {
        rescue::rescue(&self.shared, rules).await
    }

    async fn expire(&self, book: &RuleBook) -> Result<Expired> {
        expire::expire(&self.shared, book).await
    }

    async fn cancel(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>> {
        cancel::cancel(&self.shared, ids, reason).await
    }

    async fn run_now(&self, id: JobId) -> Result<bool> {
        cancel::run_now(&self.shared, id).await
    }

    async fn edit(&self, id: JobId, edit: &Edit) -> Result<EditAnswer> {
        edit::edit(&self.shared, id, edit).await
    }

    async fn job(&self, id: JobId) -> Result<Option<JobView>> {
        query::job(&self.shared.db, id).await
    }

    async fn jobs_of(&self, ids: Vec<JobId>) -> Result<Vec<JobView>> {
        query::jobs_of(&self.shared.db, &ids).await
    }

    async fn ends_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, Option<End>>> {
        query::ends_of(&self.shared.db, &ids).await
    }

    async fn unfinished_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
        query::unfinished_of(&self.shared.db, &ids).await
    }

    async fn begun_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>> {
        query::begun_of(&self.shared.db, &ids).await
    }

    async fn jobs(&self, filter: &JobFilter) -> Result<JobPage> {
        query::jobs(&self.shared.db, filter).await
    }

    async fn line(&self, id: JobId) -> Result<Option<LineView>> {
        lines::place(&self.shared.db, id).await
    }

    async fn key_holder(&self, id: JobId) -> Result<Option<JobId>> {
        query::key_holder(&self.shared.db, id).await
    }

    async fn blocked_due(&self, id: JobId) -> Result<Option<Timestamp>> {
        query::blocked_due(&self.shared.db, id).await
    }

    async fn queues_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, String>> {
        query::queues_of(&self.shared.db, &ids).await
    }

    async fn places_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, JobPlace>> {
        query::places_of(&self.shared.db, &ids).await
    }

    async fn lane(&self, id: JobId) -> Result<Option<LaneView>> {
        lane::lane(&self.shared, id).await
    }

    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>> {
        query::attempts(&self.shared.db, id).await
    }

    async fn unfinished(&self) -> Result<Unfinished> {
        query::unfinished(&self.shared.db).await
    }

    async fn queues(&self) -> Result<Vec<QueueView>> {
        queues::list(&self.shared.db).await
    }

    async fn queue_rules(&self) -> Result<RuleBook> {
        queues::rules(&self.shared.db).await
    }

    async fn set_queue(&self, name: &str, rules: Option<QueueRules>) -> Result<bool> {
        let over = rules.as_ref().map_or(Over::Any, Over::of);
        queues::set(&self.shared, name, rules.as_ref(), over).await
    }

    async fn replace_queue(&self, name: &str, was: u64, rules: Option<QueueRules>) -> Result<bool> {
        queues::set(&self.shared, name, rules.as_ref(), Over::read(was)).await
    }

    async fn lacking(&self, lacks: &Lacks) -> Result<Option<Lacking>> {
        lacking::find(&self.shared.db, lacks).await
    }

    async fn queue_names(&self) -> Result<Vec<String>> {
        queues::names(&self.shared.db).await
    }

    async fn gates(&self, names: &[String]) -> Result<Vec<GateView>> {
        doors::views(&self.shared.db, names).await
    }

    async fn held_of(&self, queue: &str, gates: &[String]) -> Result<Vec<u64>> {
        doors::held_of(&self.shared.db, queue, gates).await
    }

    async fn crowd(&self, queue: &str) -> Result<Crowd> {
        crowd::look(&self.shared.db, queue).await
    }

    async fn depths(&self, queues: &[String]) -> Result<Vec<DepthView>> {
        depth::depths(&self.shared, queues).await
    }

    async fn workers(&self) -> Result<Vec<WorkerView>> {
        workers::list(&self.shared.db).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        dead::list(&self.shared.db, filter, before, limit).await
    }

    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>> {
        dead::groups(&self.shared.db, filter).await
    }

    async fn dead_note(
        &self,
        ids: &[JobId],
        by: &str,
        text: &str,
        triage: Option<Triage>,
        archived: Option<bool>,
    ) -> Result<u64> {
        dead::note(&self.shared, ids, by, text, triage, archived).await
    }

    async fn dead_replay(
        &self,
        ids: &[JobId],
        by: By<'_>,
        payload: Option<Payload>,
    ) -> Result<Vec<JobId>> {
        dead::replay(&self.shared, ids, by, payload).await
    }

    async fn redrive_rules(&self) -> Result<Vec<RedriveRule>> {
        dead::rules(&self.shared.db).await
    }

    async fn set_redrive_rule(&self, name: &str, rule: Option<RedriveRule>) -> Result<()> {
        dead::set_rule(&self.shared.db, name, rule).await
    }

    async fn redrive(&self, rule: &RedriveRule, limit: usize, by: By<'_>) -> Result<Vec<JobId>> {
        dead::redrive(&self.shared, rule, limit, by).await
    }

    async fn schedules(&self, which: &Which) -> Result<Vec<ScheduleView>> {
        schedules::list(&self.shared.db, which).await
    }

    async fn change_schedules(&self, changes: Vec<ScheduleChange>) -> Result<bool> {
        schedules::change(&self.shared, &changes).await
    }

    async fn fire(&self, ask: FireRequest) -> Result<FireAnswer> {
        fire::fire(&self.shared, &ask).await
    }

    async fn fires(&self, name: &str, limit: usize) -> Result<Vec<FireView>> {
        schedules::history(&self.shared.db, name, limit).await
    }

    async fn finished_after(&self, after: Option<JobId>, limit: usize) -> Result<Vec<Finished>> {
        sweep::finished_after(&self.shared.db, after, limit).await
    }

    async fn purge(&self, ids: &[JobId]) -> Result<u64> {
        sweep::purge(&self.shared, ids).await
    }

    async fn take_duty(
        &self,
        name: &str,
        holder: WorkerId,
        ttl: Duration,
    ) -> Result<Option<Timestamp>> {
        workers::take_duty(&self.shared.db, name, holder, ttl).await
    }

    async fn leave_duty(&self, name: &str, holder: WorkerId) -> Result<()> {
        workers::leave_duty(&self.shared.db, name, holder).await
    }

    async fn examine(&self) -> Result<Vec<Finding>> {
        examine::examine(&self.shared).await
    }

    async fn close(&self) {
        self.shared.arrivals.rest().await;
        self.shared.notifier.last_call().cancel();
        if let Some(mut sending) = self.take_sending()
            && tokio::time::timeout(LAST_HINTS, &mut sending).await.is_err()
        {
            sending.abort();
        }
        self.listening.abort();
        self.shared.listening.send_replace(false);
        self.shared.beats.close().await;
        self.shared.db.close();
    }
}
