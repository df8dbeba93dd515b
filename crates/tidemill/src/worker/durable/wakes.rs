//! Who wakes whom within an attempt.
//!
//! A handler that returns pending has come to rest only if it was not woken meanwhile: combinators of many futures poll
//! a few of them, wake themselves and go on at the next poll. To take that for rest would be to judge, or to let go of,
//! code of which a part was not asked yet, at places that are others live and in a replay.
//! Bodies of steps may wake themselves as often as they like, as they do that to let others run: they are woken when
//! all else is at rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Wakes an attempt, and notes that it was woken.
#[derive(Default)]
pub(super) struct Noted {
    woken: AtomicBool,
    driver: AtomicWaker,
}

impl Noted {
    /// Whoever is woken from now on wakes this.
    pub(super) fn wakes(&self, driver: &Waker) {
        self.driver.register(driver);
    }

    /// Whether it was woken since this was asked last.
    pub(super) fn was_woken(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.driver.wake();
    }
}

/// Wakes the body of a step, unless it wakes itself while it is polled.
#[derive(Default)]
pub(super) struct Own {
    is_polled: AtomicBool,
    woken: AtomicBool,
    waker: AtomicWaker,
}

impl Own {
    /// Polls a body. Answers whom to wake for it later, if it was woken meanwhile.
    pub(super) fn poll<T>(
        self: &Arc<Self>,
        task: &Task<'_>,
        body: impl FnOnce(&mut Task<'_>) -> Poll<T>,
    ) -> (Poll<T>, Option<Waker>) {
        self.waker.register(task.waker());
        self.woken.store(false, Ordering::SeqCst);
        self.is_polled.store(true, Ordering::SeqCst);
        let own = Waker::from(Arc::clone(self));
        let polled = body(&mut Task::from_waker(&own));
        self.is_polled.store(false, Ordering::SeqCst);
        let is_woken = self.woken.swap(false, Ordering::SeqCst) && polled.is_pending();
        (polled, is_woken.then(|| task.waker().clone()))
    }
}

impl Wake for Own {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Noted first: whoever polls looks at this after it has said that it does not poll any more.
        self.woken.store(true, Ordering::SeqCst);
        if !self.is_polled.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}
