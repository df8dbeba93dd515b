//! What a transaction has to tell once it is durable, and to whom.
//!
//! Refuses to remember for long who waits for a job: a watch that is not renewed is forgotten.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidemill_core::flow::Arrival;
use tidemill_core::{FlowId, JobId, WorkerId};

use crate::followed::Followed;
use crate::sqlite::depth::DepthNews;
use crate::wake::{Hint, Wake};
use crate::wanted::Wanted;

/// Those who wait say so again every twenty seconds.
const WATCH_TTL: Duration = Duration::from_mins(1);
const WATCHED_MAX: usize = 100_000;

/// Queues, and how many jobs may have come to wait there.
pub(super) type Ready = BTreeMap<String, usize>;

/// What one operation changed that others may wait for.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Queues that got jobs.
    pub ready: Ready,
    /// Jobs that finished.
    pub finished: Vec<JobId>,
    /// Workers that have a job which was called off.
    pub called_off: BTreeSet<WorkerId>,
    /// Whether schedules were changed.
    pub schedules: bool,
    /// Flows of which jobs have ended, or run again: they are carried on before the turn is over.
    pub flows: BTreeMap<FlowId, Vec<Arrival>>,
    /// Whether something is to be done for flows that no job's end does.
    pub tend: bool,
    /// Runs for which something came.
    pub mail: BTreeSet<JobId>,
    /// Whether a run has ended that owes something.
    pub debts: bool,
    /// Jobs whose streams have more.
    pub streams: Vec<JobId>,
}

impl News {
    /// A job waits in this queue.
    pub fn ready(&mut self, queue: &str) {
        self.add(queue, 1);
    }

    /// Any number of jobs may wait in this queue that did not before.
    pub fn open(&mut self, queue: &str) {
        self.add(queue, usize::MAX);
    }

    /// Jobs of a step of this flow have ended, or run again.
    pub fn arrive(&mut self, flow: FlowId, arrival: Arrival) {
        let arrivals = self.flows.entry(flow).or_default();
        let is_alike = |before: &&mut Arrival| {
            before.step == arrival.step && (before.failed < 0) == (arrival.failed < 0)
        };
        match arrivals.iter_mut().find(is_alike) {
            Some(before) => {
                before.ok += arrival.ok;
                before.failed += arrival.failed;
            }
            None => arrivals.push(arrival),
        }
    }

    fn add(&mut self, queue: &str, jobs: usize) {
        match self.ready.get_mut(queue) {
            Some(before) => *before = before.saturating_add(jobs),
            None => drop(self.ready.insert(queue.to_owned(), jobs)),
        }
    }
}

/// Those of this process who listen, and the jobs they wait for.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    pub wake: Wake,
    pub wanted: Wanted,
    pub followed: Followed,
    watched: Mutex<HashMap<JobId, Instant>>,
}

impl Listeners {
    /// Remembers that somebody waits for this job.
    pub fn watch(&self, id: JobId) {
        let now = Instant::now();
        let mut watched = self.watched();
        if watched.len() >= WATCHED_MAX {
            watched.retain(|_, until| *until > now);
        }
        if watched.len() < WATCHED_MAX {
            watched.insert(id, now + WATCH_TTL);
        }
    }

    /// Remembers that somebody follows these jobs.
    pub fn follow(&self, ids: &[JobId]) {
        for id in ids {
            self.watch(*id);
        }
        for id in self.followed.follow(ids) {
            self.wake.tell(Hint::Stream { id });
        }
    }

    /// Tells what is durable now.
    pub fn tell(&self, news: News) {
        for queue in news.ready.into_keys() {
            self.wake.tell(Hint::Ready { queue });
        }
        for worker in news.called_off {
            self.wake.tell(Hint::Cancel { worker });
        }
        if news.tend {
            self.wake.tell(Hint::Flows);
        }
        for id in news.mail {
            self.wake.tell(Hint::Mail { id });
        }
        if news.debts {
            self.wake.tell(Hint::Runs);
        }
        if news.schedules {
            self.wake.tell(Hint::Schedules);
        }
        if !news.streams.is_empty() {
            for id in self.followed.written(news.streams.into_iter()) {
                self.wake.tell(Hint::Stream { id });
            }
        }
        if news.finished.is_empty() {
            return;
        }
        let mut watched = self.watched();
        if watched.is_empty() {
            return;
        }
        for id in news.finished {
            if watched.remove(&id).is_some() {
                self.wake.tell(Hint::Finished { id });
            }
        }
    }

    /// Tells what became of depths.
    pub fn tell_depths(&self, news: DepthNews) {
        for queue in self.wanted.of(news.went.iter().map(String::as_str)) {
            self.wake.tell(Hint::Room { queue: queue.to_owned() });
        }
        for queue in news.crossed {
            self.wake.tell(Hint::Watermark { queue });
        }
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<JobId, Instant>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(id: JobId) -> News {
        News { finished: vec![id], ..News::default() }
    }

    #[test]
    fn only_watched_jobs_are_told_of() {
        let listeners = Listeners::default();
        let mut heard = listeners.wake.listen();
        let (watched, other) = (JobId::new(), JobId::new());
        listeners.watch(watched);
        listeners.tell(finished(other));
        listeners.tell(finished(watched));
        assert_eq!(heard.try_recv(), Ok(Hint::Finished { id: watched }));
        assert!(heard.try_recv().is_err());
    }

    #[test]
    fn watches_are_bounded() {
        let listeners = Listeners::default();
        for _ in 0..=WATCHED_MAX {
            listeners.watch(JobId::new());
        }
        assert_eq!(listeners.watched().len(), WATCHED_MAX);
    }
}
