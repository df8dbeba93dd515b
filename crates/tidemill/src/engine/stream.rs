//! Following the stream of a job, from any process, also long after; and adding to one on behalf of a worker.
//!
//! Whoever follows reads what is kept from the store, and is then handed what is new by this process' one reader
//! (`hub`). Numbers have no gaps, so one who was handed something out of turn, or too slow to be handed all, knows it
//! and reads from the store again: nothing is lost, and nobody is waited for.

pub(crate) mod hub;

use std::collections::VecDeque;
use std::sync::Arc;

use futures::Stream;
use tidemill_core::stream::{Chunk, End, Event};
use tidemill_core::{JobId, WorkerId};
use tidemill_store::stream::{StreamAnswer, StreamItem};
use tokio::sync::broadcast::error::RecvError;

use crate::engine::Tidemill;
use crate::engine::telemetry::verb;
use crate::error::{Error, Result};
use hub::{News, Seat};

/// Behind this there is no number.
const AFTER_MAX: u64 = i64::MAX as u64 - 1;

impl Tidemill {
    /// Follows the stream of a job: first the chunks after this number that are kept (0: all), then what comes, and
    /// at last how the job ended. It may be followed from any process, and while it waits, runs, or is over.
    ///
    /// ```
    /// # use tidemill::{Enqueue, Event, Fail, Payload, Progress, Settings, Tidemill};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = Tidemill::open("sqlite::memory:").await?;
    /// let worker = mill.worker().handle_raw("count", Settings::default(), |_, cx| async move {
    ///     for step in 1..=3 {
    ///         cx.progress(Progress::of(step, 3)).await?;
    ///     }
    ///     Ok::<_, Fail>(Payload::null())
    /// });
    /// let worker = worker.start().await?;
    /// let id = mill.enqueue(Enqueue::raw("count", "null")).await?.id();
    /// let mut stream = mill.stream(id, 0).await?;
    /// while let Some(event) = stream.next().await? {
    ///     match event {
    ///         Event::Chunk(chunk) => println!("{:?}: {:?}", chunk.number, chunk.said),
    ///         Event::End(end) => println!("it is {}", end.state.word()),
    ///     }
    /// }
    /// # worker.stop().await; mill.close().await; Ok(()) }
    /// ```
    pub async fn stream(&self, id: JobId, after: u64) -> Result<Follow> {
        let is_over = self.job(id).await?.ok_or(Error::JobUnknown { id })?.state.is_final();
        Ok(Follow {
            mill: self.clone(),
            id,
            seen: after.min(AFTER_MAX),
            ready: VecDeque::new(),
            reads: true,
            ends: is_over,
            seat: None,
            told: false,
        })
    }

    /// Whether the stream of a job has more than was seen. It waits for nothing.
    pub async fn has_said_more(&self, id: JobId, seen: u64) -> Result<bool> {
        let pages = self.0.store.streams_after(vec![(id, seen.min(AFTER_MAX))]).await?;
        Ok(pages.first().is_some_and(|page| !page.chunks.is_empty()))
    }

    /// Adds to the streams of jobs that this worker holds, as [`Context::text`](crate::Context::text) and its like do
    /// for handlers of this process: each item under its token, all of them in one transaction. Answers stand in the
    /// order of the items; a lost lease is one of them. Refused with `chunk_too_large`, and nothing is written, when a
    /// chunk is.
    pub async fn append_stream(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
    ) -> Result<Vec<StreamAnswer>> {
        let limits = &self.0.limits;
        for (at, item) in items.iter().enumerate() {
            let (said, ephemeral) = (item.said.iter(), item.ephemeral.iter());
            let mut all = said.map(|said| (said, false)).chain(ephemeral.map(|said| (said, true)));
            let checked = all.try_for_each(|(said, brief)| said.check(brief, limits).map(drop));
            checked.map_err(|error| Error::from(error).in_batch(at))?;
        }
        let items = self.without_secrets(worker, items).await?;
        let writing = self.0.store.append_stream(worker, items, limits.stream_bytes_max);
        let answers = verb("append_stream", 1, writing).await?;
        let stale = answers.iter().filter(|answer| **answer == StreamAnswer::Stale).count();
        self.0.measures.streams_stale.add(stale as u64);
        Ok(answers)
    }

