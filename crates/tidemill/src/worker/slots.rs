//! How many jobs may run at once, and who wants to know when one more may.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    used: AtomicUsize,
    /// Attempts that ended and are not settled yet; bounded, or a slow store would let them pile up.
    unsettled: AtomicUsize,
    pub(crate) freed: Notify,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (used, unsettled) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max, used, unsettled, freed: Notify::new() })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// How many more may start now.
    pub(crate) fn free(&self) -> usize {
        if self.unsettled() > 4 * self.max + 1000 {
            return 0;
        }
        self.max.saturating_sub(self.used())
    }

    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        self.used.fetch_add(1, Ordering::AcqRel);
        Slot(Arc::clone(self))
    }

    pub(crate) fn ended(&self) {
        self.unsettled.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn settled(&self, attempts: usize) {
        self.unsettled.fetch_sub(attempts, Ordering::AcqRel);
        self.freed.notify_one();
    }
}

/// One job's place; free again when dropped.
#[derive(Debug)]
pub(crate) struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
