//! When credentials were last used: noted beside the requests, once a minute for each, many at a time.
//!
//! Nobody waits for it. A note that fails is lost, and the next minute's tells the same: it is there to find
//! out what nobody uses any more, and refuses to be an account of who did what.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::CredentialId;
use tidemill_core::access::CREDENTIALS_MAX;
use tidemill_store::Store;
use tokio::time::Instant;

use crate::worker::shop::locked;

const NOTE_EVERY: Duration = Duration::from_mins(1);

#[derive(Default)]
struct Notes {
    noted: HashMap<CredentialId, Instant>,
    to_write: HashMap<CredentialId, Timestamp>,
    /// Somebody writes, and takes what comes meanwhile.
    writes: bool,
}

/// Where uses are noted.
#[derive(Clone, Default)]
pub(super) struct Uses(Arc<Mutex<Notes>>);

impl Uses {
    /// This credential was used.
    pub(super) fn note(&self, store: &Arc<dyn Store>, id: CredentialId, at: Timestamp) {
        if self.is_first(id, at) {
            tokio::spawn(self.clone().write(Arc::clone(store)));
        }
    }

    /// Notes it, if it is time; whether somebody must begin to write.
    fn is_first(&self, id: CredentialId, at: Timestamp) -> bool {
        let mut notes = locked(&self.0);
        let is_new = |noted: &Instant| noted.elapsed() < NOTE_EVERY;
        if notes.noted.get(&id).is_some_and(is_new) {
            return false;
        }
        if notes.noted.len() >= CREDENTIALS_MAX {
            notes.noted.retain(|_, noted| is_new(noted));
        }
        notes.noted.insert(id, Instant::now());
        notes.to_write.insert(id, at);
        !std::mem::replace(&mut notes.writes, true)
    }

    async fn write(self, store: Arc<dyn Store>) {
        let mut over = Over(Some(&self));
        while let Some(used) = self.next() {
            if let Err(error) = store.touch_credentials(&used).await {
                tracing::debug!(%error, "when credentials were used is not noted; the next minute is");
            }
        }
        over.0 = None;
    }

    fn next(&self) -> Option<Vec<(CredentialId, Timestamp)>> {
        let mut notes = locked(&self.0);
        let used: Vec<_> = notes.to_write.drain().collect();
        notes.writes = !used.is_empty();
        (!used.is_empty()).then_some(used)
    }
}

/// Lets somebody else write if this task is dropped, with its runtime, before it has ended.
struct Over<'a>(Option<&'a Uses>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if let Some(uses) = self.0 {
            locked(&uses.0).writes = false;
        }
    }
}
