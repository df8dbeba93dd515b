//! What a handler knows of its attempt, and what it can ask for.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::redact::Secrets;
use tidemill_core::stream::Said;
use tidemill_core::{Error as Invalid, Job as Body, JobId, Limits, NewJob, Payload, Token};
use tidemill_store::ask::{Answer, Ask, Question};
use tidemill_store::decided;
use tidemill_store::flow::{Input, Output};
use tidemill_store::keyring::What;
#[cfg(feature = "sqlite")]
use tidemill_store::rusqlite::Connection;
use tidemill_store::{ClaimedJob, Receipt};

use crate::effect::{self, Effect};
use crate::engine::Tidemill;
use crate::engine::enqueue::Target;
use crate::engine::heard::Heard;
use crate::engine::workflow::history::History;
use crate::error::{Error, Result};
use crate::worker::boss::Boss;
use crate::worker::durable::Run;
use crate::worker::durable::drive::copied;
use crate::worker::durable::looking::For;
use crate::worker::fail::Fail;
use crate::worker::job::Enqueue;
use crate::worker::shop::{Live, Shop, Why, locked};
use crate::worker::slots::Slot;
use crate::worker::voice::Voice;

/// Shared application state, by type.
pub(crate) type States = Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>;

/// A read of what an attempt's step comes after.
type Load = Shared<Loading>;
type WeakLoad = WeakShared<Loading>;
type Loading = BoxFuture<'static, tidemill_store::Result<()>>;

/// Whether an attempt is settled in a transaction of its handler's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Settling {
    /// Not yet.
    #[default]
    Open,
    /// Its handler asked for it; the store knows whether that was committed.
    Asked,
    /// It has ended; nobody may ask for it any more.
    Over,
}

/// One attempt of one job. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>, Option<Arc<str>>);

struct Inner {
    boss: Boss,
    job: Arc<Body>,
    attempt: u16,
    token: Token,
    live: Live,
    /// Somebody waits to be told of that.
    listens: AtomicBool,
    states: States,
    follow_ups: Mutex<Vec<NewJob>>,
    settling: Mutex<Settling>,
    inputs: Arc<OnceLock<Vec<Input>>>,
    loading: Mutex<Option<WeakLoad>>,
    /// When the store gave it away.
    claimed_at: Heard,
    run: Run,
    voice: Arc<Voice>,
    /// What is not to be seen of the payload, once it was asked for.
    secrets: OnceLock<Secrets>,
    /// Held until the last clone is gone, so that a thread that cannot be stopped keeps its slot.
    _slot: Slot,
}

impl Context {
    pub(crate) fn new(
        shop: &Shop,
        claimed: &ClaimedJob,
        claimed_at: Heard,
        live: &Live,
        slot: Slot,
    ) -> Self {
        let ClaimedJob { job, attempt, has_run, .. } = claimed;
        let run = if *has_run { Run::default() } else { Run::fresh() };
        let voice = Voice::new(Arc::clone(&shop.scribe), job.id, live.token, shop.worker());
        let (boss, states) = (shop.boss.clone(), Arc::clone(&shop.states));
        Self::of(boss, (Arc::clone(job), *attempt), claimed_at, live, states, slot, (run, voice))
    }

    /// An attempt that follows what was recorded, at the moment when that was.
    pub(crate) fn recorded(
        boss: Boss,
        history: &History,
        live: &Live,
        states: States,
        slot: Slot,
    ) -> Self {
        let journal = history.journal.iter().map(|of| (of.number, of.entry.clone()));
        let run = Run::recorded(journal, history.mail.iter().cloned(), copied(&history.job));
        let job = (Arc::new(history.job.clone()), history.attempt);
        let voice = Voice::mute(history.job.id, live.token);
        let cx = Self::of(boss, job, Heard::now(history.at), live, states, slot, (run, voice));
        let _ = cx.0.inputs.set(history.inputs.clone());
        cx
    }

    fn of(
        boss: Boss,
        (job, attempt): (Arc<Body>, u16),
        claimed_at: Heard,
        live: &Live,
        states: States,
        slot: Slot,
        (run, voice): (Run, Voice),
    ) -> Self {
        let inner = Inner {
            boss,
            job,
            attempt,
            token: live.token,
            live: live.clone(),
            listens: AtomicBool::new(false),
            states,
            follow_ups: Mutex::default(),
            settling: Mutex::default(),
            inputs: Arc::default(),
            loading: Mutex::default(),
            claimed_at,
            run,
            voice: Arc::new(voice),
            secrets: OnceLock::new(),
            _slot: slot,
        };
        Self(Arc::new(inner), None)
    }

