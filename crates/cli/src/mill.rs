//! What commands act on: a store, or a server that has one. The verbs are the same, so a command need not know which,
//! and prints the same.

use std::time::Duration;

use serde_json::value::RawValue;
use tidemill::audit::{AuditFilter, AuditView};
use tidemill::core::webhook::Webhook;
use tidemill::core::webhook::sign::SigningSecret;
use tidemill::core::why::{QueueWhy, Why};
use tidemill::store::schedule::Fired;
use tidemill::store::view::{AttemptView, Finding};
use tidemill::store::{
    DeadGroup, DeadLetter, DepthView, FireView, QueueView, ScheduleView, WorkerView,
};
use tidemill::{
    Alert, Backfill, By, CancelAnswer, ComingSlot, CredentialId, CredentialView, DeadFilter,
    DeadPlace, Declared, Delivery, Enqueue, Event, Flow, FlowFilter, FlowHead, FlowId, FlowView,
    ForkAs, Glance, Grant, History, JobFilter, JobId, JobPage, JobView, KeyCount, Limit,
    LimitState, MailPage, ObjectKey, PastSlot, Payload, PlanAct, PlanId, PlanView, Priority,
    QueueRules, Ran, Receipt, Recorded, RedriveRule, ReplayPace, ReplayReport, Retried, Rotated,
    RunActView, RunFilter, RunPage, RunView, Schedule, Secret, Signal, State, Tidemill, Timestamp,
    WebhookView, Worker,
};
use tidemill_client::{Client, Result};

/// A store, or a server.
#[derive(Debug, Clone)]
pub enum Mill {
    /// A store, opened here.
    Store(Tidemill),
    /// A server that has one.
    Server(Client),
}

/// Verbs that both have: each is asked of whichever it is.
macro_rules! verbs {
    ($(#[doc = $doc:literal] $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(
            #[doc = $doc]
            pub async fn $name(&self, $($arg: $type),*) -> Result<$answer> {
                match self {
                    Self::Store(mill) => Ok(mill.$name($($arg),*).await?),
                    Self::Server(client) => client.$name($($arg),*).await,
                }
            }
        )*
    };
}

