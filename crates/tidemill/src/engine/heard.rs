//! The store's present, as a process knows it between two answers.
//!
//! Deadlines are judged by the store's clock. How this machine's is set does not matter: it only counts what has passed
//! since the store was heard.

use std::time::Instant;

use jiff::Timestamp;
use tidemill_core::Clock;

/// What the store's clock showed, and when that was here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Heard {
    at: Timestamp,
    here: Instant,
}

impl Heard {
    /// The store's clock shows this now.
    pub(crate) fn now(at: Timestamp) -> Self {
        Self::since(at, Instant::now())
    }

    /// It showed this at a moment of ours.
    pub(crate) fn since(at: Timestamp, here: Instant) -> Self {
        Self { at, here }
    }

    /// What it showed then.
    pub(crate) fn at(self) -> Timestamp {
        self.at
    }

    /// What it shows by now.
    pub(crate) fn present(self, clock: &Clock) -> Timestamp {
        let counted = || self.at.checked_add(self.here.elapsed()).unwrap_or(self.at);
        clock.manual().unwrap_or_else(counted)
    }
}
