//! Whom a worker works for: the engine of this process, or a broker elsewhere.
//!
//! Handlers do not see the difference, but for what needs the store itself: that is refused with `store_elsewhere`.
//! What an attempt asks of the engine here goes straight to the store, as if there were no other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use tidemill_core::flow::plan;
use tidemill_core::wire::work::ReportBody;
use tidemill_core::workflow::{Mail, ObjectKey};
use tidemill_core::{
    Clock, Error as Invalid, Job, JobId, Limits, NewJob, Payload, Token, WorkerId,
};
use tidemill_store::flow::{Input, Output};
use tidemill_store::run::{Append, EntryRow, RunFilter, RunView};
use tidemill_store::stream::{StreamAnswer, StreamItem};
use tidemill_store::{Hint, Receipt, Wake};
use tokio::sync::broadcast::Receiver;
use tokio::sync::mpsc;

use crate::engine::Tidemill;
use crate::engine::rules::Known;
use crate::engine::trace;
use crate::engine::workflow::history::History;
use crate::engine::workflow::page::RunPage;
use crate::error::{Error, Result};
use crate::worker::broker::Broker;
use crate::worker::job::Enqueue;
use crate::worker::shop::locked;
use crate::worker::wire;

/// Outputs that are read at a time.
const PAGE_OUTPUTS: usize = 1000;
/// Mail is asked for this long at a time.
const MAIL_WAIT: Duration = Duration::from_secs(20);
/// It is looked for this often beside a hint, which may be lost.
const MAIL_LOOK: Duration = Duration::from_secs(5);
/// After an error it is asked for again then.
const MAIL_PAUSE: Duration = Duration::from_secs(1);
/// What an attempt asks of a broker that is away, it asks again, the first time after this.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Whom a worker works for.
#[derive(Clone)]
pub(crate) enum Boss {
    /// The engine of this process.
    Here(Tidemill),
    /// Somebody who is reached by other means.
    Elsewhere(Arc<Elsewhere>),
}

/// A broker, and what its worker remembers.
pub(crate) struct Elsewhere {
    pub(crate) broker: Arc<dyn Broker>,
    /// What can be checked without it; it has its own.
    limits: Limits,
    /// No rules: they are judged by where they are.
    known: Arc<Known>,
    wake: Wake,
    pub(crate) held: Held,
    pub(crate) reports: mpsc::UnboundedSender<ReportBody>,
    ended: Mutex<Option<mpsc::UnboundedReceiver<ReportBody>>>,
}

/// A journal, and what else is kept of its run.
type Journal = (Vec<EntryRow>, Option<RunView>);

/// The tokens of all jobs that are not settled yet, and how many are under each.
#[derive(Default)]
pub(crate) struct Held(Mutex<HashMap<Token, usize>>);

impl Held {
    pub(crate) fn took(&self, token: Token, jobs: usize) {
        *locked(&self.0).entry(token).or_default() += jobs;
    }

    /// A job under this token was settled, or is another's.
    pub(crate) fn ended(&self, token: Token) {
        let mut held = locked(&self.0);
        if let Some(jobs) = held.get_mut(&token) {
            *jobs -= 1;
            if *jobs == 0 {
                held.remove(&token);
            }
        }
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        locked(&self.0).keys().copied().collect()
    }
}

impl Elsewhere {
    /// The receiving end of what is to be reported; there is one.
    pub(crate) fn take_ended(&self) -> Option<mpsc::UnboundedReceiver<ReportBody>> {
        locked(&self.ended).take()
    }

    fn checked(&self, job: Enqueue) -> Result<NewJob> {
        let mut job = job.check(&self.limits, Clock::System.now())?;
        if job.options.trace.is_none() {
            job.options.trace = trace::current();
        }
        Ok(job)
    }

    fn checked_jobs(&self, step: &str, jobs: impl Iterator<Item = Enqueue>) -> Result<Vec<NewJob>> {
        let checked = jobs.map(|job| {
            let job = self.checked(job).map_err(|error| error.in_step(step))?;
            plan::check_member(step, &job)?;
            Ok(job)
        });
        let jobs: Vec<NewJob> = checked.collect::<Result<_>>()?;
        let jobs_max = self.limits.batch_jobs_max;
        if jobs.len() > jobs_max {
            let error = Error::from(Invalid::BatchTooLarge { jobs: jobs.len(), jobs_max });
            return Err(error.in_step(step));
        }
        Ok(jobs)
    }
}

