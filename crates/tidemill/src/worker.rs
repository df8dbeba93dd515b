//! The hands: a worker claims jobs, runs their handlers and settles what came of them.
//!
//! A worker asks only for what it has slots for, free or about to be, beats for itself and not for each
//! job, and stops without losing anything. It refuses to take kinds it does not know.

pub(crate) mod boss;
pub mod broker;
pub mod context;
mod dispatch;
pub mod durable;
pub(crate) mod execute;
pub mod fail;
mod guarded;
pub mod job;
mod lease;
pub mod middleware;
pub(crate) mod options;
pub(crate) mod registry;
pub mod replay;
mod reporter;
mod scribe;
pub(crate) mod settler;
mod shelf;
pub(crate) mod shop;
mod slots;
pub mod stop;
pub mod undo;
mod voice;
pub(crate) mod wire;
pub(crate) mod wish;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::{Payload, WorkerId};

use crate::engine::Tidemill;
use crate::engine::rules::look;
use crate::engine::work::LEASE_TTL_MAX;
use crate::engine::workflow::unlock::unlock;
use crate::error::{Error, Result};
use boss::Boss;
use broker::Broker;
use context::Context;
use fail::Fail;
use job::{Job, Settings};
use middleware::{Attempted, Middleware};
use options::{Dedicated, Options};
use registry::Registry;
use shop::Shop;
use stop::{Bound, Loops, Stop};

/// A set of handlers, before it runs.
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use tidemill::{Job, Tidemill};
/// # #[derive(Serialize, Deserialize)] struct Greet { name: String }
/// # impl Job for Greet { const KIND: &'static str = "greet"; type Output = String; }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
/// let mill = Tidemill::open("sqlite::memory:").await?;
/// let worker = mill
///     .worker()
///     .slots(20)
///     .handle(|job: Greet, _cx| async move { Ok(format!("Hello, {}!", job.name)) })
///     .start()
///     .await?;
/// let receipt = mill.enqueue(Greet { name: "Ada".into() }).await?;
/// let greeting = mill.result::<Greet>(receipt.id(), std::time::Duration::from_secs(10)).await?;
/// assert_eq!(greeting, "Hello, Ada!");
/// worker.stop().await;
/// # Ok(()) }
/// ```
pub struct Worker {
    boss: Boss,
    registry: Registry,
    states: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    hooks: Vec<Arc<dyn Middleware>>,
    options: Options,
    wrong: Option<Error>,
}

impl Worker {
    pub(crate) fn new(mill: Tidemill) -> Self {
        Self::of(Boss::Here(mill))
    }

    /// A worker whose work is given by somebody elsewhere, such as a server: the same handlers, built in the same way.
    pub fn elsewhere(broker: Arc<dyn Broker>) -> Self {
        Self::of(Boss::elsewhere(broker))
    }

    fn of(boss: Boss) -> Self {
        Self {
            boss,
            registry: Registry::default(),
            states: HashMap::new(),
            hooks: Vec::new(),
            options: Options::default(),
            wrong: None,
        }
    }

    /// A handler for a kind.
    #[must_use]
    pub fn handle<J, F, Fut>(self, handler: F) -> Self
    where
        J: Job,
        F: Fn(J, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<J::Output, Fail>> + Send + 'static,
    {
        self.add(J::KIND, registry::typed(handler))
    }

    /// A handler that keeps a thread busy: it runs on a thread of its own, outside the runtime's.
    #[must_use]
    pub fn handle_blocking<J, F>(self, handler: F) -> Self
    where
        J: Job,
        F: Fn(J, Context) -> std::result::Result<J::Output, Fail> + Send + Sync + 'static,
    {
        self.add(J::KIND, registry::blocking(handler))
    }

    /// A handler of JSON, for a kind without a type.
    #[must_use]
    pub fn handle_raw<F, Fut>(self, kind: &str, settings: Settings, handler: F) -> Self
    where
        F: Fn(Payload, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Attempted> + Send + 'static,
    {
        self.add(kind, registry::raw(settings, handler))
    }

    fn add(mut self, kind: &str, handler: registry::Handler) -> Self {
        if let Err(error) = self.registry.add(kind, handler) {
            self.wrong.get_or_insert(error);
        }
        self
    }

    /// State that handlers get with [`Context::state`].
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        self.states.insert(TypeId::of::<T>(), Arc::new(state));
        self
    }

    /// A hook around every attempt; the first added is the outermost.
    #[must_use]
    pub fn middleware(mut self, hook: impl Middleware) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// The queues to take from; `mail:*` means all whose names begin so, also those that come later.
    /// Defaults to those of the kinds it knows.
    #[must_use]
    pub fn queues<S: Into<String>>(mut self, queues: impl IntoIterator<Item = S>) -> Self {
        self.options.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// How many jobs run at once, besides those with [`dedicated`](Self::dedicated) slots. Defaults to 100.
    #[must_use]
    pub fn slots(mut self, slots: usize) -> Self {
        self.options.slots = slots.max(1);
        self
    }

    /// Slots that only the jobs of this queue may take, besides the shared ones, which it then does
    /// not use: critical work has its own capacity, and takes none from the rest. No other pattern may mean it.
    #[must_use]
    pub fn dedicated(mut self, queue: impl Into<String>, slots: usize) -> Self {
        let (queue, slots) = (queue.into(), slots.max(1));
        self.options.dedicated.retain(|own| own.queue != queue);
        self.options.dedicated.push(Dedicated { queue, slots, overflows: false });
        self
    }

    /// Like [`dedicated`](Self::dedicated), but its jobs may take shared slots too when their own are taken. A wider
    /// pattern of those that share may mean it.
    #[must_use]
    pub fn dedicated_with_overflow(self, queue: impl Into<String>, slots: usize) -> Self {
        let mut worker = self.dedicated(queue, slots);
        if let Some(own) = worker.options.dedicated.last_mut() {
            own.overflows = true;
        }
        worker
    }

    /// A name for people. Defaults to host and process.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// How long one attempt may run where neither job nor kind says. Defaults to an hour.
    #[must_use]
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.options.run_timeout = timeout;
        self
    }

    /// How long a handler that was told to end ([`Context::cancelled`]) may take for it. Defaults to 5 s.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.options.cancel_grace = grace;
        self
    }

