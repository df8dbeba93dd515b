//! Queues in which somebody waits for room, here or in another process: whoever takes from one says so.
//!
//! Bounded and short-lived: whoever waits says it again, and looks for himself as well.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WANTED_FOR: Duration = Duration::from_mins(1);
const QUEUES_MAX: usize = 10_000;

/// The queues in which somebody waits for room.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Asked at every claim, so without a lock while nobody waits.
    any: AtomicBool,
    queues: Mutex<HashMap<String, Instant>>,
}

impl Wanted {
    /// Notes that somebody waits for room in this queue.
    pub fn add(&self, queue: &str) {
        let mut queues = self.lock();
        let now = Instant::now();
        queues.retain(|_, until| *until > now);
        if queues.len() < QUEUES_MAX {
            queues.insert(queue.to_owned(), now + WANTED_FOR);
        }
        self.any.store(true, Relaxed);
    }

    /// Those of these queues in which somebody waits, each once.
    pub fn of<'a>(&self, queues: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
        if !self.any.load(Relaxed) {
            return BTreeSet::new();
        }
        let (mut wanted, now) = (self.lock(), Instant::now());
        wanted.retain(|_, until| *until > now);
        self.any.store(!wanted.is_empty(), Relaxed);
        queues.filter(|queue| wanted.contains_key(*queue)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queues_that_somebody_waits_for_are_told_of() {
        let wanted = Wanted::default();
        assert!(wanted.of(["a"].into_iter()).is_empty());
        wanted.add("a");
        assert_eq!(wanted.of(["b", "a", "a"].into_iter()), BTreeSet::from(["a"]));
    }
}
