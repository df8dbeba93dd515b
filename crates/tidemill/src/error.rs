//! The one error of the library: a sentence for people, a stable code for programs.

use std::time::Duration;

use jiff::Timestamp;
use thiserror::Error;
use tidemill_core::flow::FlowState;
use tidemill_core::{FlowId, JobId, PlanId, State, WorkerId};

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what it was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The input was refused; nothing was written.
    #[error(transparent)]
    Invalid(#[from] tidemill_core::Error),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] tidemill_store::Error),
    /// A local queue did not take a task, or the task has no answer.
    #[error(transparent)]
    Local(#[from] crate::local::Error),
    /// This process declared its kinds, and this is none of them.
    #[error(
        "the kind {kind:?} is not one of those this process declared ({known}); declare it \
         with Builder::kind or correct the name"
    )]
    KindUnknown {
        /// What was asked for.
        kind: String,
        /// What is declared.
        known: String,
    },
    /// The id that was chosen for a job is another one's.
    #[error(
        "another job has the id {id}, and nothing was enqueued; give this one an id of its own, or none"
    )]
    IdTaken {
        /// Which id.
        id: JobId,
    },
    /// The id of a flow is that of another one.
    #[error(
        "another flow has the id {id}, and nothing was started; give this one an id of its own, or none"
    )]
    FlowTaken {
        /// Which id.
        id: FlowId,
    },
    /// Two handlers for one kind.
    #[error("the kind {kind:?} has two handlers in one worker")]
    KindTwice {
        /// Which kind.
        kind: String,
    },
    /// The worker has no handler for a history of this kind.
    #[error("the worker has no handler for the kind {kind:?}; give it with handle()")]
    HandlerMissing {
        /// Which kind.
        kind: String,
    },
    /// There is no such job, or it is no longer kept.
    #[error("there is no job {id}; it may have passed its retention")]
    JobUnknown {
        /// Which job.
        id: JobId,
    },
    /// The job stands where this cannot be done.
    #[error("the job {id} {why}")]
    JobNotNow {
        /// Which job.
        id: JobId,
        /// Where it stands, and what can be done.
        why: &'static str,
    },
    /// The job was changed meanwhile.
    #[error("the job {id} is not as it was when the change was made up; look at it again")]
    JobChanged {
        /// Which job.
        id: JobId,
    },
    /// The job did not finish in the time given.
    #[error("the job {id} had not finished after {waited_ms} ms; it is {}", state.word())]
    WaitTimeout {
        /// Which job.
        id: JobId,
        /// How long was waited.
        waited_ms: u64,
        /// Where it stood.
        state: State,
    },
    /// The job finished, but not well.
    #[error("the job {id} is {}: {reason}", state.word())]
    NotDone {
        /// Which job.
        id: JobId,
        /// Dead or cancelled.
        state: State,
        /// Why.
        reason: String,
    },
    /// The job's output is not what was expected.
    #[error("the output of job {id} cannot be read as the type asked for: {reason}")]
    OutputUnreadable {
        /// Which job.
        id: JobId,
        /// What the parser said.
        reason: String,
    },
    /// The job keeps no journal and has no mail: it is no run of a workflow, or has not begun.
    #[error("the job {id} is no run of a workflow, or has not begun to be one")]
    RunUnknown {
        /// Which job.
        id: JobId,
    },
    /// The run has finished: it hears nothing any more.
    #[error("the run {id} has finished; a signal to it would never be read")]
    RunFinished {
        /// Which run.
        id: JobId,
    },
    /// The mailbox of the run has no room for another signal.
    #[error(
        "the run {id} has not taken the signals it was sent: its mailbox has room for {signals_max}, of {bytes_max} \
         bytes together"
    )]
    MailboxFull {
        /// Which run.
        id: JobId,
        /// How many signals that nobody has taken there may be.
        signals_max: u64,
        /// How many bytes they may have together.
        bytes_max: u64,
    },
    /// The run refused an update.
    #[error("the run {id} refused it: {reason}")]
    UpdateRefused {
        /// Which run.
        id: JobId,
        /// What it said.
        reason: String,
    },
    /// What an object is has another type than was asked for.
    #[error("the object {name} cannot be read as asked: {reason}")]
    ObjectUnreadable {
        /// Its name and key.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// Another job of its schedule has not finished, and they never run at once.
    #[error(
        "the job {id} is of the schedule {schedule:?}, whose jobs do not run at once, and {} has not finished; let it \
         go again when that one has, or cancel that one first",
        .holder.map_or_else(|| "another".to_owned(), |holder| holder.to_string())
    )]
    ScheduleOverlap {
        /// Which job.
        id: JobId,
        /// Its schedule.
        schedule: String,
        /// Who has not finished, unless it has meanwhile.
        holder: Option<JobId>,
    },
    /// The run stands where this cannot be done.
    #[error("the run {id} does not allow that now: {why}")]
    RunNotNow {
        /// Which run.
        id: JobId,
        /// Why not.
        why: String,
    },
    /// The worker was given up, has signed off, or was never there.
    #[error(
        "the worker {id} is not there: it has not beaten for its lease and was given up, or has signed off; drop what \
         it runs, which others may have by now, and register anew"
    )]
    WorkerLost {
        /// Which worker.
        id: WorkerId,
    },
    /// The server does not take this worker: its credential has another role or other queues, or its card is wrong.
    #[error("the server does not take this worker: {reason}")]
    WorkerRefused {
        /// The server's own code.
        code: &'static str,
        /// What it said.
        reason: String,
    },
    /// This process was asked to replay, and has done so; it does not work.
    #[error("this process was asked by TIDEMILL_REPLAY to look at runs, and not to work")]
    ReplayedOnly,
    /// There is no such flow, or it is no longer kept.
    #[error("there is no flow {id}; it may have passed its retention")]
    FlowUnknown {
        /// Which flow.
        id: FlowId,
    },
    /// The flow has no such step.
    #[error("the flow {id} has no step {step:?}")]
    StepUnknown {
        /// Which flow.
        id: FlowId,
        /// What was asked for.
        step: String,
    },
    /// What is done about a saga that is stuck, or about a step of a flow, is kept with who and why; nobody said why.
    #[error("what is done about the flow {id} is kept with who and why: say why")]
    WhyMissing {
        /// Which flow.
        id: FlowId,
    },
    /// The flow stands where this cannot be done.
    #[error("the flow {id} does not allow that now: {why}")]
    FlowNotNow {
        /// Which flow.
        id: FlowId,
        /// Why not.
        why: String,
    },
    /// The key of a part came with other jobs.
    #[error("the flow {id} has another part of this key; take a new key for other jobs")]
    PartReused {
        /// Which flow.
        id: FlowId,
    },
    /// The flow did not end in the time given.
    #[error("the flow {id} had not ended after {waited_ms} ms; it is {}", state.word())]
    FlowWaitTimeout {
        /// Which flow.
        id: FlowId,
        /// How long was waited.
        waited_ms: u64,
        /// Where it stood.
        state: FlowState,
    },
    /// There is no such plan, or it is no longer kept.
    #[error("there is no plan {id}; plans are kept for 30 days after they were applied")]
    PlanUnknown {
        /// Which plan.
        id: PlanId,
    },
    /// The time to apply the plan is over.
    #[error("the plan {id} was to be applied until {at}; make another, and look at it again")]
    PlanExpired {
        /// Which plan.
        id: PlanId,
        /// Until when.
        at: Timestamp,
    },
    /// The plan stands where this cannot be done.
    #[error("the plan {id} does not allow that now: {why}")]
    PlanNotNow {
        /// Which plan.
        id: PlanId,
        /// Why not.
        why: String,
    },
    /// More dead letters match than one plan may have.
    #[error(
        "more than {max} dead letters match, and a plan has no more; narrow the filter, by time for one"
    )]
    PlanTooLarge {
        /// How many it may have.
        max: usize,
    },
    /// There is no such schedule.
    #[error("there is no schedule {name:?}")]
    ScheduleUnknown {
        /// Which schedule.
        name: String,
    },
    /// The schedule was changed meanwhile.
    #[error("the schedule {name:?} is not as it was when the change was made up; look at it again")]
    ScheduleChanged {
        /// Which schedule.
        name: String,
    },
    /// There is no such limit.
    #[error("there is no limit {name} on {queue}")]
    LimitUnknown {
        /// Its name.
        name: String,
        /// The queue or pattern.
        queue: String,
    },
    /// The schedule is another owner's.
    #[error(
        "the schedule {name:?} belongs to {owner:?}, not to {by:?}; choose another name, or act as \
         its owner"
    )]
    ScheduleOwned {
        /// Which schedule.
        name: String,
        /// Whose it is.
        owner: String,
        /// Who tried.
        by: String,
    },
    /// One declaration names a schedule twice.
    #[error("the schedule {name:?} is declared twice; give each its own name")]
    ScheduleTwice {
        /// Which schedule.
        name: String,
    },
    /// What is in a step of a flow is refused, or what undoes it.
    #[error("the {part} {step:?} of the flow: {error}")]
    InStep {
        /// Its job, or what undoes it.
        part: &'static str,
        /// Which step.
        step: String,
        /// Why.
        error: Box<Self>,
    },
    /// One of several that came together is refused, and the others with it.
    #[error("job {index}: {error}")]
    InBatch {
        /// Which one, from 0: a job, or the report of an attempt of one.
        index: usize,
        /// Why.
        error: Box<Self>,
    },
    /// One of the schedules of a declaration is refused.
    #[error("the schedule {name:?}: {error}")]
    InSchedule {
        /// Which schedule.
        name: String,
        /// Why.
        error: Box<Self>,
    },
    /// A live credential has this name.
    #[error("there is a live credential {name:?}; revoke it first, or choose another name")]
    CredentialTaken {
        /// Which name.
        name: String,
    },
    /// There is no such credential, or none that is live.
    #[error("there is no live credential {which:?}, and none with such an id")]
    CredentialUnknown {
        /// What was asked for.
        which: String,
    },
    /// There is no such webhook.
    #[error("there is no webhook {name:?}; `tidemill webhooks` lists them")]
    WebhookUnknown {
        /// Its name.
        name: String,
    },
    /// As many credentials are live as may be.
    #[error("{max} credentials are live, and no more may be; revoke those that nobody uses")]
    CredentialsTooMany {
        /// How many.
        max: usize,
    },
    /// What is encrypted cannot be put under a first key: there is none.
    #[error("there is no key to encrypt with")]
    EncryptionOff,
    /// The system gives no random bytes, so no secret can be made.
    #[error("the operating system gives no random bytes: {reason}")]
    RandomUnavailable {
        /// What it said.
        reason: String,
    },
    /// The caller's transaction is on another database than the store.
    #[error(
        "the connection is {given}, the store is {store}: a job can only be enqueued in a \
         transaction of its own store"
    )]
    TransactionElsewhere {
        /// What was given.
        given: &'static str,
        /// What the store is.
        store: &'static str,
    },
    /// This worker's store is elsewhere: a server has it.
    #[error(
        "this worker works for a server, and has no store of its own: what needs the store itself (mill(), settle_in, \
         transactions, replays) is for workers that open it"
    )]
    StoreElsewhere,
    /// The attempt may not write any more: its lease was lost, or it has ended.
    #[error(
        "the attempt of job {id} is over, another may run by now: nothing was written; roll the transaction back, if \
         there is one, nothing of it may stay"
    )]
    LeaseLost {
        /// Which job.
        id: JobId,
    },
    /// What is to follow must be said before the job is settled in a transaction.
    #[error("the job {id} was settled in a transaction: say before it what is to follow")]
    SettledBefore {
        /// Which job.
        id: JobId,
    },
    /// What a run keeps is written with its own end, which a transaction of the handler's does not know.
    #[error(
        "the job {id} keeps a journal or an object, which settle_in would lose: write its rows in cx.transaction, and \
         return what it comes to"
    )]
    SettlesRun {
        /// Which job.
        id: JobId,
    },
    /// The database has no table for the marks of effects.
    #[error(
        "there is no table tidemill_effect in this database; make it with tidemill::effect::create_in: {reason}"
    )]
    EffectsMissing {
        /// What the driver said.
        reason: String,
    },
    /// What an effect came to is recorded in the transaction that took its mark, and nowhere else.
    #[error(
        "the mark of the effect {key:?} was not taken in this transaction, or was recorded before"
    )]
    EffectElsewhere {
        /// The key of the effect.
        key: String,
    },
}

