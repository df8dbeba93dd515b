//! Waits of a handler's for the store, beside those for its journal.
//!
//! However long they take, what the handler comes to is not other code than its journal is of.

use super::Told;
use crate::worker::context::Context;

/// While this is there, the handler waits for the store and not for its journal.
pub(crate) struct AtStore<'a> {
    cx: &'a Context,
    count: fn(&mut Told) -> &mut usize,
}

impl<'a> AtStore<'a> {
    fn begin(cx: &'a Context, count: fn(&mut Told) -> &mut usize) -> Self {
        *count(&mut cx.run().told()) += 1;
        Self { cx, count }
    }
}

impl Context {
    /// It waits for an answer from now on. What the journal has is not told to others in between, nor is the run let
    /// go of, so that the code comes to the same.
    pub(crate) fn looks(&self) -> AtStore<'_> {
        AtStore::begin(self, |told| &mut told.looking)
    }

    /// It waits for something to be taken from now on; others go on meanwhile.
    pub(crate) fn gives(&self) -> AtStore<'_> {
        AtStore::begin(self, |told| &mut told.giving)
    }
}

impl Drop for AtStore<'_> {
    fn drop(&mut self) {
        let mut told = self.cx.run().told();
        *(self.count)(&mut told) -= 1;
        // In a task of its own nobody else says that the run may go on.
        if told.is_outside()
            && let Some(driver) = told.driver.take()
        {
            driver.wake();
        }
    }
}