    /// What is said, without what is not to be seen of the payload. A boss elsewhere sees to that itself.
    pub(crate) fn shown(&self, said: Said) -> Said {
        match self.secrets() {
            Some(secrets) => said.without(secrets),
            None => said,
        }
    }

    /// The same for what a step says of its failure.
    pub(crate) fn shown_text(&self, mut text: String) -> String {
        self.secrets().inspect(|secrets| secrets.hide_in(&mut text));
        text
    }

    fn secrets(&self) -> Option<&Secrets> {
        let Boss::Here(mill) = &self.0.boss else { return None };
        let read = || mill.hidden().secrets(self.0.job.payload.as_str());
        (!mill.hidden().is_empty()).then(|| self.0.secrets.get_or_init(read))
    }

    /// The same, within a scope.
    pub(crate) fn within(&self, scope: &str) -> Self {
        Self(Arc::clone(&self.0), Some(Arc::from(scope)))
    }

    pub(crate) fn path(&self) -> &str {
        self.1.as_deref().unwrap_or_default()
    }

    /// The store's present, as well as this process knows it: sleeps and deadlines are judged by that clock.
    pub(crate) fn present(&self) -> Timestamp {
        if self.0.run.is_recorded() {
            return self.0.claimed_at.at();
        }
        self.0.claimed_at.present(self.0.boss.clock())
    }

    pub(crate) fn voice(&self) -> &Arc<Voice> {
        &self.0.voice
    }

    pub(crate) fn run(&self) -> &Run {
        &self.0.run
    }

    /// The job's id.
    pub fn id(&self) -> JobId {
        self.0.job.id
    }

    /// The job as it was enqueued.
    pub fn job(&self) -> &Body {
        &self.0.job
    }

    pub(crate) fn body(&self) -> &Arc<Body> {
        &self.0.job
    }

    /// The number of this attempt; the first is 1.
    pub fn attempt(&self) -> u16 {
        self.0.attempt
    }

    /// The number that proves this attempt's lease; larger at every claim. Hand it to systems that
    /// can refuse an older one.
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// The same for all attempts of this job: hand it to services that take an idempotency key.
    pub fn idempotency_key(&self) -> String {
        self.0.job.id.to_string()
    }

