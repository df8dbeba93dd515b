//! How many jobs may run at once, and who wants to know when one more may.
//!
//! A worker has shared slots, and slots of their own for queues that must not wait for others. Each
//! group of slots asks for its own jobs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tidemill_core::credit::Credit;
use tokio::sync::Notify;

/// Some slots, and the queues whose jobs may take them.
#[derive(Debug)]
pub(crate) struct Group {
    /// Names and patterns.
    pub(crate) queues: Vec<String>,
    pub(crate) slots: Arc<Slots>,
    /// How much may be asked for beyond the free ones.
    pub(crate) credit: Mutex<Credit>,
}

impl Group {
    pub(crate) fn new(queues: Vec<String>, slots: usize) -> Arc<Self> {
        Arc::new(Self { queues, slots: Slots::new(slots), credit: Mutex::default() })
    }
}

/// The slots of a group.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    used: AtomicUsize,
    pub(crate) freed: Notify,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, used: AtomicUsize::new(0), freed: Notify::new() })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// Whether so many attempts wait to be settled that nothing more should be asked for.
    pub(crate) fn is_choked(&self, unsettled: &Unsettled) -> bool {
        unsettled.number() > 4 * self.max + 1000
    }

    /// How many more may start now.
    pub(crate) fn free(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    pub(crate) fn take(self: &Arc<Self>) -> Slot {
        self.used.fetch_add(1, Ordering::AcqRel);
        Slot(Arc::clone(self))
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

/// Attempts that ended and are not settled yet; bounded, or a slow store would let them pile up.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    number: AtomicUsize,
    pub(crate) fewer: Notify,
}

impl Unsettled {
    pub(crate) fn number(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    pub(crate) fn ended(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn settled(&self, attempts: usize) {
        self.number.fetch_sub(attempts, Ordering::AcqRel);
        self.fewer.notify_one();
    }
}
