//! The span around every verb, from one place; and what a process counts, all queues together.

use std::future::Future;

use serde::{Deserialize, Serialize};
use tracing::Instrument;

/// What this process has counted since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Jobs enqueued, duplicates not counted.
    pub enqueued: u64,
    /// Jobs that stood for an existing one.
    pub duplicates: u64,
    /// Jobs that a full queue refused.
    pub refused: u64,
    /// Attempts claimed.
    pub claimed: u64,
    /// Attempts whose handler finished its job.
    pub done: u64,
    /// Attempts after which the job runs again.
    pub again: u64,
    /// Jobs that died here.
    pub dead: u64,
    /// Jobs cancelled here.
    pub cancelled: u64,
    /// Writes refused because the lease was lost.
    pub stale: u64,
    /// Jobs of lost workers that were made ready again.
    pub rescued: u64,
    /// Finished jobs that passed their retention.
    pub purged: u64,
}

/// Runs one verb in its span. A failure is logged here, once, without payloads.
pub(crate) async fn verb<T, E: std::fmt::Display>(
    name: &'static str,
    jobs: usize,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let span = tracing::debug_span!("tidemill", verb = name, jobs);
    async {
        let answer = work.await;
        if let Err(error) = &answer {
            tracing::warn!(verb = name, jobs, %error, "a verb failed");
        }
        answer
    }
    .instrument(span)
    .await
}
