//! One task: its future, then its answer, and who wants to know.
//!
//! A single allocation that the line and the handle share, since a queue is judged by what a waiting
//! task costs. The future stands in it unpolled, moves out when the task starts, and leaves its
//! place to the answer.
//!
//! Its lock is never held while the queue's is taken, nor while a stranger's code runs: futures,
//! answers and wakers are dropped and called outside.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidemill_core::Priority;

use crate::local::counts::Ended;
use crate::local::entry::{FOREVER_NS, Head, Join, Judge, Run, Work};
use crate::local::error::Error;

enum Stage<F, T> {
    /// Not polled yet.
    Ready(F),
    /// On its way; whom to wake to interrupt it.
    Running(Option<Waker>),
    Interrupted,
    Ended(Result<T, Error>),
    /// The answer was taken or is not wanted.
    Empty,
}

struct Inner<F, T> {
    stage: Stage<F, T>,
    asker: Option<Waker>,
    /// Whether somebody may ask.
    wanted: bool,
    /// Whether the queue has counted the end, so that the answer may be given.
    shown: bool,
}

impl<F, T> Inner<F, T> {
    fn new(task: F) -> Self {
        Self { stage: Stage::Ready(task), asker: None, wanted: true, shown: false }
    }

    /// Looks before it moves: a future that waits can be large.
    fn take_answer(&mut self) -> Option<Result<T, Error>> {
        if !matches!(self.stage, Stage::Ended(_)) {
            return None;
        }
        match std::mem::replace(&mut self.stage, Stage::Empty) {
            Stage::Ended(answer) => Some(answer),
            _ => None,
        }
    }
}

pub(super) struct Cell<F: Future, J> {
    inner: Mutex<Inner<F, F::Output>>,
    head: Head,
    limit_ns: u64,
    judge: PhantomData<J>,
}

impl<F, J> Cell<F, J>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    J: Judge<F::Output> + 'static,
{
    pub(super) fn new(task: F, priority: Priority, limit_ns: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner::new(task)),
            head: Head::new(priority),
            limit_ns,
            judge: PhantomData,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner<F, F::Output>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the stage and drops what was there outside the lock: it may be a stranger's.
    fn change(&self, stage: Stage<F, F::Output>) -> Stage<F, F::Output> {
        std::mem::replace(&mut self.lock().stage, stage)
    }

    fn begin(&self) -> Option<F> {
        let mut inner = self.lock();
        if !matches!(inner.stage, Stage::Ready(_)) {
            return None;
        }
        match std::mem::replace(&mut inner.stage, Stage::Running(None)) {
            Stage::Ready(task) => Some(task),
            _ => None,
        }
    }

    /// Polls the task until it ends or is interrupted; drops it before it returns.
    async fn drive(&self, task: F) -> Result<F::Output, Error> {
        let mut task = pin!(task);
        let mut first = true;
        poll_fn(|cx| {
            if !first && self.is_interrupted(cx.waker()) {
                return Poll::Ready(Err(Error::Cancelled));
            }
            let polled = task.as_mut().poll(cx).map(Ok);
            // A task that is ready at once needs nobody who could wake it.
            if std::mem::take(&mut first) && polled.is_pending() && self.is_interrupted(cx.waker())
            {
                return Poll::Ready(Err(Error::Cancelled));
            }
            polled
        })
        .await
    }

    /// Whether it is to end; if not, whom to wake when it is.
    fn is_interrupted(&self, waker: &Waker) -> bool {
        match &mut self.lock().stage {
            Stage::Running(Some(known)) => {
                known.clone_from(waker);
                false
            }
            Stage::Running(none) => {
                *none = Some(waker.clone());
                false
            }
            _ => true,
        }
    }

    async fn drive_within(&self, task: F, limit: Duration) -> Result<F::Output, Error> {
        let driven = tokio::time::timeout(limit, self.drive(task)).await;
        driven.unwrap_or(Err(Error::TimedOut { limit }))
    }

    fn ended(&self, answer: Result<F::Output, Error>) -> Ended {
        let ended = match &answer {
            Ok(answer) if J::failed(answer) => Ended::Failed,
            Ok(_) => Ended::Done,
            Err(Error::TimedOut { .. }) => Ended::TimedOut,
            Err(_) => Ended::Cancelled,
        };
        self.keep(answer);
        ended
    }

    fn keep(&self, answer: Result<F::Output, Error>) {
        let mut inner = self.lock();
        if inner.wanted {
            inner.stage = Stage::Ended(answer);
        } else {
            inner.stage = Stage::Empty;
            drop(inner);
            drop(answer);
        }
    }
}

impl<F, J> Run for Cell<F, J>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    J: Judge<F::Output> + 'static,
{
    fn head(&self) -> &Head {
        &self.head
    }

    fn work(self: Arc<Self>) -> Work {
        let Some(task) = self.begin() else {
            return Box::pin(async move {
                self.keep(Err(Error::Cancelled));
                Ended::Cancelled
            });
        };
        if self.limit_ns == FOREVER_NS {
            Box::pin(async move {
                let answer = self.drive(task).await;
                self.ended(answer)
            })
        } else {
            let limit = Duration::from_nanos(self.limit_ns);
            Box::pin(async move {
                let answer = self.drive_within(task, limit).await;
                self.ended(answer)
            })
        }
    }

    fn fail(&self, error: Error) {
        // The future, where it is still here, may panic in its destructor; one failure is enough.
        let stage = self.change(Stage::Empty);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(stage)));
        self.keep(Err(error));
    }

    fn publish(&self) {
        let mut inner = self.lock();
        inner.shown = true;
        let asker = inner.asker.take();
        drop(inner);
        if let Some(asker) = asker {
            asker.wake();
        }
    }

    fn interrupt(&self) {
        let mut inner = self.lock();
        if !matches!(inner.stage, Stage::Ready(_) | Stage::Running(_)) {
            return;
        }
        let stage = std::mem::replace(&mut inner.stage, Stage::Interrupted);
        drop(inner);
        if let Stage::Running(Some(waker)) = stage {
            waker.wake();
        }
    }
}

impl<F, J> Join<F::Output> for Cell<F, J>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    J: Judge<F::Output> + 'static,
{
    fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<Result<F::Output, Error>> {
        let mut inner = self.lock();
        if inner.shown
            && let Some(answer) = inner.take_answer()
        {
            return Poll::Ready(answer);
        }
        match &mut inner.asker {
            Some(asker) => asker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn forget(&self) {
        let mut inner = self.lock();
        inner.wanted = false;
        let unwanted = (inner.asker.take(), inner.take_answer());
        drop(inner);
        drop(unwanted);
    }
}
