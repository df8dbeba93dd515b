//! Looks at what many ask for, by natural batching: what is asked while a look is under way goes with the next.
//!
//! So however many ask at once, one connection is busy with it. It refuses to remember answers.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use tidemill_core::JobId;
use tidemill_store::{End, Error, JobView, Result, Store};
use tokio::sync::oneshot;

use crate::worker::shop::locked;

/// Questions of one look, at most.
const LOOK_MAX: usize = 1000;
/// Jobs that are shown whole by one look, at most: each may have a megabyte.
pub(crate) const VIEWS_MAX: usize = 100;

struct Asked<K, V> {
    key: K,
    answer: oneshot::Sender<Result<Option<V>>>,
}

struct Asking<K, V> {
    asked: Vec<Asked<K, V>>,
    /// A look is under way; who makes it takes what is asked meanwhile.
    looks: bool,
}

impl<K, V> Default for Asking<K, V> {
    fn default() -> Self {
        Self { asked: Vec::new(), looks: false }
    }
}

/// Where those who want to know ask.
pub(crate) struct Looks<K, V>(Arc<Mutex<Asking<K, V>>>);

impl<K, V> Clone for Looks<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for Looks<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// What somebody who waits for a job finds.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    GoesOn,
    Ended(Arc<End>),
}

impl Looks<JobId, Found> {
    /// Whether this job has ended, and how. `None`: there is none, or it cannot be shown.
    pub(crate) async fn find(&self, store: &Arc<dyn Store>, id: JobId) -> Result<Option<Found>> {
        let store = Arc::clone(store);
        self.ask(id, move |ids| look_for_ends(Arc::clone(&store), ids)).await
    }
}

impl Looks<JobId, Arc<JobView>> {
    /// This job, wherever it stands. `None`: there is none, or it cannot be shown.
    pub(crate) async fn view(
        &self,
        store: &Arc<dyn Store>,
        id: JobId,
    ) -> Result<Option<Arc<JobView>>> {
        let store = Arc::clone(store);
        self.ask(id, move |ids| look_at_jobs(Arc::clone(&store), ids)).await
    }
}

async fn look_for_ends(store: Arc<dyn Store>, ids: Vec<JobId>) -> Result<HashMap<JobId, Found>> {
    let mut found = HashMap::with_capacity(ids.len());
    for part in ids.chunks(VIEWS_MAX) {
        let ends = store.ends_of(part.to_vec()).await?;
        found.extend(
            ends.into_iter().map(|(id, end)| {
                (id, end.map_or(Found::GoesOn, |end| Found::Ended(Arc::new(end))))
            }),
        );
    }
    Ok(found)
}

async fn look_at_jobs(
    store: Arc<dyn Store>,
    ids: Vec<JobId>,
) -> Result<HashMap<JobId, Arc<JobView>>> {
    let mut found = HashMap::with_capacity(ids.len());
    for part in ids.chunks(VIEWS_MAX) {
        let views = store.jobs_of(part.to_vec()).await?;
        found.extend(views.into_iter().map(|view| (view.job.id, Arc::new(view))));
    }
    Ok(found)
}

impl<K, V> Looks<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// What is found under this key. All who ask at one place must mean the same by `look`.
    pub(crate) async fn ask<F, Fut>(&self, key: K, look: F) -> Result<Option<V>>
    where
        F: Fn(Vec<K>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<HashMap<K, V>>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        if self.is_first(Asked { key, answer }) {
            // A task of its own: whoever asked may go away, the others must not wait for ever.
            tokio::spawn(self.clone().look(look));
        }
        answered.await.unwrap_or_else(|_| {
            let reason = "the store was closed meanwhile".to_owned();
            Err(Error::Unavailable { reason, unknown: false })
        })
    }

    /// Asks; whether somebody must begin to look.
    fn is_first(&self, asked: Asked<K, V>) -> bool {
        let mut asking = locked(&self.0);
        asking.asked.push(asked);
        !std::mem::replace(&mut asking.looks, true)
    }

    async fn look<F, Fut>(self, look: F)
    where
        F: Fn(Vec<K>) -> Fut,
        Fut: Future<Output = Result<HashMap<K, V>>>,
    {
        let mut over = Over(Some(&self));
        while let Some(asked) = self.next() {
            let keys: HashSet<K> = asked.iter().map(|asked| asked.key.clone()).collect();
            let found = look(keys.into_iter().collect()).await;
            for Asked { key, answer } in asked {
                let value = found.as_ref().map(|found| found.get(&key).cloned());
                // Whoever asked may have gone meanwhile.
                let _ = answer.send(value.map_err(Clone::clone));
            }
        }
        over.0 = None;
    }

    fn next(&self) -> Option<Vec<Asked<K, V>>> {
        let mut asking = locked(&self.0);
        let number = asking.asked.len().min(LOOK_MAX);
        asking.looks = number > 0;
        (number > 0).then(|| asking.asked.drain(..number).collect())
    }
}

/// Lets somebody else look if this task is dropped, with its runtime, before it has ended.
struct Over<'a, K, V>(Option<&'a Looks<K, V>>);

impl<K, V> Drop for Over<'_, K, V> {
    fn drop(&mut self) {
        if let Some(looks) = self.0 {
            *locked(&looks.0) = Asking::default();
        }
    }
}
