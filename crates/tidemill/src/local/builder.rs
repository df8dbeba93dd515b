//! The rules a queue is built with, and what they must obey.

use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use crate::local::entry::FOREVER_NS;
use crate::local::error::Error;
use crate::local::queue::Queue;
use crate::local::shared::Shared;
use crate::local::state::State;

/// The window of a rate per second.
pub const PER_SECOND: Duration = Duration::from_secs(1);
/// The window of a rate per minute.
pub const PER_MINUTE: Duration = Duration::from_mins(1);

const CONCURRENCY: usize = 100;
const DEPTH_MAX: usize = 10_000;

/// What happens to a running task when nobody waits for its answer any more. A task that waits is
/// called off in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDrop {
    /// It is called off too, at its next `await`. The default.
    #[default]
    Cancel,
    /// It runs to its end.
    Finish,
}

/// Builds a [`Queue`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tidemill::local::Error> {
/// use tidemill::local::{PER_SECOND, Queue};
/// let queue = Queue::builder().concurrency(8).rate(100, PER_SECOND).depth_max(10_000).build()?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    concurrency: usize,
    rate: Option<(u32, Duration)>,
    depth_max: usize,
    timeout: Option<Duration>,
    on_drop: OnDrop,
    paused: bool,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            concurrency: CONCURRENCY,
            rate: None,
            depth_max: DEPTH_MAX,
            timeout: None,
            on_drop: OnDrop::default(),
            paused: false,
        }
    }
}

impl Builder {
    /// How many tasks may run at once. Defaults to 100.
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// How many tasks may start in any window of this length. Defaults to no limit.
    #[must_use]
    pub fn rate(self, starts_max: u32, window: Duration) -> Self {
        Self { rate: Some((starts_max, window)), ..self }
    }

    /// How many tasks may wait; those that run are not counted. Defaults to 10,000.
    #[must_use]
    pub fn depth_max(self, depth_max: usize) -> Self {
        Self { depth_max, ..self }
    }

    /// How long a task may run that does not say otherwise. Defaults to no limit.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// What happens to a running task whose handle is dropped. Defaults to [`OnDrop::Cancel`].
    #[must_use]
    pub fn on_drop(self, on_drop: OnDrop) -> Self {
        Self { on_drop, ..self }
    }

    /// Starts nothing until [`Queue::resume`].
    #[must_use]
    pub fn paused(self) -> Self {
        Self { paused: true, ..self }
    }

    /// Builds the queue. Its tasks run on the tokio runtime this is called on, whose time must be
    /// enabled.
    pub fn build(self) -> Result<Queue, Error> {
        check_concurrency(self.concurrency)?;
        if self.depth_max == 0 {
            let what = "the depth is 0, so no task could ever be taken; give 1 or more";
            return Err(Error::RuleInvalid { what });
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            let what = "the timeout is 0, so every task would time out; give more, or none";
            return Err(Error::RuleInvalid { what });
        }
        let runtime = Runtime::try_current().map_err(|_| Error::RuntimeMissing)?;
        let mut state = State::new(self.concurrency, self.depth_max);
        if let Some((starts_max, window)) = self.rate {
            state.set_rate(Some(check_rate(starts_max, window)?));
        }
        state.paused = self.paused;
        let limit_ns = self.timeout.map_or(FOREVER_NS, to_ns);
        Ok(Queue::new(Shared::new(state, runtime, limit_ns, self.on_drop)))
    }
}

pub(super) fn check_concurrency(concurrency: usize) -> Result<(), Error> {
    if concurrency > 0 {
        return Ok(());
    }
    let what = "the concurrency is 0, so no task could ever start; give 1 or more, or pause";
    Err(Error::RuleInvalid { what })
}

/// The rate in the units of the window.
pub(super) fn check_rate(starts_max: u32, window: Duration) -> Result<(usize, u64), Error> {
    let what = match (starts_max, window.is_zero()) {
        (0, _) => "the rate is 0, so no task could ever start; give 1 or more, or pause",
        (_, true) => "the window of the rate is 0 long, which limits nothing; give PER_SECOND, say",
        _ => return Ok((starts_max as usize, to_ns(window))),
    };
    Err(Error::RuleInvalid { what })
}

/// In nanoseconds; what is longer than 584 years is as good as forever.
pub(super) fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(FOREVER_NS)
}
