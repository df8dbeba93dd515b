//! Ends of jobs, told within a process: who waits here for a job that is settled here need not ask the store.
//!
//! What is told has been committed. It refuses to remember: who comes later looks, as does who waits for a job that
//! is settled elsewhere, or ends otherwise than well.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidemill_core::{JobId, Settlement, State};
use tidemill_store::{End, SettleItem, Settled};
use tokio::sync::watch::{Receiver, Sender};

use crate::worker::shop::locked;

/// What is known here of a job that somebody waits for.
#[derive(Debug, Clone)]
enum News {
    Nothing,
    /// Its end is being written: what comes of it is told right after.
    Settling,
    Ended(Arc<End>),
}

/// Jobs whose ends somebody in this process waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ends(Arc<Mutex<HashMap<JobId, Sender<News>>>>);

impl Ends {
    /// Waits for the end of this job from now on.
    pub(crate) fn expect(&self, id: JobId) -> Waiting {
        let mut waited = locked(&self.0);
        let news = waited.entry(id).or_insert_with(|| Sender::new(News::Nothing)).subscribe();
        Waiting { id, news: Some(news), ends: self.clone() }
    }

    /// Says of those of these jobs that somebody waits for that their ends are being written.
    pub(crate) fn settling(&self, items: &[SettleItem]) -> Settling {
        let (waited, mut told) = (locked(&self.0), Vec::new());
        if !waited.is_empty() {
            for (at, item) in items.iter().enumerate() {
                // What is decided in a transaction of the handler's own is not known here.
                let Settlement::Done { output, .. } = &item.settlement else { continue };
                let (false, Some(news)) = (item.decided, waited.get(&item.job.id)) else {
                    continue;
                };
                news.send_replace(News::Settling);
                let (state, output) = (State::Done, Some(output.clone()));
                told.push((at, item.job.id, End { state, output, error: None }));
            }
        }
        Settling { ends: self.clone(), told }
    }
}

/// Ends that are being written. Dropped, whoever waits for one looks for himself.
pub(crate) struct Settling {
    ends: Ends,
    /// By their place in the settle.
    told: Vec<(usize, JobId, End)>,
}

impl Settling {
    /// Tells of those that were written.
    pub(crate) fn settled(mut self, answers: &[Settled]) {
        let mut waited = locked(&self.ends.0);
        for (at, id, end) in std::mem::take(&mut self.told) {
            if answers.get(at) == Some(&Settled::Accepted) {
                // Who comes from now on has a place of his own.
                if let Some(news) = waited.remove(&id) {
                    news.send_replace(News::Ended(Arc::new(end)));
                }
            } else if let Some(news) = waited.get(&id) {
                news.send_replace(News::Nothing);
            }
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        let waited = locked(&self.ends.0);
        for news in self.told.iter().filter_map(|(_, id, _)| waited.get(id)) {
            news.send_replace(News::Nothing);
        }
    }
}

/// The place of one who waits for the end of a job.
pub(crate) struct Waiting {
    id: JobId,
    news: Option<Receiver<News>>,
    ends: Ends,
}

impl Waiting {
    /// Completes when the job has ended well in this process; never otherwise.
    pub(crate) async fn told(&mut self) -> Arc<End> {
        match self.when(|news| matches!(news, News::Ended(_))).await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// Its end, if it is known here, or is being written just now and will be.
    pub(crate) async fn known(&mut self) -> Option<Arc<End>> {
        self.when(|news| !matches!(news, News::Settling)).await
    }

    async fn when(&mut self, is_so: impl FnMut(&News) -> bool) -> Option<Arc<End>> {
        let news = self.news.as_mut()?.wait_for(is_so).await.ok()?;
        if let News::Ended(end) = &*news { Some(Arc::clone(end)) } else { None }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waited = locked(&self.ends.0);
        // Under the lock: of two who leave, one sees that he is the last.
        drop(self.news.take());
        if waited.get(&self.id).is_some_and(|news| news.receiver_count() == 0) {
            waited.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use jiff::Timestamp;
    use serde::{Deserialize, Serialize};
    use tidemill_core::job::Options;
    use tidemill_core::{Payload, Priority, Token};

    use super::*;
    use crate::{Job, Tidemill};

    /// How long anything here may take.
    const SOON: Duration = Duration::from_secs(20);

    #[derive(Debug, Serialize, Deserialize)]
    struct Told;

    impl Job for Told {
        const KIND: &'static str = "told";
        type Output = ();
    }

    fn done(id: JobId) -> SettleItem {
        let job = tidemill_core::Job {
            id,
            kind: "k".into(),
            queue: "q".into(),
            priority: Priority::Normal,
            tenant: None,
            key: None,
            unique_key: None,
            payload: Payload::null(),
            options: Options::default(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        SettleItem {
            job: Arc::new(job),
            token: Token(1),
            attempt: 1,
            lost: 0,
            started_at: Timestamp::UNIX_EPOCH,
            gates: Vec::new(),
            settlement: Settlement::Done { output: Payload::null(), follow_ups: Vec::new() },
            decided: false,
            run: None,
        }
    }

    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn who_waits_is_told_what_was_written_and_nothing_before() {
        let (ends, id) = (Ends::default(), JobId::new());
        let mut waiting = ends.expect(id);
        assert!(poll(waiting.told()).is_pending());
        let settling = ends.settling(&[done(JobId::new()), done(id)]);
        assert!(poll(waiting.known()).is_pending(), "it will be known at once");
        settling.settled(&[Settled::Accepted, Settled::Accepted]);
        let mut later = ends.expect(id);
        assert!(poll(later.told()).is_pending(), "it is told to those who waited");
        assert!(matches!(poll(waiting.told()), Poll::Ready(end) if end.state == State::Done));
        drop(waiting);
        assert_eq!(locked(&ends.0).len(), 1, "somebody else waits by now");
        drop(later);
        assert!(locked(&ends.0).is_empty());
    }

    #[test]
    fn what_was_refused_or_never_answered_is_left_to_a_look() {
        let (ends, id) = (Ends::default(), JobId::new());
        let (mut waiting, other) = (ends.expect(id), ends.expect(id));
        ends.settling(&[done(id)]).settled(&[Settled::Stale]);
        assert!(matches!(poll(waiting.known()), Poll::Ready(None)));
        drop(ends.settling(&[done(id)]));
        assert!(matches!(poll(waiting.known()), Poll::Ready(None)));
        assert!(poll(waiting.told()).is_pending());
        drop(other);
        assert_eq!(locked(&ends.0).len(), 1, "somebody still waits");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_result_that_is_told_is_not_looked_for() {
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let id = mill.enqueue(Told).await.unwrap().id();
        let here = mill.clone();
        let result = tokio::spawn(async move { here.result::<Told>(id, SOON).await });
        while locked(&mill.0.ends.0).is_empty() {
            tokio::task::yield_now().await;
        }
        // Nobody has run it: the store would say that it waits.
        mill.0.ends.settling(&[done(id)]).settled(&[Settled::Accepted]);
        result.await.unwrap().unwrap();
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_worker_of_this_process_tells() {
        let mill = Tidemill::open("sqlite::memory:").await.unwrap();
        let id = mill.enqueue(Told).await.unwrap().id();
        let mut waiting = mill.0.ends.expect(id);
        let worker = mill.worker().handle(|_: Told, _cx| async { Ok(()) }).start().await.unwrap();
        let end = tokio::time::timeout(SOON, waiting.told()).await.unwrap();
        assert_eq!(end.state, State::Done);
        worker.stop().await;
    }
}