    /// How long after its last heartbeat this worker is given up. Defaults to 6 s, and is at most an hour; it beats
    /// three times as often.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl = ttl.min(LEASE_TTL_MAX);
        self
    }

    /// How often a job may lose its worker before it is dead: a job that kills every worker must not
    /// run for ever. Defaults to 3.
    #[must_use]
    pub fn lost_max(mut self, lost_max: u16) -> Self {
        self.options.lost_max = lost_max.max(1);
        self
    }

    /// The version of the code that this worker runs. Runs of workflows that begin here remember it.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.options.version = version.into();
        self
    }

    /// Its attempts are of jobs that are in no store, in a test.
    pub(crate) fn inline(mut self) -> Self {
        self.options.is_inline = true;
        self
    }

    /// Where its process dies, in a test.
    pub(crate) fn crash(mut self, crash: crate::testing::Crash) -> Self {
        self.options.crash = Some(crash);
        self
    }

    /// How a stop proceeds. Defaults to [`Stop::default`].
    #[must_use]
    pub fn stop_as(mut self, stop: Stop) -> Self {
        self.options.stop = stop;
        self
    }

    /// Starts it in the background. A process that was asked to replay does not work: this answers
    /// `replayed_only` then.
    pub async fn start(self) -> Result<Running> {
        if let Some(which) = replay::asked::which()? {
            replay::asked::answer(self, &which).await?;
            return Err(Error::ReplayedOnly);
        }
        let shop = self.into_shop()?;
        if let Boss::Here(mill) = &shop.boss {
            look(mill).await?;
        }
        shop.register().await?;
        if let Boss::Here(mill) = &shop.boss {
            unlock(mill, shop.registry.kinds());
        }
        let id = shop.worker();
        tracing::info!(worker = %id, queues = ?shop.options.queues, "a worker started");
        Ok(Running { loops: Loops::start(shop) })
    }

    /// Runs it until SIGTERM or Ctrl-C, then stops it gracefully. With `TIDEMILL_REPLAY` in its environment it says
    /// what would become of runs under way instead, and returns.
    ///
    /// Dropped before that, as by a `select!`, it stops as gracefully, in the background. A worker that is to run on
    /// has [`start`](Self::start).
    pub async fn run(self) -> Result<()> {
        let signals = stop::Signals::listen();
        self.run_until(signals.first()).await
    }

    async fn run_until(self, told: impl Future<Output = ()>) -> Result<()> {
        let loops = match self.start().await {
            Err(Error::ReplayedOnly) => return Ok(()),
            started => Bound::new(started?.loops),
        };
        told.await;
        tracing::info!("stopping: no new jobs are taken, running ones may finish");
        loops.stop().await;
        Ok(())
    }

    pub(crate) fn into_shop(mut self) -> Result<Arc<Shop>> {
        if let Some(error) = self.wrong.take() {
            return Err(error);
        }
        if self.options.queues.is_empty() {
            self.options.queues = self.registry.queues();
        }
        self.options.check()?;
        Ok(Shop::new(self.boss, self.registry, self.states, self.hooks, self.options))
    }
}

/// A worker that runs. Dropping it lets it run on, whole; [`stop`](Self::stop) ends it.
pub struct Running {
    loops: Loops,
}

impl Running {
    /// This run of the worker.
    pub fn id(&self) -> WorkerId {
        self.loops.shop().worker()
    }

    /// How many attempts run now.
    pub fn busy(&self) -> usize {
        self.loops.shop().used()
    }

    /// Stops gracefully: quiet, drain until a deadline, cancel, give back unspent. Once begun it goes on to its end,
    /// also when this is not waited for any longer.
    pub async fn stop(self) {
        self.loops.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::State;
    use tidemill_testkit::eventually::eventually;
    use tokio::sync::Notify;

    use super::*;
    use crate::worker::job::Enqueue;

    const SOON: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_worker_whose_run_is_dropped_stops_as_a_whole() -> Result<()> {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let started = Arc::new(Notify::new());
        let starts = Arc::clone(&started);
        let stop = Stop { drain: Duration::ZERO, grace: SOON };
        let handler = move |_: Payload, cx: Context| {
            let starts = Arc::clone(&starts);
            async move {
                starts.notify_one();
                cx.cancelled().await;
                Err(Fail::transient("told to end"))
            }
        };
        let worker = mill.worker().stop_as(stop).handle_raw("k", Settings::default(), handler);
        let id = mill.enqueue(Enqueue::raw("k", "1")).await?.id();
        tokio::select! {
            ended = worker.run_until(std::future::pending()) => ended?,
            () = started.notified() => {}
        }
        eventually("the worker signs off", SOON, async || {
            mill.workers().await.is_ok_and(|workers| workers.is_empty()).then_some(())
        })
        .await;
        let view = mill.job(id).await?.map(|view| (view.state, view.attempt));
        assert_eq!(view, Some((State::Ready, 0)), "it was given back");
        Ok(())
    }
}
