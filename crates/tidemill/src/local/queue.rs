//! What people call.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::local::builder::{Builder, check_concurrency, check_rate};
use crate::local::counts::Counts;
use crate::local::error::Error;
use crate::local::handle::Handle;
use crate::local::page::Measured;
use crate::local::shared::Shared;
use crate::local::state::State;
use crate::local::task::Task;

/// A bounded queue of futures in this process, with a cap on how many run at once and on how many
/// start in a window of time. A clone is the same queue. See the [module](crate::local).
///
/// When the last clone is dropped, what waits still runs; if the queue is paused, nobody could resume
/// it, and what waits is called off.
#[derive(Clone)]
pub struct Queue(Arc<Owner>);

/// What all clones share; gone with the last of them.
struct Owner(Arc<Shared>);

impl Queue {
    /// A queue with other rules than the default ones.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self(Arc::new(Owner(shared)))
    }

    /// Runs a task when its turn comes, and gives its answer. Waits for room when the queue is full.
    /// Dropping the future calls the task off.
    pub async fn run<F>(&self, task: F) -> Result<F::Output, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.task().run(task).await
    }

    /// As `run`, for a task that can fail: its error is the caller's, and is counted as failed.
    ///
    /// ```
    /// # type Problem = Box<dyn std::error::Error + Send + Sync>;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Problem> {
    /// # let queue = tidemill::local::Queue::builder().build()?;
    /// let page: u16 = queue.attempt(async { Ok::<_, Problem>("404".parse()?) }).await?;
    /// assert_eq!(page, 404);
    /// # Ok(()) }
    /// ```
    pub async fn attempt<F, T, E>(&self, task: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.task().attempt(task).await
    }

    /// Puts a task in line, and returns once it stands there. Waits for room when the queue is full.
    pub async fn push<F>(&self, task: F) -> Result<Handle<F::Output>, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.task().push(task).await
    }

    /// Puts a task in line, or says at once why not: [`Error::Full`] or [`Error::Closed`].
    pub fn try_push<F>(&self, task: F) -> Result<Handle<F::Output>, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.task().try_push(task)
    }

    /// A task with wishes of its own: priority, timeout, what a drop does.
    pub fn task(&self) -> Task<'_> {
        Task::new(&self.0.0)
    }

    /// Starts no more tasks; those that run go on.
    pub fn pause(&self) {
        self.0.0.change(|state, _| state.paused = true);
    }

    /// Starts tasks again.
    pub fn resume(&self) {
        self.0.0.change(|state, _| state.paused = false);
    }

    /// Changes how many tasks may run at once. With fewer, none that runs is called off: the next
    /// ones wait.
    pub fn set_concurrency(&self, concurrency: usize) -> Result<(), Error> {
        check_concurrency(concurrency)?;
        self.0.0.change(|state, _| state.concurrency = concurrency);
        Ok(())
    }

    /// Changes how many tasks may start in a window. Starts that the old rate remembers count; those
    /// from before there was one do not.
    pub fn set_rate(&self, starts_max: u32, window: Duration) -> Result<(), Error> {
        let rate = check_rate(starts_max, window)?;
        self.0.0.change(|state, _| state.set_rate(Some(rate)));
        Ok(())
    }

    /// Removes the rate: only the concurrency holds tasks back.
    pub fn remove_rate(&self) {
        self.0.0.change(|state, _| state.set_rate(None));
    }

    /// How many tasks wait.
    pub fn size(&self) -> usize {
        self.0.0.look(State::queued)
    }

    /// Everything the queue has counted, of one moment.
    pub fn counts(&self) -> Counts {
        self.0.0.look(State::counts)
    }

    /// What it has counted, and how long tasks waited and ran, of one moment.
    pub(super) fn measured(&self) -> Measured {
        self.0.0.look(State::measured)
    }

    /// Resolves when fewer than `n` tasks wait: the low mark at which a producer goes on. `n` is at
    /// least 1.
    pub async fn on_size_below(&self, n: usize) {
        let mark = n.max(1);
        let below = self.0.0.change(|state, _| {
            let waits = state.queued() >= mark;
            waits.then(|| state.watch.below(mark))
        });
        if let Some(below) = below {
            // The queue outlives this future, so the other end is not dropped before it is told.
            let _ = below.await;
        }
    }

    /// Resolves when nothing waits and nothing runs.
    pub async fn on_idle(&self) {
        let idle = self.0.0.change(|state, _| {
            let busy = !state.is_idle();
            busy.then(|| state.watch.idle())
        });
        if let Some(idle) = idle {
            // As above.
            let _ = idle.await;
        }
    }

    /// Calls off all tasks that wait; how many there were.
    pub fn clear(&self) -> usize {
        self.0.0.clear()
    }

    /// Takes no more tasks, from now on, and resolves when those it has are over. A paused queue has
    /// to be resumed for that.
    pub fn close(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.0.change(|state, _| state.close());
        self.on_idle()
    }

    /// Takes no more tasks, calls off those that wait and those that run, and resolves when the last
    /// one has let go.
    pub fn stop(&self) -> impl Future<Output = ()> + Send + '_ {
        self.0.0.abandon_if(|_| true);
        for entry in self.0.0.look(State::all_running) {
            entry.interrupt();
        }
        self.on_idle()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.abandon_if(|state| state.paused);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
