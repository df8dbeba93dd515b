//! The hands: a runner holds one slot and runs one task after the other; a gate wakes when the rate
//! lets the next one start.
//!
//! A runner that finds nothing to start ends, and gives its slot back: there are never more runners
//! than tasks that run, and none that idles. Starting a task beside others costs no spawn, since the
//! runner that ends one goes on with the next.
//!
//! When the runtime ends under them, they end what cannot run any more, so that no handle waits in
//! vain.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use tokio::task::coop::consume_budget;
use tokio::time::sleep_until;

use crate::local::counts::Ended;
use crate::local::entry::panic_message;
use crate::local::error::Error;
use crate::local::shared::Shared;
use crate::local::state::Started;

/// Runs tasks until none may start.
pub(super) fn run(shared: Arc<Shared>, first: Started) -> impl Future<Output = ()> + Send {
    // Made before the first poll, so that a runtime that never polls is noticed too.
    let mut runner = Runner { shared, current: Some(first) };
    async move {
        while runner.current.is_some() {
            let ended = runner.work().await;
            if let Some(started) = runner.current.take() {
                runner.current = runner.shared.end(started, ended);
            }
            // Tasks that are ready at once must not keep the thread from everybody else.
            consume_budget().await;
        }
    }
}

struct Runner {
    shared: Arc<Shared>,
    current: Option<Started>,
}

impl Runner {
    /// Runs the current task; a panic is its failure.
    async fn work(&mut self) -> Ended {
        let Some(started) = &mut self.current else { return Ended::Cancelled };
        let mut work = started.entry.clone().work();
        let mut ended = poll_fn(|cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
            if started.reserved.is_some() && matches!(polled, Ok(Poll::Pending)) {
                self.shared.change(|state, now| state.note(started, now));
            }
            match polled {
                Ok(polled) => polled.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            }
        })
        .await;
        if let Err(panic) = &mut ended {
            let message = panic_message(panic.as_ref());
            started.entry.fail(Error::Panicked { message });
        }
        ended.unwrap_or(Ended::Failed)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(started) = self.current.take() {
            self.shared.abandon_if(|_| true);
            started.entry.fail(Error::Cancelled);
            self.shared.end(started, Ended::Cancelled);
        }
    }
}

/// Looks again when the window opens.
pub(super) fn gate(
    shared: Arc<Shared>,
    number: u64,
    at_ns: u64,
) -> impl Future<Output = ()> + Send {
    let mut gate = Gate { shared, number, woke: false };
    async move {
        sleep_until(gate.shared.moment(at_ns)).await;
        gate.woke = true;
        // The change itself starts what may start, and arms the next gate if some are still held.
        gate.shared.change(|state, _| state.gate_woke(gate.number));
    }
}

struct Gate {
    shared: Arc<Shared>,
    number: u64,
    woke: bool,
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.woke {
            self.shared.abandon_if(|state| state.gate_woke(self.number));
        }
    }
}