    /// What a worker says may have in it what is not to be seen of its job's payload.
    async fn without_secrets(
        &self,
        worker: WorkerId,
        mut items: Vec<StreamItem>,
    ) -> Result<Vec<StreamItem>> {
        if self.0.hidden.is_empty() {
            return Ok(items);
        }
        let asked: Vec<_> = items.iter().map(|item| (item.token, item.job)).collect();
        let mut held = self.0.hands.find(worker, asked.iter().copied());
        if held.iter().any(Option::is_none) {
            held = self.0.store.held(worker, &asked).await?;
        }
        for (item, held) in items.iter_mut().zip(held) {
            // Whose lease is lost writes nothing.
            let Some(held) = held else { continue };
            let secrets = self.0.hidden.secrets(held.job.payload.as_str());
            for said in item.said.iter_mut().chain(&mut item.ephemeral) {
                *said = said.clone().without(&secrets);
            }
        }
        Ok(items)
    }
}

/// The stream of a job, as it comes.
#[derive(Debug)]
pub struct Follow {
    mill: Tidemill,
    id: JobId,
    /// The number of the last chunk that was taken up.
    seen: u64,
    ready: VecDeque<Event>,
    /// The store may have more than was seen.
    reads: bool,
    /// The job may have ended.
    ends: bool,
    seat: Option<Seat>,
    /// Its end was told.
    told: bool,
}

impl Follow {
    /// What comes next; `None` after the end. May be dropped while it waits, and asked again.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.told = matches!(event, Event::End(_));
                return Ok(Some(event));
            }
            if self.told {
                return Ok(None);
            }
            if self.reads {
                self.read().await?;
            } else if self.ends {
                self.end().await?;
            } else {
                self.hear().await;
            }
        }
    }

    /// The same as a [`Stream`](futures::Stream). It ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Event>> + Send {
        futures::stream::try_unfold(self, |mut follow| async move {
            Ok(follow.next().await?.map(|event| (event, follow)))
        })
    }

    /// The number of the last chunk that was handed out or is about to be: where to go on.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Reads on in the store. Whoever has read all of it takes a seat, if the job goes on.
    async fn read(&mut self) -> Result<()> {
        let mut pages = self.mill.0.store.streams_after(vec![(self.id, self.seen)]).await?;
        let page = pages.pop().unwrap_or_default();
        self.reads = page.more;
        page.chunks.into_iter().for_each(|chunk| self.take_up(chunk));
        if !self.reads && !self.ends && self.seat.is_none() {
            let (seat, last) = self.mill.0.hub.take_seat(&self.mill.0.store, self.id, self.seen);
            self.seat = Some(seat);
            self.reads = last > self.seen;
        }
        Ok(())
    }

    /// Waits for what is new.
    async fn hear(&mut self) {
        let Some(seat) = &mut self.seat else {
            self.reads = true;
            return;
        };
        match seat.news.recv().await {
            Ok(News::Chunks(chunks)) => {
                for chunk in chunks.iter() {
                    match chunk.number {
                        Some(number) if number <= self.seen => {}
                        Some(number) if number > self.seen + 1 => self.reads = true,
                        _ => self.take_up(chunk.clone()),
                    }
                }
            }
            Ok(News::Ephemeral(chunk)) => self.ready.push_back(Event::Chunk(Chunk::clone(&chunk))),
            Ok(News::Ended) | Err(RecvError::Closed) => {
                self.seat = None;
                (self.reads, self.ends) = (true, true);
            }
            Err(RecvError::Lagged(_)) => self.reads = true,
        }
    }

    fn take_up(&mut self, chunk: Chunk) {
        self.seen = chunk.number.unwrap_or(self.seen);
        self.ready.push_back(Event::Chunk(chunk));
    }

    /// Everything that was said was read after the job was found to have ended: tells how. One that was dead and was
    /// sent on its way again goes on.
    async fn end(&mut self) -> Result<()> {
        let id = self.id;
        let view = self.mill.job(id).await?.ok_or(Error::JobUnknown { id })?;
        if view.state.is_final() {
            self.ready.push_back(Event::End(End { state: view.state, error: view.error }));
        } else {
            (self.reads, self.ends) = (true, false);
        }
        Ok(())
    }
}

/// The chunks of one read, for all who follow.
pub(crate) type Chunks = Arc<[Chunk]>;