impl Mill {
    verbs! {
        /// The store's present.
        now() -> Timestamp;
        /// Enqueues a job.
        enqueue(job: Enqueue) -> Receipt;
        /// Enqueues many, all or none.
        enqueue_many(jobs: Vec<Enqueue>) -> Vec<Receipt>;
        /// The job, if it is kept.
        job(id: JobId) -> Option<JobView>;
        /// A page of jobs.
        jobs_page(filter: &JobFilter) -> JobPage;
        /// The attempts of a job.
        attempts(id: JobId) -> Vec<AttemptView>;
        /// Why a job is not running.
        why(id: JobId) -> Why;
        /// Waits until a job has finished.
        wait(id: JobId, timeout: Duration) -> JobView;
        /// Calls jobs off.
        cancel_many(ids: Vec<JobId>, reason: &str) -> Vec<CancelAnswer>;
        /// Lets a job start now.
        retry(id: JobId, by: By<'_>, payload: Option<&str>) -> Retried;
        /// Lets a job wait in another band.
        set_priority(id: JobId, priority: Priority) -> ();
        /// All queues.
        queues() -> Vec<QueueView>;
        /// The rules of a queue.
        queue_rules(queue: &str) -> QueueRules;
        /// Sets the rules of a queue.
        set_queue(queue: &str, rules: Option<QueueRules>) -> ();
        /// Changes the rules of a queue.
        change_queue(queue: &str, change: impl Fn(&mut QueueRules)) -> ();
        /// Lets no job of a queue start.
        pause(queue: &str) -> ();
        /// Lets the jobs of a queue start again.
        resume(queue: &str) -> ();
        /// Why a queue is as deep as it is.
        why_queue(queue: &str) -> QueueWhy;
        /// What a queue has counted.
        depth(queue: &str) -> DepthView;
        /// Waits until a queue is down at its low watermark.
        until_below(queue: &str, timeout: Duration) -> bool;
        /// All limits, and how they stand.
        limit_states() -> Vec<LimitState>;
        /// Sets a limit.
        set_limit(queue: &str, name: &str, limit: Option<Limit>) -> ();
        /// Takes a limit away.
        delete_limit(queue: &str, name: &str) -> ();
        /// All workers.
        workers() -> Vec<WorkerView>;
        /// What somebody should look at.
        alerts() -> Vec<Alert>;
        /// The queues and the workers.
        glance() -> Glance;
        /// The health of the store.
        examine() -> Vec<Finding>;
        /// Starts a flow.
        start(flow: Flow) -> FlowId;
        /// Starts a flow, and says whether it is new.
        start_once(flow: Flow) -> (FlowId, bool);
        /// A flow, if it is kept.
        flow(id: FlowId) -> Option<FlowView>;
        /// Flows.
        flows(filter: &FlowFilter) -> Vec<FlowHead>;
        /// Calls a flow off.
        cancel_flow(id: FlowId, reason: &str) -> u64;
        /// Sends dead jobs of a flow on their way again.
        retry_flow(id: FlowId, step: Option<&str>, by: By<'_>) -> u64;
        /// Lets a step, and what comes after it, run again.
        rerun_flow(id: FlowId, step: &str) -> u64;
        /// Lets the dead job of a step count as done.
        resolve_step(id: FlowId, step: &str, output: Option<Payload>, by: &str, why: &str) -> u64;
        /// Waits until a flow has ended.
        wait_flow(id: FlowId, timeout: Duration) -> FlowView;
        /// A page of runs of workflows.
        runs_page(filter: &RunFilter) -> RunPage;
        /// A page of the mail of a run.
        mail_page(id: JobId, after: i64, limit: usize) -> MailPage;
        /// A run, if the job is one.
        run(id: JobId) -> Option<RunView>;
        /// Everything that the code of a run saw.
        history(id: JobId) -> History;
        /// What a run did.
        journal(id: JobId) -> Vec<Recorded>;
        /// What was done with a run.
        run_acts(id: JobId) -> Vec<RunActView>;
        /// Sends a signal to a run.
        signal(run: JobId, signal: Signal) -> ();
        /// Asks a run, and waits for its answer.
        update(run: JobId, update: Signal, timeout: Duration) -> Box<RawValue>;
        /// What an object is.
        object(name: &str, key: ObjectKey<'_>) -> Option<Box<RawValue>>;
        /// Lets a run rest.
        pause_run(id: JobId, by: &str, why: &str) -> ();
        /// Lets a run go on.
        resume_run(id: JobId, by: &str, why: &str) -> ();
        /// Lets a run go on whose journal is full.
        resume_run_with_journal(id: JobId, entries_max: u32, by: &str, why: &str) -> ();
        /// Lets a run forget what it did from a step on.
        reset_run(id: JobId, step: &str, by: &str, why: &str) -> ();
        /// Lets a step have returned something.
        skip_step(id: JobId, step: &str, output: &RawValue, by: &str, why: &str) -> ();
        /// Lets a step have failed.
        fail_step(id: JobId, step: &str, message: &str, by: &str, why: &str) -> ();
        /// Lets a step that has ended have returned something else.
        edit_step(id: JobId, step: &str, output: &RawValue, by: &str, why: &str) -> ();
        /// Starts a run that goes on from a step of another.
        fork_run(id: JobId, step: &str, fork: ForkAs, by: &str, why: &str) -> JobId;
        /// Calls a run off.
        cancel_run(id: JobId, by: &str, why: &str) -> CancelAnswer;
        /// How many rows each key holds.
        key_counts() -> Vec<KeyCount>;
    }

    /// Puts everything under the first key; `told` hears how far it has come.
    pub async fn rotate_keys(&self, told: impl FnMut(Rotated)) -> Result<Rotated> {
        match self {
            Self::Store(mill) => Ok(mill.rotate_keys(told).await?),
            Self::Server(client) => client.rotate_keys(told).await,
        }
    }

    /// Checks a job, as far as it can be here.
    pub fn check(&self, job: &Enqueue) -> Result<()> {
        match self {
            Self::Store(mill) => Ok(mill.check(job)?),
            Self::Server(client) => client.check(job),
        }
    }

    /// Follows the stream of a job.
    pub async fn stream(&self, id: JobId, after: u64) -> Result<Follow> {
        Ok(match self {
            Self::Store(mill) => Follow::Store(Box::new(mill.stream(id, after).await?)),
            Self::Server(client) => Follow::Server(Box::new(client.stream(id, after).await?)),
        })
    }

    /// Rules of time.
    pub fn schedules(&self) -> Schedules<'_> {
        match self {
            Self::Store(mill) => Schedules::Store(mill.schedules()),
            Self::Server(client) => Schedules::Server(client.schedules()),
        }
    }

    /// Who is told of ended jobs.
    pub fn webhooks(&self) -> Webhooks<'_> {
        match self {
            Self::Store(mill) => Webhooks::Store(mill.webhooks()),
            Self::Server(client) => Webhooks::Server(client.webhooks()),
        }
    }

    /// Who may talk to a server.
    pub fn credentials(&self) -> Credentials<'_> {
        match self {
            Self::Store(mill) => Credentials::Store(mill.credentials()),
            Self::Server(client) => Credentials::Server(client.credentials()),
        }
    }

