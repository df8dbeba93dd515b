//! The one place that reads the time.
//!
//! The store's clock judges leases and due times. `System` means the store's own: the database
//! server's for Postgres, this machine's for SQLite. `Manual` replaces it in tests, on both.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::error::{Error, Result};

/// Refuses a moment that no clock here can have shown, so that a little may be counted back from all others. Those
/// after 9999 cannot be written.
pub fn check(what: &'static str, at: Timestamp) -> Result<()> {
    if at < Timestamp::UNIX_EPOCH {
        return Err(Error::TimeInvalid { what, at });
    }
    Ok(())
}

/// Which clock judges due times and leases.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The store's own. The default.
    #[default]
    System,
    /// One that moves only when told.
    Manual(ManualClock),
}

impl Clock {
    /// The time by this clock, read on this machine.
    pub fn now(&self) -> Timestamp {
        self.manual().unwrap_or_else(Timestamp::now)
    }

    /// The time if it is set by hand; `None` leaves it to the database.
    pub fn manual(&self) -> Option<Timestamp> {
        match self {
            Self::System => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }
}

/// A clock for tests: it stands still until [`advance`](Self::advance) moves it.
///
/// ```
/// use std::time::Duration;
/// let clock = tidemill_core::ManualClock::default();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(clock.now().duration_since(before).as_secs(), 3600);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

impl Default for ManualClock {
    /// Starts at the machine's time, cut to microseconds as databases keep it.
    fn default() -> Self {
        Self::at(Timestamp::now())
    }
}

impl ManualClock {
    /// A clock that stands at `start`, cut to microseconds as databases keep it.
    pub fn at(start: Timestamp) -> Self {
        let cut = Timestamp::from_microsecond(start.as_microsecond()).unwrap_or(start);
        Self(Arc::new(Mutex::new(cut)))
    }

    /// Where it stands.
    pub fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts it anywhere, as a wrong clock is put right: also back.
    pub fn set(&self, to: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Self::at(to).now();
    }

    /// Moves it forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
    }
}

/// A delay in whole microseconds; nothing waits longer than a century.
pub fn delay_us(delay: Duration) -> i64 {
    const CENTURY_US: i64 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(delay.as_micros()).unwrap_or(CENTURY_US).min(CENTURY_US)
}
