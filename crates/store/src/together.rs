//! Batches that are written once: all of their jobs are new, or all were there before.
//!
//! Asked inside of the transaction that wrote them, so that what is refused is written by nobody, also when two come
//! at once under the same keys: the second finds what the first has committed.

use tidemill_core::NewJob;

use crate::error::{Error, Result};
use crate::request::Receipt;

/// Whether such a batch is among these jobs.
pub(crate) fn is_any(jobs: &[NewJob]) -> bool {
    jobs.iter().any(is_together)
}

/// Refuses a batch of which some are duplicates and others are not.
pub(crate) fn check(jobs: &[NewJob], receipts: &[Receipt]) -> Result<()> {
    let mut answers = jobs.iter().zip(receipts).filter(|(job, _)| is_together(job));
    let is_known =
        |receipt: &Receipt| !matches!(receipt, Receipt::Enqueued { .. } | Receipt::Diverted { .. });
    let known = answers.clone().find(|(_, receipt)| is_known(receipt));
    match known {
        Some((_, known)) if answers.any(|(_, receipt)| !is_known(receipt)) => {
            Err(Error::BatchReused { job: known.id() })
        }
        _ => Ok(()),
    }
}

fn is_together(job: &NewJob) -> bool {
    job.unique.as_ref().is_some_and(|unique| unique.together)
}