    /// Jobs that gave up.
    pub fn dead(&self) -> Dead<'_> {
        match self {
            Self::Store(mill) => Dead::Store(mill.dead()),
            Self::Server(client) => Dead::Server(client.dead()),
        }
    }

    /// Who did what.
    pub fn audit(&self) -> Audit<'_> {
        match self {
            Self::Store(mill) => Audit::Store(mill.audit()),
            Self::Server(client) => Audit::Server(client.audit()),
        }
    }

    /// Writes a flow that does not begin yet.
    pub async fn build(&self, flow: Flow) -> Result<Building> {
        Ok(match self {
            Self::Store(mill) => Building::Store(mill.build(flow).await?),
            Self::Server(client) => Building::Server(client.build(flow).await?),
        })
    }

    /// A flow that does not begin yet.
    pub fn building(&self, id: FlowId) -> Building {
        match self {
            Self::Store(mill) => Building::Store(mill.building(id)),
            Self::Server(client) => Building::Server(client.building(id)),
        }
    }

    /// A worker, to be given handlers and run.
    pub fn worker(&self) -> Worker {
        match self {
            Self::Store(mill) => mill.worker(),
            Self::Server(client) => client.worker(),
        }
    }

    /// Closes what was opened.
    pub async fn close(&self) {
        if let Self::Store(mill) = self {
            mill.close().await;
        }
    }
}

/// A flow that is written and has not begun.
pub enum Building {
    /// In the store.
    Store(tidemill::Building),
    /// In the store of a server.
    Server(tidemill_client::Building),
}

impl Building {
    /// Its id.
    pub fn id(&self) -> FlowId {
        match self {
            Self::Store(building) => building.id(),
            Self::Server(building) => building.id(),
        }
    }

    /// Gives a step more jobs, once for this key.
    pub async fn add_once(&self, part: &str, step: &str, jobs: Vec<Enqueue>) -> Result<u64> {
        match self {
            Self::Store(building) => Ok(building.add_once(part, step, jobs).await?),
            Self::Server(building) => building.add_once(part, step, jobs).await,
        }
    }

    /// Lets it begin.
    pub async fn begin(self) -> Result<FlowId> {
        match self {
            Self::Store(building) => Ok(building.begin().await?),
            Self::Server(building) => building.begin().await,
        }
    }

    /// Throws it away.
    pub async fn discard(self, reason: &str) -> Result<u64> {
        match self {
            Self::Store(building) => Ok(building.discard(reason).await?),
            Self::Server(building) => building.discard(reason).await,
        }
    }
}

/// The stream of a job.
pub enum Follow {
    /// Read from the store.
    Store(Box<tidemill::Follow>),
    /// Sent by a server.
    Server(Box<tidemill_client::Follow>),
}

impl Follow {
    /// What comes next; `None` after the end was told.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        match self {
            Self::Store(follow) => Ok(follow.next().await?),
            Self::Server(follow) => follow.next().await,
        }
    }
}

/// Schedules.
pub enum Schedules<'a> {
    /// Of a store.
    Store(tidemill::Schedules<'a>),
    /// Of a server.
    Server(tidemill_client::Schedules<'a>),
}

impl Schedules<'_> {
    verbs! {
        /// All, or those of an owner.
        list(owner: Option<&str>) -> Vec<ScheduleView>;
        /// The one of this name.
        get(name: &str) -> ScheduleView;
        /// Makes or replaces one.
        set(schedule: Schedule) -> ScheduleView;
        /// Makes those of an owner exactly these.
        declare(owner: &str, schedules: Vec<Schedule>) -> Declared;
        /// What that would do.
        declare_preview(owner: &str, schedules: Vec<Schedule>) -> Declared;
        /// Deletes one.
        delete(name: &str, owner: &str) -> ();
        /// Lets one rest.
        pause(name: &str) -> ();
        /// Ends a pause.
        resume(name: &str) -> ();
        /// Makes its job now.
        run_now(name: &str) -> Ran;
        /// The next slots.
        preview(name: &str, n: usize) -> Vec<ComingSlot>;
        /// What became of its slots.
        history(name: &str, limit: usize) -> Vec<FireView>;
        /// Slots of the past.
        backfill_preview(name: &str, range: Backfill) -> Vec<PastSlot>;
        /// Fires slots of the past.
        backfill(name: &str, range: Backfill) -> Vec<Fired>;
    }
}