impl Boss {
    pub(crate) fn elsewhere(broker: Arc<dyn Broker>) -> Self {
        let (reports, ended) = mpsc::unbounded_channel();
        Self::Elsewhere(Arc::new(Elsewhere {
            broker,
            limits: Limits { payload_bytes_max: usize::MAX, ..Limits::default() },
            known: Arc::default(),
            wake: Wake::default(),
            held: Held::default(),
            reports,
            ended: Mutex::new(Some(ended)),
        }))
    }

    /// The engine, for what needs its store.
    pub(crate) fn mill(&self) -> Result<&Tidemill> {
        match self {
            Self::Here(mill) => Ok(mill),
            Self::Elsewhere(_) => Err(Error::StoreElsewhere),
        }
    }

    /// The engine, if a transaction of the caller's can be on its store.
    pub(crate) fn same_store(&self, given: &'static str) -> Result<&Tidemill> {
        let mill = self.mill()?;
        mill.same_store(given)?;
        Ok(mill)
    }

    pub(crate) fn clock(&self) -> &Clock {
        match self {
            Self::Here(mill) => &mill.0.clock,
            Self::Elsewhere(_) => &Clock::System,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        match self {
            Self::Here(mill) => &mill.0.limits,
            Self::Elsewhere(boss) => &boss.limits,
        }
    }

    /// What this process knows of the rules.
    pub(crate) fn known(&self) -> Arc<Known> {
        match self {
            Self::Here(mill) => mill.0.rules.known(),
            Self::Elsewhere(boss) => Arc::clone(&boss.known),
        }
    }

    fn wake(&self) -> &Wake {
        match self {
            Self::Here(mill) => mill.0.store.wake(),
            Self::Elsewhere(boss) => &boss.wake,
        }
    }

    pub(crate) fn listen(&self) -> Receiver<Hint> {
        self.wake().listen()
    }

    pub(crate) fn tell(&self, hint: Hint) {
        self.wake().tell(hint);
    }

    pub(crate) fn checked(&self, job: Enqueue) -> Result<NewJob> {
        match self {
            Self::Here(mill) => mill.checked(job),
            Self::Elsewhere(boss) => boss.checked(job),
        }
    }

    pub(crate) fn checked_alone(&self, job: Enqueue) -> Result<NewJob> {
        match self {
            Self::Here(mill) => mill.checked_alone(job),
            Self::Elsewhere(boss) => boss.checked(job),
        }
    }

    pub(crate) fn checked_jobs<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<NewJob>> {
        match self {
            Self::Here(mill) => mill.checked_jobs(step, jobs),
            Self::Elsewhere(boss) => boss.checked_jobs(step, jobs.into_iter().map(Into::into)),
        }
    }

    pub(crate) async fn enqueue(&self, job: Enqueue) -> Result<Receipt> {
        let boss = match self {
            Self::Here(mill) => return mill.enqueue(job).await,
            Self::Elsewhere(boss) => boss,
        };
        let job = boss.checked(job)?;
        let id = job.id;
        let receipts = boss.broker.enqueue(vec![job]).await?;
        Ok(receipts.into_iter().next().unwrap_or(Receipt::Enqueued { id }))
    }

    /// A page of runs, for a replay.
    pub(crate) async fn runs_page(&self, filter: &RunFilter) -> Result<RunPage> {
        match self {
            Self::Here(mill) => mill.runs_page(filter).await,
            Self::Elsewhere(boss) => boss.broker.runs_page(filter).await,
        }
    }

    /// Everything that the code of a run saw; `None` if there is no such run, or it has not begun.
    pub(crate) async fn history(&self, run: JobId) -> Result<Option<History>> {
        match self {
            Self::Here(mill) => match mill.history(run).await {
                Err(Error::JobUnknown { .. } | Error::RunUnknown { .. }) => Ok(None),
                history => history.map(Some),
            },
            Self::Elsewhere(boss) => boss.broker.history(run).await,
        }
    }

    pub(crate) async fn journal(&self, job: JobId) -> tidemill_store::Result<Journal> {
        match self {
            Self::Here(mill) => mill.0.store.journal(job).await,
            Self::Elsewhere(boss) => patiently(|| boss.broker.journal(job)).await,
        }
    }

    /// The same for whoever cannot wait for a broker that is away.
    pub(crate) async fn journal_now(&self, job: JobId) -> tidemill_store::Result<Journal> {
        match self {
            Self::Here(mill) => mill.0.store.journal(job).await,
            Self::Elsewhere(boss) => boss.broker.journal(job).await,
        }
    }

    pub(crate) async fn value(
        &self,
        job: JobId,
        number: u32,
    ) -> tidemill_store::Result<Option<Payload>> {
        match self {
            Self::Here(mill) => {
                let beside = mill.0.store.value(job, number).await?;
                Ok(beside.map(|beside| beside.value))
            }
            Self::Elsewhere(boss) => patiently(|| boss.broker.value(job, number)).await,
        }
    }

    pub(crate) async fn mail(&self, job: JobId, after: i64) -> tidemill_store::Result<Vec<Mail>> {
        match self {
            Self::Here(mill) => mill.0.store.mail(job, after).await,
            Self::Elsewhere(boss) => {
                patiently(|| boss.broker.mail(job, after, Duration::ZERO)).await
            }
        }
    }

    /// Completes when there may be mail after a number. It listens from now on, not from when it is asked.
    pub(crate) fn mail_comes(&self, job: JobId, after: i64) -> BoxFuture<'static, ()> {
        match self {
            Self::Here(mill) => {
                let came = mill.0.store.wake().expect([Hint::Mail { id: job }]);
                let look = MAIL_LOOK.mul_f64(0.75 + fastrand::f64() / 2.0);
                Box::pin(async move { drop(tokio::time::timeout(look, came.come()).await) })
            }
            Self::Elsewhere(boss) => {
                let broker = Arc::clone(&boss.broker);
                Box::pin(async move {
                    loop {
                        match broker.mail(job, after, MAIL_WAIT).await {
                            Ok(mail) if mail.is_empty() => {}
                            Ok(_) => return,
                            Err(_) => tokio::time::sleep(MAIL_PAUSE).await,
                        }
                    }
                })
            }
        }
    }