impl Error {
    /// The same of a job of a step, which is named.
    pub(crate) fn in_step(self, step: &str) -> Self {
        self.in_part("step", step)
    }

    /// The same of the job that undoes a step, which is named.
    pub(crate) fn in_undo(self, step: &str) -> Self {
        self.in_part("undo of the step", step)
    }

    fn in_part(self, part: &'static str, step: &str) -> Self {
        match self {
            Self::Invalid(tidemill_core::Error::FlowInvalid { .. }) | Self::InStep { .. } => self,
            Self::InBatch { index, error } => error.in_part(part, step).in_batch(index),
            error => Self::InStep { part, step: step.to_owned(), error: Box::new(error) },
        }
    }

    /// The same of one of several that came together.
    pub(crate) fn in_batch(self, index: usize) -> Self {
        Self::InBatch { index, error: Box::new(self) }
    }

    /// The same of one that came alone.
    pub(crate) fn alone(self) -> Self {
        match self {
            Self::InBatch { error, .. } => *error,
            error => error,
        }
    }

    /// When to try again, if a queue was full and can have room for the same call later.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Store(tidemill_store::Error::QueueFull(full)) => full.retry_after(),
            _ => None,
        }
    }

    /// The stable code of this error; `docs/errors/` has a page for each.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Local(error) => error.code(),
            Self::KindUnknown { .. } => "kind_unknown",
            Self::IdTaken { .. } | Self::FlowTaken { .. } => "id_taken",
            Self::KindTwice { .. } => "kind_twice",
            Self::HandlerMissing { .. } => "handler_missing",
            Self::JobUnknown { .. } => "job_unknown",
            Self::JobNotNow { .. } => "job_not_now",
            Self::JobChanged { .. } => "job_changed",
            Self::ScheduleChanged { .. } => "schedule_changed",
            Self::LimitUnknown { .. } => "limit_unknown",
            Self::WaitTimeout { .. } => "wait_timeout",
            Self::NotDone { .. } => "job_not_done",
            Self::OutputUnreadable { .. } => "output_unreadable",
            Self::RunUnknown { .. } => "run_unknown",
            Self::RunFinished { .. } => "run_finished",
            Self::MailboxFull { .. } => "mailbox_full",
            Self::UpdateRefused { .. } => "update_refused",
            Self::ObjectUnreadable { .. } => "object_unreadable",
            Self::RunNotNow { .. } => "run_not_now",
            Self::WorkerLost { .. } => "worker_lost",
            Self::WorkerRefused { code, .. } => code,
            Self::ReplayedOnly => "replayed_only",
            Self::FlowUnknown { .. } => "flow_unknown",
            Self::StepUnknown { .. } => "step_unknown",
            Self::FlowNotNow { .. } => "flow_not_now",
            Self::WhyMissing { .. } => "why_missing",
            Self::PartReused { .. } => "idempotency_key_reused",
            Self::FlowWaitTimeout { .. } => "flow_wait_timeout",
            Self::PlanUnknown { .. } => "plan_unknown",
            Self::PlanExpired { .. } => "plan_expired",
            Self::PlanNotNow { .. } => "plan_not_now",
            Self::PlanTooLarge { .. } => "plan_too_large",
            Self::ScheduleUnknown { .. } => "schedule_unknown",
            Self::ScheduleOverlap { .. } => "schedule_overlap",
            Self::ScheduleOwned { .. } => "schedule_owned",
            Self::ScheduleTwice { .. } => "schedule_twice",
            Self::InStep { error, .. }
            | Self::InBatch { error, .. }
            | Self::InSchedule { error, .. } => error.code(),
            Self::CredentialTaken { .. } => "credential_taken",
            Self::CredentialUnknown { .. } => "credential_unknown",
            Self::WebhookUnknown { .. } => "webhook_unknown",
            Self::CredentialsTooMany { .. } => "credentials_too_many",
            Self::EncryptionOff => "encryption_off",
            Self::RandomUnavailable { .. } => "random_unavailable",
            Self::StoreElsewhere => "store_elsewhere",
            Self::TransactionElsewhere { .. } => "transaction_elsewhere",
            Self::LeaseLost { .. } => "lease_lost",
            Self::SettledBefore { .. } => "settled_before",
            Self::SettlesRun { .. } => "settles_run",
            Self::EffectsMissing { .. } => "effects_missing",
            Self::EffectElsewhere { .. } => "effect_elsewhere",
        }
    }
}