/// Webhooks.
pub enum Webhooks<'a> {
    /// Of a store.
    Store(tidemill::Webhooks<'a>),
    /// Of a server.
    Server(tidemill_client::Webhooks<'a>),
}

impl Webhooks<'_> {
    verbs! {
        /// All.
        list() -> Vec<WebhookView>;
        /// Makes or changes one.
        set(name: &str, webhook: Webhook) -> (WebhookView, Option<SigningSecret>);
        /// Gives one a new secret.
        rotate(name: &str, overlap: Duration) -> (WebhookView, SigningSecret);
        /// Takes one away.
        delete(name: &str) -> ();
        /// Sends a message once more.
        redeliver(name: &str, delivery: JobId, by: &str) -> JobId;
    }

    /// What became of its messages.
    pub async fn deliveries(
        &self,
        name: &str,
        state: Option<State>,
        before: Option<JobId>,
        limit: usize,
    ) -> Result<(Vec<Delivery>, Option<JobId>)> {
        match self {
            Self::Store(hooks) => Ok(hooks.deliveries(name, state, before, limit).await?),
            Self::Server(hooks) => hooks.deliveries(name, state, before, limit).await,
        }
    }
}

/// Credentials.
pub enum Credentials<'a> {
    /// Of a store.
    Store(tidemill::Credentials<'a>),
    /// Of a server.
    Server(tidemill_client::Credentials<'a>),
}

impl Credentials<'_> {
    verbs! {
        /// Makes one.
        create(name: &str, grant: Grant, expires_in: Option<Duration>) -> (CredentialView, Secret);
        /// All.
        list() -> Vec<CredentialView>;
        /// The one that is meant.
        find(which: &str) -> CredentialView;
        /// Ends one.
        revoke(id: CredentialId) -> ();
    }
}

/// Dead letters.
pub enum Dead<'a> {
    /// Of a store.
    Store(tidemill::Dead<'a>),
    /// Of a server.
    Server(tidemill_client::Dead<'a>),
}

impl Dead<'_> {
    verbs! {
        /// How many there are of each fingerprint.
        groups(filter: &DeadFilter) -> Vec<DeadGroup>;
        /// Some of them, latest death first.
        list(filter: &DeadFilter, before: Option<DeadPlace>, limit: usize) -> Vec<DeadLetter>;
        /// Some, at random.
        sample(filter: &DeadFilter, n: usize) -> Vec<DeadLetter>;
        /// Notes something on some.
        note(ids: &[JobId], by: &str, text: &str) -> u64;
        /// Sends one on its way again.
        replay_one(id: JobId, by: By<'_>, payload: Option<&str>) -> bool;
        /// Makes a plan for all that match.
        plan(filter: DeadFilter, act: PlanAct, by: &str, why: &str) -> PlanView;
        /// A plan.
        find_plan(id: PlanId) -> PlanView;
        /// Plans, newest first.
        plans(before: Option<PlanId>, limit: usize) -> Vec<PlanView>;
        /// Does what a plan says.
        apply(id: PlanId, by: &str) -> PlanView;
        /// Takes back what a plan did.
        undo(id: PlanId, by: &str) -> PlanView;
        /// Rules that replay by themselves.
        rules() -> Vec<RedriveRule>;
        /// Sets one.
        set_rule(rule: RedriveRule) -> ();
        /// Takes one away.
        delete_rule(name: &str) -> ();
    }

    /// Sends all that match on their way again, at a pace.
    pub async fn replay(
        &self,
        filter: &DeadFilter,
        by: By<'_>,
        pace: &ReplayPace,
        progress: impl FnMut(u64, u64),
    ) -> Result<ReplayReport> {
        match self {
            Self::Store(dead) => Ok(dead.replay(filter, by, pace, progress).await?),
            Self::Server(dead) => dead.replay(filter, by, pace, progress).await,
        }
    }
}

/// The record of who did what.
pub enum Audit<'a> {
    /// Of a store.
    Store(tidemill::Audit<'a>),
    /// Of a server.
    Server(tidemill_client::Audit<'a>),
}

impl Audit<'_> {
    verbs! {
        /// Acts, newest first.
        list(filter: &AuditFilter) -> Vec<AuditView>;
    }
}
