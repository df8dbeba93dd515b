//! Waits of a handler's for the store, beside those for its journal.
//!
//! However long they take, what the handler comes to is not other code than its journal is of.
//!
//! What counts is the call, not who waits for it: a handler may keep a future that it polls no more, and the run would
//! stand for as long. So the attempt's driver polls the calls, too, and hears of an answer that nobody takes.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Context as Task;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Shared};

use crate::worker::context::Context;
use crate::worker::guarded::Panic;

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// An answer. What the journal has is not told to others before it is there, nor is the run let go of, so that the
    /// code comes to the same.
    Answer,
    /// That something is taken; others go on meanwhile.
    Room,
}

/// The calls that are under way.
#[derive(Default)]
pub(super) struct Calls {
    under_way: Vec<Call>,
    begun: u64,
}

struct Call {
    number: u64,
    what: For,
    ends: BoxFuture<'static, ()>,
}

impl Calls {
    pub(super) fn are_for(&self, what: For) -> bool {
        self.under_way.iter().any(|call| call.what == what)
    }

    /// Lets them go on, whether or not they are waited for; `true` when one has ended: the handler hears of it before
    /// anybody is told anything else. One that panics does so here and not where the handler is guarded.
    pub(super) fn go_on(&mut self, task: &mut Task<'_>) -> Result<bool, Panic> {
        let (before, mut panicked) = (self.under_way.len(), None);
        self.under_way.retain_mut(|call| {
            match catch_unwind(AssertUnwindSafe(|| call.ends.as_mut().poll(task))) {
                Ok(polled) => polled.is_pending(),
                Err(panic) => {
                    panicked = Some(panic);
                    false
                }
            }
        });
        panicked.map_or(Ok(self.under_way.len() < before), Err)
    }

    fn begin(&mut self, what: For, ends: BoxFuture<'static, ()>) -> u64 {
        self.begun += 1;
        self.under_way.push(Call { number: self.begun, what, ends });
        self.begun
    }

    fn leave(&mut self, number: u64) -> Option<Call> {
        let at = self.under_way.iter().position(|call| call.number == number)?;
        Some(self.under_way.swap_remove(at))
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.under_way.iter().map(|call| call.what)).finish()
    }
}

/// While this is there, somebody may want to know how a call ends.
struct AtStore<'a> {
    cx: &'a Context,
    number: u64,
}

impl Drop for AtStore<'_> {
    fn drop(&mut self) {
        let mut told = self.cx.run().told();
        let call = told.calls.leave(self.number);
        // In a task of its own nobody else says that the run may go on.
        let is_outside = call.is_some() && told.is_outside();
        let driver = if is_outside { told.driver.take() } else { None };
        drop(told);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl Context {
    /// Waits for a call of the store's. It is given up when this is dropped.
    pub(crate) async fn at_store<T: Send + 'static>(
        &self,
        what: For,
        call: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (answers, answer) = oneshot::channel();
        // Who asked may have gone.
        let call = call.map(|answer| drop(answers.send(answer)));
        self.at_store_with(what, call.boxed().shared()).await;
        match answer.await {
            Ok(answer) => answer,
            // It is sent before the call ends.
            Err(oneshot::Canceled) => std::future::pending().await,
        }
    }

    /// Waits for a call that others may wait for, too.
    pub(crate) async fn at_store_with<T: Clone + Send + Sync + 'static>(
        &self,
        what: For,
        call: Shared<BoxFuture<'static, T>>,
    ) -> T {
        let ends = call.clone().map(drop).boxed();
        let number = self.run().told().calls.begin(what, ends);
        let _at_store = AtStore { cx: self, number };
        call.await
    }
}
