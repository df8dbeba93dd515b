//! The one reader of this process: it reads what is new in each stream that is followed once, and hands it to all who
//! follow it.
//!
//! It looks at a stream when a hint says so, at all of them when anything may have changed, and now and then in any
//! case. However many are followed, one look is under way at a time, and looks at all of them take a small part of its
//! time. Who is slow is not waited for: the seat holds few reads, and who missed one reads the store for himself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_core::JobId;
use tidemill_core::stream::Chunk;
use tidemill_store::stream::StreamPage;
use tidemill_store::wake::FOLLOW_JOBS_MAX;
use tidemill_store::{Error, Hint, Result, Store};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{Notify, broadcast};
use tokio::time::Instant;

use super::Chunks;
use crate::engine::wait::WATCH_AGAIN;
use crate::worker::shop::locked;

/// Reads that wait for one who follows.
const SEAT_READS_MAX: usize = 16;
/// Streams of one look.
const LOOK_JOBS_MAX: usize = 1000;
/// Between two looks at all streams, at least; and this many times as long as the last one took.
const ALL_GAP_MIN: Duration = Duration::from_millis(5);
const ALL_GAP_TIMES: u32 = 4;
/// All streams are looked at without a hint as often as this, or ever more rarely if a look takes long.
const LOOK_ALWAYS: Duration = Duration::from_secs(1);
const LOOK_ALWAYS_TIMES: u32 = 20;
/// The pause after a look that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(100);

/// What those who follow a stream are told.
#[derive(Debug, Clone)]
pub(crate) enum News {
    /// What was written.
    Chunks(Chunks),
    /// What is not kept.
    Ephemeral(Arc<Chunk>),
    /// The job has ended.
    Ended,
}

/// Where streams are read for all who follow them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hub(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    topics: Mutex<Topics>,
    /// Somebody came, or went.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Topics {
    of: HashMap<JobId, Topic>,
    /// Those that nobody has looked at yet.
    new: Vec<JobId>,
    /// Somebody reads.
    read: bool,
}

#[derive(Debug)]
struct Topic {
    /// The number of the last chunk that was read.
    last: u64,
    news: broadcast::Sender<News>,
}

/// The place of one who follows a stream.
#[derive(Debug)]
pub(crate) struct Seat {
    id: JobId,
    pub(crate) news: broadcast::Receiver<News>,
    hub: Hub,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut topics = locked(&self.hub.0.topics);
        // Our own receiver is still there.
        if topics.of.get(&self.id).is_some_and(|topic| topic.news.receiver_count() <= 1) {
            topics.of.remove(&self.id);
            if topics.of.is_empty() {
                self.hub.0.changed.notify_one();
            }
        }
    }
}

impl Hub {
    /// How many follow streams in this process.
    pub(crate) fn seats(&self) -> usize {
        locked(&self.0.topics).of.values().map(|topic| topic.news.receiver_count()).sum()
    }

    /// A place among those who follow this stream, for one who has read up to here; and how far all have read. One who
    /// says to have read more than there is is told what comes behind that, and keeps nothing from the others.
    pub(crate) fn take_seat(&self, store: &Arc<dyn Store>, id: JobId, seen: u64) -> (Seat, u64) {
        let mut topics = locked(&self.0.topics);
        let mut is_new = false;
        let topic = topics.of.entry(id).or_insert_with(|| {
            is_new = true;
            Topic { last: seen, news: broadcast::Sender::new(SEAT_READS_MAX) }
        });
        let (news, last) = (topic.news.subscribe(), topic.last);
        topic.last = last.min(seen);
        if is_new {
            topics.new.push(id);
            self.0.changed.notify_one();
        }
        if !std::mem::replace(&mut topics.read, true) {
            let reader = Reader::new(self.clone(), Arc::clone(store));
            tokio::spawn(reader.read());
        }
        (Seat { id, news, hub: self.clone() }, last)
    }
}

