//! The seam below the engine: everything a backend must be able to do, each with its guarantee.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::dead::{DeadFilter, DeadPlace, RedriveRule, Triage};
use tidemill_core::gate::GateView;
use tidemill_core::job::edit::Edit;
use tidemill_core::retention::Finished;
use tidemill_core::why::LaneView;
use tidemill_core::{By, JobId, NewJob, Payload, RuleBook, WorkerId};

use crate::audit::Audits;
use crate::credential::Credentials;
use crate::error::Result;
use crate::flow::Flows;
use crate::lease::Leases;
use crate::measure::Measured;
use crate::plan::Plans;
use crate::request::{
    Beat, CancelAnswer, Claim, ClaimRequest, EditAnswer, Expired, Receipt, RescueRules, Rescued,
    SettleItem, Settled, WorkerCard,
};
use crate::run::Runs;
use crate::schedule::{FireAnswer, FireRequest, FireView, ScheduleChange, ScheduleView, Which};
use crate::stream::Streams;
use crate::value::Values;
use crate::view::{
    AttemptView, Crowd, DeadGroup, DeadLetter, DepthView, End, Finding, JobFilter, JobPage,
    JobPlace, JobView, Lacking, Lacks, LineView, QueueRules, QueueView, Unfinished, WorkerView,
};
use crate::wake::{Hint, Wake};
use crate::webhook::Webhooks;