    /// Writes to the journal of a run; `false` if the lease is lost.
    pub(crate) async fn append(
        &self,
        worker: WorkerId,
        item: Append,
    ) -> tidemill_store::Result<bool> {
        match self {
            Self::Here(mill) => Ok(mill.0.store.append(worker, vec![item]).await? == [true]),
            Self::Elsewhere(boss) => {
                let body = wire::append(item)?;
                patiently(|| boss.broker.append(worker, body.clone())).await
            }
        }
    }

    pub(crate) async fn append_stream(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
    ) -> tidemill_store::Result<Vec<StreamAnswer>> {
        match self {
            Self::Here(mill) => {
                let bytes_max = mill.0.limits.stream_bytes_max;
                mill.0.store.append_stream(worker, items, bytes_max).await
            }
            Self::Elsewhere(boss) => {
                let said = items.into_iter().map(wire::said).collect();
                let answers = boss.broker.say(worker, said).await?;
                Ok(answers.into_iter().map(wire::heard).collect())
            }
        }
    }

    /// What the steps returned that the step of this job comes after.
    pub(crate) async fn inputs(&self, job: &Job) -> tidemill_store::Result<Vec<Input>> {
        let Some(place) = job.options.flow.as_ref().filter(|place| place.joins) else {
            return Ok(Vec::new());
        };
        match self {
            Self::Here(mill) => {
                let mut inputs = mill.0.store.inputs(&[(place.id, place.step)]).await?;
                Ok(inputs.pop().unwrap_or_default())
            }
            Self::Elsewhere(boss) => patiently(|| boss.broker.inputs(job.id)).await,
        }
    }

    /// A page of what the jobs of a step returned that this job's step comes after.
    pub(crate) async fn outputs(
        &self,
        job: &Job,
        step: &Input,
        after: Option<JobId>,
    ) -> tidemill_store::Result<Vec<Output>> {
        let Some(place) = job.options.flow.as_ref() else { return Ok(Vec::new()) };
        match self {
            Self::Here(mill) => {
                mill.0.store.outputs(place.id, step.number, after, PAGE_OUTPUTS).await
            }
            Self::Elsewhere(boss) => {
                patiently(|| boss.broker.outputs(job.id, &step.step, after)).await
            }
        }
    }

    pub(crate) async fn object(
        &self,
        name: &str,
        key: ObjectKey<'_>,
    ) -> tidemill_store::Result<Option<Payload>> {
        match self {
            Self::Here(mill) => mill.0.store.object(name, key).await,
            Self::Elsewhere(boss) => patiently(|| boss.broker.object(name, key)).await,
        }
    }
}

/// Asks again for as long as the broker is away: it comes back, or the attempt ends with its lease. What is asked by an
/// attempt is done once, however often it is asked for.
async fn patiently<T, Fut>(ask: impl Fn() -> Fut) -> tidemill_store::Result<T>
where
    Fut: Future<Output = tidemill_store::Result<T>>,
{
    let mut pause = PAUSE_MIN;
    loop {
        match ask().await {
            Err(error) if error.is_temporary() => {
                tracing::debug!(%error, "the broker is away; asking again");
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            answer => return answer,
        }
    }
}