/// Reads until nobody follows any stream.
struct Reader {
    hub: Hub,
    store: Arc<dyn Store>,
    hints: broadcast::Receiver<Hint>,
    /// To be looked at.
    due: HashSet<JobId>,
    /// To be looked at whether they have ended.
    ended: HashSet<JobId>,
    /// When all are looked at.
    all_at: Instant,
    /// Before this, hints do not make it look at all.
    all_not_before: Instant,
    /// When those who write are told again who is followed.
    follow_at: Instant,
    /// The store refuses, and it was said.
    is_refused: bool,
}

impl Reader {
    fn new(hub: Hub, store: Arc<dyn Store>) -> Self {
        let (hints, now) = (store.wake().listen(), Instant::now());
        Self {
            hub,
            store,
            hints,
            due: HashSet::new(),
            ended: HashSet::new(),
            all_at: now,
            all_not_before: now,
            follow_at: now,
            is_refused: false,
        }
    }

    async fn read(mut self) {
        while self.take_new() {
            let now = Instant::now();
            if now >= self.follow_at {
                self.follow_at = now + WATCH_AGAIN;
                self.tell(&self.ids());
            }
            if now >= self.all_at {
                self.look_at_all().await;
            } else if !self.due.is_empty() {
                let (due, ended) = (std::mem::take(&mut self.due), std::mem::take(&mut self.ended));
                if let Err(error) = self.look(due.into_iter().collect(), &ended).await {
                    self.failed(&error);
                }
            } else {
                self.wait().await;
            }
        }
    }

    /// Takes up those that came; `false` when nobody is left, and the reading ends.
    fn take_new(&mut self) -> bool {
        let mut topics = locked(&self.hub.0.topics);
        let new = std::mem::take(&mut topics.new);
        topics.read = !topics.of.is_empty();
        let is_read = topics.read;
        drop(topics);
        self.tell(&new);
        self.ended.extend(&new);
        self.due.extend(new);
        is_read
    }

    fn ids(&self) -> Vec<JobId> {
        locked(&self.hub.0.topics).of.keys().copied().collect()
    }

    /// Says that these are followed.
    fn tell(&self, ids: &[JobId]) {
        for ids in ids.chunks(FOLLOW_JOBS_MAX) {
            self.store.hint(Hint::Follow { ids: ids.to_vec() });
        }
    }

