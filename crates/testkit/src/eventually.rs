//! Waiting for a fact, with a deadline, and with a name for it.
//!
//! A fixed sleep is either too short (flaky) or too long (slow). Looking again until the fact is
//! there is neither. This is the only file in which tests may sleep; `cargo xtask tidy` checks that.
//!
//! It refuses to wait forever, and to fail without saying what it waited for. Deadlines are in real
//! time even when tokio's clock is paused: the database on the other side is never paused.

use std::thread;
use std::time::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Looks until `look` finds something, for at most `within`; blocks the thread.
///
/// ```
/// use std::time::Duration;
/// let mut tries = 0;
/// let found = tidemill_testkit::eventually::until(Duration::from_secs(5), || {
///     tries += 1;
///     (tries == 3).then_some(tries)
/// });
/// assert_eq!(found, Some(3));
/// ```
pub fn until<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + within;
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(pause);
        pause = longer(pause);
    }
}

/// Looks until `look` finds something, and returns it.
///
/// The first looks follow each other at once, later ones after up to 50 ms.
///
/// # Panics
///
/// When nothing was found `within` that time. The message names `what`.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use tidemill_testkit::eventually::eventually;
/// let mut seen = 0;
/// let found = eventually("the third look", Duration::from_secs(5), async || {
///     seen += 1;
///     (seen == 3).then_some(seen)
/// });
/// assert_eq!(found.await, 3);
/// # });
/// ```
#[cfg(feature = "databases")]
pub async fn eventually<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + within;
    let mut pause = PAUSE_MIN;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited {within:?} in vain for {what}");
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn until_gives_up_after_its_time() {
        assert_eq!(until(Duration::from_millis(5), || None::<()>), None);
    }

    #[cfg(feature = "databases")]
    #[tokio::test]
    #[should_panic(expected = "in vain for the moon")]
    async fn eventually_names_what_never_came() {
        eventually("the moon", Duration::from_millis(5), async || None::<()>).await;
    }
}