    /// Whether this job's work was done before, by a mark in a transaction of the handler's own database. Who comes
    /// second, at the same time, waits for the end of the first transaction. See [`effect`](crate::effect).
    pub async fn effect_in<'t, T: DeserializeOwned>(
        &self,
        target: impl Target<'t>,
    ) -> Result<Effect<T>> {
        self.effect_named_in(target, "").await
    }

    /// The same for one of several effects of a job, each with a name of its own.
    pub async fn effect_named_in<'t, T: DeserializeOwned>(
        &self,
        target: impl Target<'t>,
        name: &str,
    ) -> Result<Effect<T>> {
        let (mark, ask) = effect::take(self.id(), &self.idempotency_key(), name);
        effect::taken(self.id(), mark, target.ask(ask).await)
    }

    /// The same by rusqlite. Begin the transaction with `BEGIN IMMEDIATE`.
    #[cfg(feature = "sqlite")]
    pub fn effect_in_rusqlite<T: DeserializeOwned>(
        &self,
        connection: &Connection,
        name: &str,
    ) -> Result<Effect<T>> {
        let (mark, ask) = effect::take(self.id(), &self.idempotency_key(), name);
        let answer = tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &ask);
        effect::taken(self.id(), mark, answer)
    }

    /// Settles this job as done in a transaction of the handler's, on the store's own database: both commit, or
    /// neither. Call it last, then commit and return. What follows must have been said before. Refused with
    /// `lease_lost` when the attempt is over: then roll back.
    ///
    /// Whatever the handler returns after the commit, and if its process dies right after it, the job is done.
    pub async fn settle_in<'t, T: Serialize + ?Sized>(
        &self,
        target: impl Target<'t>,
        output: &T,
    ) -> Result<()> {
        let mill = self.0.boss.same_store(target.backend())?;
        let ask = self.decide(mill, output)?;
        self.decided(&target.ask(ask).await?)
    }

    /// The same by rusqlite. Begin the transaction with `BEGIN IMMEDIATE`.
    #[cfg(feature = "sqlite")]
    pub fn settle_in_rusqlite<T: Serialize + ?Sized>(
        &self,
        connection: &Connection,
        output: &T,
    ) -> Result<()> {
        let mill = self.0.boss.same_store("sqlite")?;
        let ask = self.decide(mill, output)?;
        self.decided(&tidemill_store::sqlite::adapter::ask_in_rusqlite(connection, &ask)?)
    }

    /// From here on the store is asked how the attempt ended.
    fn decide<T: Serialize + ?Sized>(&self, mill: &Tidemill, output: &T) -> Result<Ask> {
        let mut output = Payload::of(output, &Limits::default())?;
        let keys = &mill.0.keys;
        keys.hide(What::Output, Some(self.id()), &mut output)?;
        let mut settling = locked(&self.0.settling);
        if *settling == Settling::Over {
            return Err(Error::LeaseLost { id: self.id() });
        }
        if self.run().keeps() {
            return Err(Error::SettlesRun { id: self.id() });
        }
        *settling = Settling::Asked;
        let mut follow_ups = locked(&self.0.follow_ups).clone();
        keys.hide_jobs(&mut follow_ups)?;
        let follow_ups = decided::write(&follow_ups)?;
        let words = [self.id().to_string(), self.0.token.to_string(), output.as_str().to_owned()];
        let words = words.into_iter().map(Some).chain([follow_ups]).collect();
        Ok(Ask { question: Question::SettleIn, words })
    }

    fn decided(&self, answer: &Answer) -> Result<()> {
        if answer.is_empty() { Err(Error::LeaseLost { id: self.id() }) } else { Ok(()) }
    }

    /// Whether the attempt has ended.
    pub(crate) fn is_over(&self) -> bool {
        *locked(&self.0.settling) == Settling::Over
    }

    /// The attempt has ended; `true` if a transaction of its handler's may have settled it.
    pub(crate) fn end(&self) -> bool {
        std::mem::replace(&mut *locked(&self.0.settling), Settling::Over) == Settling::Asked
    }

    /// The library, on the store of this worker. Refused with `store_elsewhere` in a worker of a server.
    pub fn mill(&self) -> Result<&Tidemill> {
        self.0.boss.mill()
    }

    pub(crate) fn boss(&self) -> &Boss {
        &self.0.boss
    }

    /// Enqueues a job at once, whatever becomes of this attempt.
    pub async fn enqueue(&self, job: impl Into<Enqueue>) -> Result<Receipt> {
        let (boss, job): (_, Enqueue) = (self.0.boss.clone(), job.into());
        self.at_store(For::Room, async move { boss.enqueue(job).await }).await
    }

    /// State that was given to the worker with `state`.
    pub fn state<T: Send + Sync + 'static>(&self) -> std::result::Result<Arc<T>, Fail> {
        let found = self.0.states.get(&TypeId::of::<T>()).cloned();
        found.and_then(|any| any.downcast().ok()).ok_or_else(|| {
            let name = std::any::type_name::<T>();
            Fail::transient(format!("the worker has no state of type {name}; give it with state()"))
        })
    }

    /// Enqueues a job together with this attempt's success: both commit, or neither.
    pub fn follow_up(&self, job: impl Into<Enqueue>) -> Result<JobId> {
        let job = self.0.boss.checked(job.into())?;
        let id = job.id;
        self.follow([job])?;
        Ok(id)
    }

    /// Adds a step of these jobs to this job's flow, together with its success: both commit, or neither. The step
    /// starts at once, and what comes after this job's step comes after it too. If the name is taken, it gets a number.
    ///
    /// In a saga before its point of no return it is refused, because the step would not say how it is undone: see
    /// [`fan_out_nothing_to_undo`](Self::fan_out_nothing_to_undo).
    pub fn fan_out<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<JobId>> {
        self.grow(step, jobs, false)
    }

    /// The same, of jobs that leave nothing behind which would have to be undone, or of which the undo of this job's
    /// step takes care.
    pub fn fan_out_nothing_to_undo<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
    ) -> Result<Vec<JobId>> {
        self.grow(step, jobs, true)
    }

    fn grow<E: Into<Enqueue>>(
        &self,
        step: &str,
        jobs: impl IntoIterator<Item = E>,
        nothing_to_undo: bool,
    ) -> Result<Vec<JobId>> {
        let Some(place) = self.0.job.options.flow.as_deref() else {
            let reason = "this job is in no flow; start one, or let jobs follow up".to_owned();
            return Err(Invalid::FlowInvalid { step: step.to_owned(), reason }.into());
        };
        let jobs = self.0.boss.checked_jobs(step, jobs)?;
        let growth = Growth { behind: place, name: step, nothing_to_undo };
        let jobs = jobs.into_iter().map(|job| Ok(plan::grow(job, growth)?));
        let jobs: Vec<NewJob> = jobs.collect::<Result<_>>()?;
        let ids = jobs.iter().map(|job| job.id).collect();
        self.follow(jobs)?;
        Ok(ids)
    }

    /// Notes what follows, unless it is too late for that.
    fn follow(&self, jobs: impl IntoIterator<Item = NewJob>) -> Result<()> {
        if *locked(&self.0.settling) != Settling::Open {
            return Err(Error::SettledBefore { id: self.id() });
        }
        locked(&self.0.follow_ups).extend(jobs);
        Ok(())
    }

    /// What the steps that this job's step comes after are, and what they returned: small outputs are in there,
    /// large ones are asked for with [`output_of`](Self::output_of). Empty outside of flows.
    pub async fn inputs(&self) -> std::result::Result<&[Input], Fail> {
        if self.0.inputs.get().is_none() {
            let loaded = self.at_store_with(For::Answer, self.load_inputs()).await;
            loaded.map_err(|e| Fail::transient(e.to_string()))?;
        }
        Ok(self.0.inputs.get().map(Vec::as_slice).unwrap_or_default())
    }

    /// One call for all who ask meanwhile.
    fn load_inputs(&self) -> Load {
        let mut loading = locked(&self.0.loading);
        let under_way = loading.as_ref().and_then(WeakShared::upgrade);
        if let Some(load) = under_way.filter(|load| load.peek().is_none()) {
            return load;
        }
        let (boss, job) = (self.0.boss.clone(), Arc::clone(&self.0.job));
        let inputs = Arc::clone(&self.0.inputs);
        let load = async move {
            let found = boss.inputs(&job).await?;
            inputs.get_or_init(|| found);
            Ok(())
        };
        let load = load.boxed().shared();
        *loading = load.downgrade();
        load
    }

    /// What the job of a step that this one comes after returned.
    pub async fn output_of<T: DeserializeOwned>(&self, step: &str) -> std::result::Result<T, Fail> {
        let input = self.input(step).await?;
        let output = match &input.output {
            Some(output) => output.clone(),
            None => self.large_output(input).await?,
        };
        let unreadable =
            |e| Fail::permanent(format!("the output of {step} is not as expected: {e}"));
        output.read().map_err(unreadable)
    }

    /// A page of what the jobs of a step that this one comes after returned, by id, at most 1,000; the next page is
    /// after the last of it. A job that is dead or was called off has no output.
    pub async fn outputs_of(
        &self,
        step: &str,
        after: Option<JobId>,
    ) -> std::result::Result<Vec<Output>, Fail> {
        let input = self.input(step).await?;
        let (boss, job, input) = (self.0.boss.clone(), Arc::clone(&self.0.job), input.clone());
        let call = async move { boss.outputs(&job, &input, after).await };
        let outputs = self.at_store(For::Answer, call).await;
        outputs.map_err(|e| Fail::transient(e.to_string()))
    }

    async fn input(&self, step: &str) -> std::result::Result<&Input, Fail> {
        let found = self.inputs().await?.iter().find(|input| input.step == step);
        found
            .ok_or_else(|| Fail::permanent(format!("this job does not come after a step {step:?}")))
    }

    async fn large_output(&self, input: &Input) -> std::result::Result<Payload, Fail> {
        if input.jobs != 1 {
            let what =
                format!("the step {:?} has {} jobs; read outputs_of", input.step, input.jobs);
            return Err(Fail::permanent(what));
        }
        let outputs = self.outputs_of(&input.step, None).await?;
        let output = outputs.into_iter().next().and_then(|one| one.output);
        output.ok_or_else(|| {
            let word = input.state.word();
            Fail::permanent(format!("the step {:?} is {word}: it has no output", input.step))
        })
    }

    /// Whether the job was called off, timed out, or the worker stops.
    pub fn is_cancelled(&self) -> bool {
        self.0.live.cancel.is_cancelled()
    }

    /// Whether it is told to end because its worker stops, or cannot reach the store: then the job is given back, and
    /// no attempt is spent, whatever error it ends with.
    pub fn is_given_back(&self) -> bool {
        matches!(self.0.live.why(), Some(Why::Stopping | Why::CutOff))
    }

    /// Completes when the job was called off, is over its time, or the worker stops. A handler that waits for this
    /// has a [grace](crate::Worker::cancel_grace) to end in order; one that does not is dropped where it stands when
    /// its time is over.
    pub async fn cancelled(&self) {
        self.0.listens.store(true, Ordering::Relaxed);
        self.0.live.cancel.cancelled().await;
    }

    /// Whether the handler has asked to be told when it is to end.
    pub(crate) fn listens(&self) -> bool {
        self.0.listens.load(Ordering::Relaxed)
    }

    pub(crate) fn take_follow_ups(&self) -> Vec<NewJob> {
        std::mem::take(&mut locked(&self.0.follow_ups))
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id())
            .field("kind", &self.0.job.kind)
            .field("attempt", &self.0.attempt)
            .field("token", &self.0.token)
            .finish_non_exhaustive()
    }
}