/// Durable memory. Every method is one transaction: it happens wholly or not at all, and what it
/// answers is durable when it answers. The store's clock, not the caller's, judges time.
#[async_trait]
pub trait Store:
    Audits
    + Credentials
    + Flows
    + Leases
    + Measured
    + Plans
    + Runs
    + Streams
    + Values
    + Webhooks
    + Send
    + Sync
    + Debug
    + 'static
{
    /// A word for people: `sqlite` or `postgres`.
    fn backend(&self) -> &'static str;

    /// Where hints are heard in this process.
    fn wake(&self) -> &Wake;

    /// Passes a hint on to this process and, as well as it can, to the others.
    fn hint(&self, hint: Hint);

    /// The store's present.
    async fn now(&self) -> Result<Timestamp>;

    /// Writes jobs. Sending a job again under the same id writes nothing and answers `Enqueued`.
    /// Answers stand in the order of the jobs. Those that ask for order stand in their line in this
    /// order, behind all that were committed before; each starts only after the one before it has
    /// ended. Tells `Hint::Ready` for every queue that got one.
    /// A queue that is full overflows as its rules say, or refuses the whole call (`QueueFull`); only
    /// this call is refused, never what the store itself puts back or lets follow.
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Receipt>>;

    /// Takes due jobs, each under exactly one lease, in order of lane, due time and age.
    /// A worker that is not registered, or was given up, gets nothing. A claim that says so stands until
    /// there is something ([`Stand`](crate::request::Stand)); one that was answered to nobody is undone.
    async fn claim(&self, ask: ClaimRequest) -> Result<Claim>;

    /// Records attempts that ended, with all their consequences, each only if its token still
    /// holds. Answers stand in the order of the items. Leases whose last job is settled go away. Nobody
    /// gives an attempt twice in one call.
    async fn settle(&self, worker: WorkerId, items: Vec<SettleItem>) -> Result<Vec<Settled>>;

    /// Announces a worker; from now on it must beat.
    async fn register(&self, card: WorkerCard) -> Result<()>;

    /// Says that a worker lives. It has a connection of its own: no load can keep it waiting.
    async fn beat(&self, worker: WorkerId) -> Result<Beat>;

    /// Forgets a worker that stopped. Jobs it still had are ready again at once, unspent.
    async fn deregister(&self, worker: WorkerId) -> Result<Rescued>;

    /// Gives up workers that beat no more: their unsettled jobs are ready again, no attempt spent,
    /// but dead when they have lost a worker too often. Any number of nodes may call it at once.
    async fn rescue(&self, rules: RescueRules) -> Result<Rescued>;

    /// Lets jobs that wait past their deadlines be dead, some of them at a time. Those of queues are as the book says.
    async fn expire(&self, book: &RuleBook) -> Result<Expired>;

    /// Calls jobs off. Once it answers, no further attempt of them starts.
    async fn cancel(&self, ids: Vec<JobId>, reason: &str) -> Result<Vec<CancelAnswer>>;

    /// Makes a waiting job due now. `false` when it does not wait for the clock.
    async fn run_now(&self, id: JobId) -> Result<bool>;

    /// Changes a job that waits: for a slot, at a gate, for the clock, in a line or for others. It keeps its due
    /// time: in another band it stands by that among the jobs of the band, and no attempt of it starts with half
    /// of the change. One that runs or has finished stays as it is.
    async fn edit(&self, id: JobId, edit: &Edit) -> Result<EditAnswer>;

    /// One job, wherever it stands.
    async fn job(&self, id: JobId) -> Result<Option<JobView>>;

    /// Those of these jobs that are there and can be shown.
    async fn jobs_of(&self, ids: Vec<JobId>) -> Result<Vec<JobView>>;

    /// Which of these jobs are there and have not finished.
    async fn unfinished_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>>;

    /// Of which of these jobs an attempt has begun since they were enqueued, or replayed: also of one that waits or was
    /// put off, and has spent none.
    async fn begun_of(&self, ids: Vec<JobId>) -> Result<HashSet<JobId>>;

    /// How those of these jobs ended that are there and can be shown; `None`: not yet.
    async fn ends_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, Option<End>>>;

    /// A page of jobs, newest first. Looks at no more jobs than the filter lets it, however few match.
    async fn jobs(&self, filter: &JobFilter) -> Result<JobPage>;

    /// Where a job stands in the line of its queue, tenant and key, while others are before it.
    async fn line(&self, id: JobId) -> Result<Option<LineView>>;

    /// The job that holds the unique key of one that is kept for when it has finished, or of one that had it before.
    async fn key_holder(&self, id: JobId) -> Result<Option<JobId>>;

    /// When a job that waits in a line, or for the holder of its unique key, is due by itself. What its flow holds says
    /// so in its place.
    async fn blocked_due(&self, id: JobId) -> Result<Option<Timestamp>>;

    /// The queues in which these jobs are: those that were diverted are elsewhere than they asked for. Jobs that are
    /// not there have none.
    async fn queues_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, String>>;

    /// Where these jobs are, and whose: nothing else is read of them. Jobs that are not there are nowhere.
    async fn places_of(&self, ids: Vec<JobId>) -> Result<HashMap<JobId, JobPlace>>;

    /// What is before a job that waits for a slot, in its queue, as this process would serve it; also while
    /// it is held at a gate. Its cost is bounded, however many wait.
    async fn lane(&self, id: JobId) -> Result<Option<LaneView>>;

    /// The attempts of a job that are kept, oldest first.
    async fn attempts(&self, id: JobId) -> Result<Vec<AttemptView>>;

    /// How many jobs are not finished. Exact; its cost grows with them.
    async fn unfinished(&self) -> Result<Unfinished>;

    /// All queues that have jobs, dead letters or rules.
    async fn queues(&self) -> Result<Vec<QueueView>>;

    /// The rules of the queues that have some, and which edition that is, of one moment.
    async fn queue_rules(&self) -> Result<RuleBook>;

    /// Sets the rules of a queue, one version on; `None` takes them away. `false`: they were given with
    /// a version that is not the present one, and nothing was changed. Tells `Hint::Rules`.
    ///
    /// From its commit on no claim follows an older edition, and what runs already counts at the gates of the new one.
    async fn set_queue(&self, name: &str, rules: Option<QueueRules>) -> Result<bool>;

    /// The same over rules of this version alone, whatever version the new ones have; 0: it has none. `false`: it has
    /// others by now.
    async fn replace_queue(&self, name: &str, was: u64, rules: Option<QueueRules>) -> Result<bool>;

    /// One job that has not finished and lacks what a limit would count it by. Reads only, beside all writers. Looks
    /// at 100,000 rows at most in each place where jobs wait, run or are blocked, and at none that have finished.
    async fn lacking(&self, lacks: &Lacks) -> Result<Option<Lacking>>;

    /// The queues that have jobs waiting, by name. Its cost grows with their number alone.
    async fn queue_names(&self) -> Result<Vec<String>>;

    /// These gates, as far as anything is known of them. A name that ends in [`PART`] stands for all
    /// gates of a limit by tenant or key, as to how many are held there.
    ///
    /// [`PART`]: tidemill_core::gate::PART
    async fn gates(&self, names: &[String]) -> Result<Vec<GateView>>;

    /// How many jobs of a queue are held at each of these gates, counted up to 100,000.
    async fn held_of(&self, queue: &str, gates: &[String]) -> Result<Vec<u64>>;

    /// What stands in a queue, and what its workers are busy with. Its cost is bounded, however many wait.
    async fn crowd(&self, queue: &str) -> Result<Crowd>;

    /// What these queues have counted, in their order: exact, of one moment, without counting jobs.
    /// Without any, those that are above their high watermark.
    /// Also brings up to date what is kept of all queues: samples for rates, and watermarks, each
    /// crossed once by whoever looks first, who tells `Hint::Watermark`. Look about once a second.
    async fn depths(&self, queues: &[String]) -> Result<Vec<DepthView>>;

    /// All workers that are registered.
    async fn workers(&self) -> Result<Vec<WorkerView>>;

    /// Dead letters, latest death first, at most `limit`; those that stand behind a place, if one is given.
    async fn dead(
        &self,
        filter: &DeadFilter,
        before: Option<DeadPlace>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>>;

    /// How many dead letters there are of each fingerprint, most numerous first.
    async fn dead_groups(&self, filter: &DeadFilter) -> Result<Vec<DeadGroup>>;

    /// Notes something on dead letters and, if given, sets their triage or puts them aside, of those alone whose jobs
    /// are dead now. One that is abandoned or put aside lets those behind it in its line pass. Answers how many there
    /// were.
    async fn dead_note(
        &self,
        ids: &[JobId],
        by: &str,
        text: &str,
        triage: Option<Triage>,
        archived: Option<bool>,
    ) -> Result<u64>;

    /// Sends dead letters on their way again: they are ready, with all attempts unspent, and keep
    /// all their wishes; with `payload` they get this one. Recorded as a note. Answers the ids that
    /// were dead (not retrying already) and now are ready. A step of a saga that has turned back stays dead; so does
    /// what holds up one that is stuck, unless it is said why.
    async fn dead_replay(
        &self,
        ids: &[JobId],
        by: By<'_>,
        payload: Option<Payload>,
    ) -> Result<Vec<JobId>>;

    /// The rules that redrive by themselves.
    async fn redrive_rules(&self) -> Result<Vec<RedriveRule>>;

    /// Sets a rule by its name; `None` takes it away.
    async fn set_redrive_rule(&self, name: &str, rule: Option<RedriveRule>) -> Result<()>;

    /// Sends dead letters on their way again that this rule may send on now: triage `new`, their delay over, below the
    /// bound, and none that a replay refuses. At most `limit`, longest dead first; what somebody else does with them
    /// is done before or after. Answers those that were sent.
    async fn redrive(&self, rule: &RedriveRule, limit: usize, by: By<'_>) -> Result<Vec<JobId>>;

    /// The schedules that are meant.
    async fn schedules(&self, which: &Which) -> Result<Vec<ScheduleView>>;

    /// Changes schedules, all or none: `false`, and nothing is written, when one of them has not the
    /// version its change was made of. Tells `Hint::Schedules`.
    async fn change_schedules(&self, changes: Vec<ScheduleChange>) -> Result<bool>;

    /// Fires slots: the step to the next slot, the jobs and the history commit together, and only if
    /// the schedule has this version, does not rest, and waits for the slot that the step is from and
    /// that has come. So each slot fires once, whoever tries and whatever the clock does.
    async fn fire(&self, ask: FireRequest) -> Result<FireAnswer>;

    /// The history of a schedule, latest first, at most `limit`. It is kept for 1,000 entries.
    async fn fires(&self, name: &str, limit: usize) -> Result<Vec<FireView>>;

    /// A page of finished jobs after this one, oldest first, for the sweep.
    async fn finished_after(&self, after: Option<JobId>, limit: usize) -> Result<Vec<Finished>>;

    /// Forgets finished jobs: body, attempts, stream, dead letter and notes. The result of a job whose
    /// unique key is still held stays. A dead one lets those behind it in its line pass. Also forgets
    /// keys whose period is over. Answers how many.
    async fn purge(&self, ids: &[JobId]) -> Result<u64>;

    /// Takes or keeps a duty that one node at a time should have; answers since when this one has had it without a gap.
    /// `None`: another has it.
    async fn take_duty(
        &self,
        name: &str,
        holder: WorkerId,
        ttl: Duration,
    ) -> Result<Option<Timestamp>>;

    /// Gives a duty back before its time is over: the next one who asks has it. Nothing if another has it.
    async fn leave_duty(&self, name: &str, holder: WorkerId) -> Result<()>;

    /// Looks at the health of the database.
    async fn examine(&self) -> Result<Vec<Finding>>;

    /// Stops background work and closes connections.
    async fn close(&self);
}
