//! How one task is to be treated, where it differs from the others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidemill_core::Priority;

use crate::local::builder::{OnDrop, to_ns};
use crate::local::cell::Cell;
use crate::local::entry::{AnyAnswer, Entry, Fallible, Judge};
use crate::local::error::Error;
use crate::local::handle::Handle;
use crate::local::shared::Shared;

/// The wishes of one task, from [`Queue::task`](crate::local::Queue::task).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidemill::local::Error> {
/// use std::time::Duration;
/// use tidemill::{Priority, local::Queue};
/// let queue = Queue::builder().concurrency(2).build()?;
/// let urgent = queue.task().priority(Priority::Urgent).timeout(Duration::from_secs(3));
/// assert_eq!(urgent.run(async { 6 * 7 }).await?, 42);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "wishes do nothing without a task: run, attempt, push or try_push one"]
pub struct Task<'q> {
    shared: &'q Arc<Shared>,
    priority: Priority,
    limit_ns: u64,
    on_drop: OnDrop,
}

impl<'q> Task<'q> {
    pub(super) fn new(shared: &'q Arc<Shared>) -> Self {
        let (limit_ns, on_drop) = (shared.limit_ns, shared.on_drop);
        Self { shared, priority: Priority::default(), limit_ns, on_drop }
    }

    /// Its band. Defaults to `normal`.
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// How long it may run, not counting its wait. Defaults to the queue's.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { limit_ns: to_ns(timeout), ..self }
    }

    /// What happens to it when it runs and its handle is dropped. Defaults to the queue's.
    pub fn on_drop(self, on_drop: OnDrop) -> Self {
        Self { on_drop, ..self }
    }

    /// As [`Queue::run`](crate::local::Queue::run).
    pub async fn run<F>(self, task: F) -> Result<F::Output, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.push_judged::<F, AnyAnswer>(task).await?.await
    }

    /// As [`Queue::attempt`](crate::local::Queue::attempt).
    pub async fn attempt<F, T, E>(self, task: F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        self.push_judged::<F, Fallible>(task).await?.await?
    }

    /// As [`Queue::push`](crate::local::Queue::push).
    pub async fn push<F>(self, task: F) -> Result<Handle<F::Output>, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.push_judged::<F, AnyAnswer>(task).await
    }

    /// As [`Queue::try_push`](crate::local::Queue::try_push).
    pub fn try_push<F>(self, task: F) -> Result<Handle<F::Output>, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let cell = Cell::<F, AnyAnswer>::new(task, self.priority, self.limit_ns);
        let entry: Entry = cell.clone();
        self.shared.try_push(&entry)?;
        Ok(Handle::new(cell, self.shared.clone(), self.on_drop))
    }

    async fn push_judged<F, J>(self, task: F) -> Result<Handle<F::Output>, Error>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
        J: Judge<F::Output> + 'static,
    {
        let cell = Cell::<F, J>::new(task, self.priority, self.limit_ns);
        self.shared.push(cell.clone()).await?;
        Ok(Handle::new(cell, self.shared.clone(), self.on_drop))
    }
}
