//! Looks at jobs that are waited for, by natural batching: what is asked while a look is under way goes with the next.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tidemill_core::JobId;
use tidemill_store::{Error, Result, Store};
use tokio::sync::oneshot;

use crate::worker::shop::locked;

/// Jobs of one look, at most.
const LOOK_JOBS_MAX: usize = 1000;

struct Asked {
    id: JobId,
    answer: oneshot::Sender<Result<bool>>,
}

#[derive(Default)]
struct Asking {
    asked: Vec<Asked>,
    /// A look is under way; who makes it takes what is asked meanwhile.
    looks: bool,
}

/// Where those who wait ask.
#[derive(Clone, Default)]
pub(crate) struct Looks(Arc<Mutex<Asking>>);

impl Looks {
    /// Whether this job is there and has not finished.
    pub(crate) async fn goes_on(&self, store: &Arc<dyn Store>, id: JobId) -> Result<bool> {
        let (answer, answered) = oneshot::channel();
        if self.ask(Asked { id, answer }) {
            // A task of its own: whoever asked may go away, the others must not wait for ever.
            tokio::spawn(self.clone().look(Arc::clone(store)));
        }
        answered.await.unwrap_or_else(|_| {
            let reason = "the store was closed meanwhile".to_owned();
            Err(Error::Unavailable { reason, unknown: false })
        })
    }

    /// Asks; whether somebody must begin to look.
    fn ask(&self, asked: Asked) -> bool {
        let mut asking = locked(&self.0);
        asking.asked.push(asked);
        !std::mem::replace(&mut asking.looks, true)
    }

    async fn look(self, store: Arc<dyn Store>) {
        let mut over = Over(Some(&self));
        while let Some(asked) = self.next() {
            let ids: HashSet<JobId> = asked.iter().map(|asked| asked.id).collect();
            let unfinished = store.unfinished_of(ids.into_iter().collect()).await;
            for Asked { id, answer } in asked {
                let goes_on = unfinished.as_ref().map(|ids| ids.contains(&id));
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(goes_on.map_err(Clone::clone));
            }
        }
        over.0 = None;
    }

    fn next(&self) -> Option<Vec<Asked>> {
        let mut asking = locked(&self.0);
        let number = asking.asked.len().min(LOOK_JOBS_MAX);
        asking.looks = number > 0;
        (number > 0).then(|| asking.asked.drain(..number).collect())
    }
}

/// Lets somebody else look if this task is dropped, with its runtime, before it has ended.
struct Over<'a>(Option<&'a Looks>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        if let Some(looks) = self.0 {
            *locked(&looks.0) = Asking::default();
        }
    }
}