    /// Waits until there is something to look at.
    async fn wait(&mut self) {
        let until = self.all_at.min(self.follow_at);
        tokio::select! {
            hint = self.hints.recv() => self.note(hint),
            () = self.hub.0.changed.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
        self.drain();
    }

    /// Notes what was told meanwhile.
    fn drain(&mut self) {
        loop {
            match self.hints.try_recv() {
                Ok(hint) => self.note(Ok(hint)),
                Err(TryRecvError::Lagged(missed)) => self.note(Err(RecvError::Lagged(missed))),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn note(&mut self, hint: std::result::Result<Hint, RecvError>) {
        match hint {
            Ok(Hint::Stream { id }) => drop(self.due.insert(id)),
            Ok(Hint::Finished { id }) => {
                self.due.insert(id);
                self.ended.insert(id);
            }
            Ok(Hint::Ephemeral { id, chunk, .. }) => {
                if let Some(topic) = locked(&self.hub.0.topics).of.get(&id) {
                    let chunk = Arc::new(self.store.heard(*chunk));
                    // Whoever followed may have gone just now.
                    let _ = topic.news.send(News::Ephemeral(chunk));
                }
            }
            Ok(Hint::Any) | Err(RecvError::Lagged(_)) => {
                self.all_at = self.all_at.min(self.all_not_before.max(Instant::now()));
            }
            Ok(_) | Err(RecvError::Closed) => {}
        }
    }

    async fn look_at_all(&mut self) {
        self.due.clear();
        self.ended.clear();
        let (began, ids) = (Instant::now(), self.ids());
        for ids in ids.chunks(LOOK_JOBS_MAX) {
            let all = ids.iter().copied().collect();
            if let Err(error) = self.look(ids.to_vec(), &all).await {
                return self.failed(&error);
            }
        }
        self.is_refused = false;
        let (took, now) = (began.elapsed(), Instant::now());
        self.all_not_before = now + ALL_GAP_MIN.max(took * ALL_GAP_TIMES);
        self.all_at = now + LOOK_ALWAYS.max(took * LOOK_ALWAYS_TIMES);
    }

    fn failed(&mut self, error: &Error) {
        // What is away comes back, as others say, too; what refuses may do so until somebody hears of it.
        if !error.is_temporary() && !std::mem::replace(&mut self.is_refused, true) {
            tracing::warn!(%error, "the store refuses to read streams; trying again");
        }
        tracing::debug!(%error, "streams could not be read; trying again");
        self.all_at = Instant::now() + FAILED_PAUSE;
        self.all_not_before = self.all_at;
    }

    /// Reads what is new in these streams, and hands it on; and looks whether these have ended.
    async fn look(&mut self, mut ids: Vec<JobId>, ended: &HashSet<JobId>) -> Result<()> {
        let ended: Vec<JobId> = ids.iter().filter(|id| ended.contains(*id)).copied().collect();
        // First: what a job said before it ended is then read in any case.
        let unfinished = if ended.is_empty() {
            HashSet::new()
        } else {
            self.store.unfinished_of(ended.clone()).await?
        };
        while !ids.is_empty() {
            let asked = self.places(&ids);
            let pages = self.pages(asked).await?.into_iter();
            ids = pages.filter_map(|(id, page)| self.hand_on(id, page).then_some(id)).collect();
            self.drain();
        }
        let mut topics = locked(&self.hub.0.topics);
        for id in ended.into_iter().filter(|id| !unfinished.contains(id)) {
            if let Some(topic) = topics.of.remove(&id) {
                let _ = topic.news.send(News::Ended);
            }
        }
        Ok(())
    }

    /// What is new in these streams. One of which what is kept cannot be read does not hold up the others: who follows
    /// it is sent to the store, which says why, and comes back if it was nothing. Nobody is sent there while it is the
    /// store that fails: it is asked for a stream that nobody writes, of which there is nothing to be read.
    async fn pages(&self, asked: Vec<(JobId, u64)>) -> Result<Vec<(JobId, StreamPage)>> {
        match self.store.streams_after(asked.clone()).await {
            Ok(pages) => return Ok(asked.into_iter().map(|(id, _)| id).zip(pages).collect()),
            Err(error) if error.is_temporary() => return Err(error),
            Err(_) => {}
        }
        self.store.streams_after(vec![(JobId::new(), 0)]).await?;
        let (mut all, mut unread) = (Vec::with_capacity(asked.len()), Vec::new());
        for (id, last) in asked {
            match self.store.streams_after(vec![(id, last)]).await {
                Ok(pages) => all.extend(pages.into_iter().map(|page| (id, page))),
                Err(error) if error.is_temporary() => return Err(error),
                Err(error) => unread.push((id, error)),
            }
        }
        for (id, error) in unread {
            tracing::warn!(job = %id, %error, "a stream cannot be read");
            if let Some(topic) = locked(&self.hub.0.topics).of.remove(&id) {
                let _ = topic.news.send(News::Ended);
            }
        }
        Ok(all)
    }

    /// How far these were read.
    fn places(&self, ids: &[JobId]) -> Vec<(JobId, u64)> {
        let topics = locked(&self.hub.0.topics);
        ids.iter().filter_map(|id| Some((*id, topics.of.get(id)?.last))).collect()
    }

    /// Hands on what was read; whether there is more.
    fn hand_on(&self, id: JobId, page: StreamPage) -> bool {
        let mut topics = locked(&self.hub.0.topics);
        let Some(topic) = topics.of.get_mut(&id) else { return false };
        if let Some(last) = page.chunks.last().and_then(|chunk| chunk.number) {
            topic.last = last;
            let _ = topic.news.send(News::Chunks(page.chunks.into()));
        }
        page.more
    }
}
