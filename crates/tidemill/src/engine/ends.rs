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
        let waited = locked(&self.0);
        let mut told = Vec::new();
        if !waited.is_empty() {
            for (at, item) in items.iter().enumerate() {
                // What is decided in a transaction of the handler's own is not known here.
                let Settlement::Done { output, .. } = &item.settlement else { continue };
                let (false, Some(news)) = (item.decided, waited.get(&item.job.id)) else {
                    continue;
                };
                news.send_replace(News::Settling);
                let (state, output) = (State::Done, Some(output.clone()));
                told.push((at, news.clone(), End { state, output, error: None }));
            }
        }
        Settling(told)
    }
}

/// Ends that are being written. Dropped, whoever waits for one looks for himself.
pub(crate) struct Settling(Vec<(usize, Sender<News>, End)>);

impl Settling {
    /// Tells of those that were written.
    pub(crate) fn settled(mut self, answers: &[Settled]) {
        for (at, news, end) in std::mem::take(&mut self.0) {
            let is_written = answers.get(at) == Some(&Settled::Accepted);
            news.send_replace(if is_written { News::Ended(Arc::new(end)) } else { News::Nothing });
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        for (_, news, _) in &self.0 {
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

    use jiff::Timestamp;
    use tidemill_core::job::Options;
    use tidemill_core::{Job, Payload, Priority, Token};

    use super::*;

    fn done(id: JobId) -> SettleItem {
        let job = Job {
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
        assert!(matches!(poll(waiting.told()), Poll::Ready(end) if end.state == State::Done));
        drop(waiting);
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
}
