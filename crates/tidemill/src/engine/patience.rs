//! Until when somebody waits who says for how long.
//!
//! `Duration::MAX` is how a caller says "as long as it takes". The runtime's clock does not reach that far, and adding
//! it would panic.

use std::time::Duration;

use tokio::time::Instant;

/// Nobody waits longer than a century, here as for a job that is due then.
const PATIENCE_MAX: Duration = Duration::from_hours(100 * 366 * 24);

/// When a wait that begins now is over.
pub(crate) fn ends_at(patience: Duration) -> Instant {
    Instant::now() + patience.min(PATIENCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_any_length_has_an_end() {
        let now = Instant::now();
        let minute = Duration::from_mins(1);
        for (patience, expected) in [
            (Duration::ZERO, Duration::ZERO),
            (minute, minute),
            (Duration::from_millis(u64::MAX), PATIENCE_MAX),
            (Duration::MAX, PATIENCE_MAX),
        ] {
            assert_eq!(ends_at(patience) - now, expected, "{patience:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_can_be_waited_for() {
        let long = tokio::time::timeout_at(ends_at(Duration::MAX), std::future::pending::<()>());
        let soon = tokio::time::timeout(Duration::from_mins(1), long).await;
        assert!(soon.is_err(), "it goes on");
    }
}
