//! A task as the queue and its handle see it, its types forgotten.
//!
//! The queue knows where a task stands, can start it, interrupt it and say that it ended. What it
//! computes is the business of `cell.rs`.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tidemill_core::Priority;

use crate::local::bands::Waits;
use crate::local::counts::Ended;
use crate::local::error::Error;

/// A task on its way; it says how it ended.
pub(super) type Work = Pin<Box<dyn Future<Output = Ended> + Send>>;
/// A task as the queue sees it.
pub(super) type Entry = Arc<dyn Run>;

/// No limit on how long a task may run.
pub(super) const FOREVER_NS: u64 = u64::MAX;

const WAITS: u8 = 0;
const RUNS: u8 = 1;
const OVER: u8 = 2;

/// What the queue needs to know of a task without opening it. It is written and read under the
/// queue's lock, so that a task starts or is called off, never both.
#[derive(Debug)]
pub(super) struct Head {
    /// When it came or, once it runs, when it started.
    since_ns: AtomicU64,
    pub(super) priority: Priority,
    phase: AtomicU8,
}

impl Head {
    pub(super) fn new(priority: Priority) -> Self {
        Self { since_ns: AtomicU64::new(0), priority, phase: AtomicU8::new(WAITS) }
    }

    pub(super) fn waits(&self) -> bool {
        self.phase.load(Relaxed) == WAITS
    }

    /// It came at `now`.
    pub(super) fn arrive(&self, now: u64) {
        self.since_ns.store(now, Relaxed);
    }

    /// It starts at `now`; how long it waited.
    pub(super) fn start(&self, now: u64) -> u64 {
        self.phase.store(RUNS, Relaxed);
        now.saturating_sub(self.since_ns.swap(now, Relaxed))
    }

    /// How long it has waited or, once it runs, has run.
    pub(super) fn age_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.since_ns.load(Relaxed))
    }

    pub(super) fn end(&self) {
        self.phase.store(OVER, Relaxed);
    }
}

/// A task whose types are forgotten.
pub(super) trait Run: Send + Sync {
    fn head(&self) -> &Head;
    /// Takes the future out and runs it. The answer is kept until `publish`.
    fn work(self: Arc<Self>) -> Work;
    /// The answer, when `work` could not give one.
    fn fail(&self, error: Error);
    /// Shows the answer to whom it concerns; the queue has counted it.
    fn publish(&self);
    /// Makes a task that has started end at its next poll.
    fn interrupt(&self);
}

/// A task as its handle sees it.
pub(super) trait Join<T>: Run {
    fn poll_answer(&self, cx: &mut Context<'_>) -> Poll<Result<T, Error>>;
    /// Nobody will ask for the answer.
    fn forget(&self);
}

/// Whether an answer is a failure.
pub(super) trait Judge<T>: Send + Sync {
    fn failed(answer: &T) -> bool;
}

/// Any answer is a good one.
pub(super) struct AnyAnswer;
/// An `Err` is a failure.
pub(super) struct Fallible;

impl<T> Judge<T> for AnyAnswer {
    fn failed(_: &T) -> bool {
        false
    }
}

impl<T, E> Judge<Result<T, E>> for Fallible {
    fn failed(answer: &Result<T, E>) -> bool {
        answer.is_err()
    }
}

impl Waits for Entry {
    fn waits(&self) -> bool {
        self.head().waits()
    }
}

impl fmt::Debug for dyn Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.head().fmt(f)
    }
}

/// What a panic said, as far as it can be told.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> Box<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("it did not say why").into()
}
