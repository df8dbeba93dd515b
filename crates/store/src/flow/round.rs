//! What a round of tending flows comes to, one flow after the other.

use crate::error::{Error, Result};

/// Flows that are looked at in one call.
pub(crate) const PAGE_FLOWS: i64 = 100;
/// Jobs that are called off, or forgotten, in one transaction.
pub(crate) const PAGE_ENDS: i64 = 1000;

/// Why a flow is called off whose time is over.
pub(crate) const OUT_OF_TIME: &str = "it did not finish within its deadline";

/// Whether a walk from page to page has come to its end: so many went well as a page has, or there are no more. What
/// went wrong, or cannot be done yet, is passed over, so that nothing waits behind it.
pub(crate) fn is_enough(well: i64, page: usize) -> bool {
    well >= PAGE_FLOWS || (page as i64) < PAGE_FLOWS
}

/// What a round has come to so far.
#[derive(Default)]
pub(crate) struct Round {
    pub has_more: bool,
    fault: Option<Error>,
}

impl Round {
    /// Notes whether there is more to do, as the tending of one flow says; `None` if it went wrong. One that cannot be
    /// tended holds up no other: its error is told when nothing else is left to be done.
    pub fn note(&mut self, tended: Result<bool>) -> Option<bool> {
        match tended {
            Ok(has_more) => {
                self.has_more |= has_more;
                return Some(has_more);
            }
            Err(fault) => drop(self.fault.get_or_insert(fault)),
        }
        None
    }

    /// Whether there is more or, if there is not, the first error. Whoever is told of an error waits for a second; what
    /// went wrong goes wrong in the next round, too, or not any more.
    pub fn end(self) -> Result<bool> {
        match self.fault {
            Some(fault) if !self.has_more => Err(fault),
            _ => Ok(self.has_more),
        }
    }
}
