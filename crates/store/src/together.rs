//! Batches that are judged when they are written: those that are written once, of which all jobs are new or all were
//! there before, and those that may be duplicates of jobs of some queues alone.
//!
//! Asked inside of the transaction that wrote them, so that what is refused is written by nobody, also when two come
//! at once under the same keys: the second finds what the first has committed.

use tidemill_core::NewJob;

use crate::error::{Error, Result};
use crate::request::Receipt;

/// Whether there is anything to be judged of these jobs.
pub(crate) fn is_any(jobs: &[NewJob]) -> bool {
    let is_bound = |job: &NewJob| job.unique.as_ref().is_some_and(|key| !key.within.is_empty());
    jobs.iter().any(|job| is_together(job) || is_bound(job))
}

/// Refuses a batch with a duplicate of a job that is out of reach, and one of which some are duplicates and others are
/// not.
pub(crate) fn check(jobs: &[NewJob], receipts: &[Receipt]) -> Result<()> {
    let mut answers = jobs.iter().zip(receipts);
    if let Some((job, _)) = answers.clone().find(|(_, receipt)| **receipt == Receipt::UNREACHED) {
        return Err(Error::DuplicateUnreached { job: job.id });
    }
    let is_known =
        |receipt: &Receipt| !matches!(receipt, Receipt::Enqueued { .. } | Receipt::Diverted { .. });
    let known = answers.clone().find(|(job, receipt)| is_together(job) && is_known(receipt));
    match known {
        Some((_, known))
            if answers.any(|(job, receipt)| is_together(job) && !is_known(receipt)) =>
        {
            Err(Error::BatchReused { job: known.id() })
        }
        _ => Ok(()),
    }
}

fn is_together(job: &NewJob) -> bool {
    job.unique.as_ref().is_some_and(|unique| unique.together)
}
