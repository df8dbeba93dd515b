//! A queue that has no room: which, how deep, and when to try again.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why jobs were refused by their queue. Nothing of the call was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Full {
    /// Which queue.
    pub queue: String,
    /// How many jobs wait in it.
    pub depth: u64,
    /// How many may.
    pub depth_max: u64,
    /// How many jobs the call had for it.
    pub jobs: u64,
    /// How long its rule lets the caller wait for room, if it does.
    pub wait_ms: Option<u64>,
    /// When there may be room, judged by what went out of it in the last minute.
    pub retry_after_ms: u64,
    /// The queue that is full as well and would have diverted the jobs to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl Full {
    /// When to try again; never, when the call has more jobs than the queue may ever hold.
    pub fn retry_after(&self) -> Option<Duration> {
        self.fits_ever().then(|| Duration::from_millis(self.retry_after_ms))
    }

    /// Whether the same call can succeed at all.
    pub fn fits_ever(&self) -> bool {
        self.jobs <= self.depth_max
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, depth, depth_max, jobs, from, .. } = self;
        if let Some(from) = from {
            write!(f, "the queue {from:?} is full and diverts to {queue:?}: ")?;
        }
        match self.retry_after() {
            None => write!(
                f,
                "the batch has {jobs} jobs for the queue {queue:?}, whose bound is {depth_max}: it \
                 never fits; split it, or raise the bound"
            ),
            Some(after) => write!(
                f,
                "the queue {queue:?} is full: {depth} {}, its bound is {depth_max}; try again in {} s",
                if *depth == 1 { "job waits" } else { "jobs wait" },
                after.as_millis().div_ceil(1000)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_never_fits_is_not_told_to_try_again() {
        let full = Full {
            queue: "mail".to_owned(),
            depth: 10,
            depth_max: 10,
            jobs: 1,
            wait_ms: None,
            retry_after_ms: 1500,
            from: None,
        };
        assert_eq!(
            full.to_string(),
            "the queue \"mail\" is full: 10 jobs wait, its bound is 10; try again in 2 s"
        );
        let one = Full { depth: 1, depth_max: 1, ..full.clone() };
        assert!(one.to_string().contains("is full: 1 job waits, its bound is 1"), "{one}");
        let beyond = Full { from: Some("post".to_owned()), ..full.clone() };
        let said = beyond.to_string();
        assert!(said.starts_with(
            "the queue \"post\" is full and diverts to \"mail\": the queue \"mail\" is"
        ));
        let large = Full { jobs: 11, ..full };
        assert_eq!(large.retry_after(), None);
        assert!(large.to_string().contains("never fits"), "{large}");
    }
}
