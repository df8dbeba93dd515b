//! Leases, as those see them who did not make them: whoever settles for a worker that claimed elsewhere.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::{JobId, Token, WorkerId};

use crate::error::Result;
use crate::request::ClaimedJob;

/// One claim of a worker that has jobs left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    /// Proves it.
    pub token: Token,
    /// When it was made.
    pub claimed_at: Timestamp,
    /// The jobs of it that are not settled.
    pub jobs: Vec<JobId>,
}

/// What is known of leases.
#[async_trait]
pub trait Leases: Send + Sync {
    /// Jobs as their claims brought them, in the order asked; `None` where there is no such job, or the lease is
    /// another worker's. Whether a lease still holds is for the settle to say: a job that it does not hold has the
    /// attempt 0. Of each, all gates are told that jobs of its claim are inside of. Nothing is said of their runs and
    /// of when they were due.
    async fn held(
        &self,
        worker: WorkerId,
        asked: &[(Token, JobId)],
    ) -> Result<Vec<Option<ClaimedJob>>>;

    /// What a worker holds, oldest first.
    async fn leases(&self, worker: WorkerId) -> Result<Vec<LeaseView>>;
}
