//! What the caller holds of a task: the way to its answer, and the right to call it off.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::local::builder::OnDrop;
use crate::local::entry::Join;
use crate::local::error::Error;
use crate::local::shared::Shared;

/// A task in a queue. Await it for its answer.
///
/// To drop it calls the task off: one that waits always, one that runs as [`OnDrop`] says. To let it
/// go on without you, [`detach`](Handle::detach).
#[must_use = "dropping the handle calls the task off; await it, or detach it"]
pub struct Handle<T> {
    cell: Arc<dyn Join<T>>,
    shared: Arc<Shared>,
    on_drop: OnDrop,
    /// The answer was given, or nobody asks for it.
    over: bool,
}

impl<T> Handle<T> {
    pub(super) fn new(cell: Arc<dyn Join<T>>, shared: Arc<Shared>, on_drop: OnDrop) -> Self {
        Self { cell, shared, on_drop, over: false }
    }

    /// Calls the task off, waiting or running. Its answer is then [`Error::Cancelled`], unless it was
    /// faster. A running task ends at its next `await`.
    pub fn cancel(&self) {
        self.shared.call_off(&*self.cell, true);
    }

    /// Lets the task go on; nobody will know its answer.
    pub fn detach(mut self) {
        self.over = true;
        self.cell.forget();
    }
}

impl<T> Future for Handle<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.cell.poll_answer(cx);
        self.over |= answer.is_ready();
        answer
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if !self.over {
            self.cell.forget();
            self.shared.call_off(&*self.cell, self.on_drop == OnDrop::Cancel);
        }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("task", self.cell.head()).finish_non_exhaustive()
    }
}
