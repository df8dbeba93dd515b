//! What the engine asks of a store about streams, and what it is answered.
//!
//! What is written together is one row: its chunks as a JSON array, the number of the first, and how many bytes the
//! stream has up to there. So a write only ever adds a row, and neither counts nor changes another.

use async_trait::async_trait;
use jiff::Timestamp;
use tidemill_core::stream::{Chunk, Progress, Said};
use tidemill_core::{JobId, Token, WorkerId};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::followed::Followed;
use crate::wake::Hint;

/// Bytes of one read of a stream: once it has so many it ends with the row it is at.
pub const PAGE_BYTES: u64 = 256 * 1024;

/// What an attempt wants added to the stream of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamItem {
    /// Whose stream.
    pub job: JobId,
    /// The token of its claim.
    pub token: Token,
    /// Sent again under the same id, right after, it is written once.
    pub sent: Uuid,
    /// What is kept, in this order: all of it, or nothing.
    pub said: Vec<Said>,
    /// What reaches only who listens now.
    pub ephemeral: Vec<Said>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAnswer {
    /// It is written.
    Kept {
        /// The number of the last chunk that the stream has; 0: it has none.
        last: u64,
    },
    /// The stream would have too many bytes; nothing was written.
    Full {
        /// So many more it may have.
        bytes_left: u64,
    },
    /// The lease was lost; nothing was written.
    Stale,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamPage {
    /// As many chunks as make [`PAGE_BYTES`]; none when there are none.
    pub chunks: Vec<Chunk>,
    /// Whether others follow.
    pub more: bool,
}

/// Durable memory of streams.
#[async_trait]
pub trait Streams: Send + Sync {
    /// Adds to streams, each only if its token still holds, and numbers what is added behind what is there: 1, 2, 3,
    /// without a gap. No stream gets more than `bytes_max` bytes. Answers stand in the order of the items. Tells
    /// `Hint::Stream` and `Hint::Ephemeral` for jobs that somebody follows (`Hint::Follow`).
    async fn append_stream(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
        bytes_max: u64,
    ) -> Result<Vec<StreamAnswer>>;

    /// A page of each of these streams: the chunks after these numbers, in order. Answers stand in the order of the
    /// jobs.
    async fn streams_after(&self, jobs: Vec<(JobId, u64)>) -> Result<Vec<StreamPage>>;

    /// A chunk that came by `Hint::Ephemeral`, as it was said.
    fn heard(&self, chunk: Chunk) -> Chunk {
        chunk
    }
}

/// What is written in one row.
pub(crate) struct Written {
    pub chunks: String,
    /// The last progress among them.
    pub progress: Option<String>,
}

impl Written {
    pub fn of(said: &[Said]) -> Result<Self> {
        let last = said.iter().rev().find_map(|said| match said {
            Said::Progress(progress) => Some(progress),
            _ => None,
        });
        let unwritable = |e: serde_json::Error| Error::Database { reason: e.to_string() };
        let progress = last.map(serde_json::to_string).transpose().map_err(unwritable)?;
        Ok(Self { chunks: serde_json::to_string(said).map_err(unwritable)?, progress })
    }

    pub fn bytes(&self) -> i64 {
        self.chunks.len() as i64
    }
}

impl StreamPage {
    /// Adds what a row has after a number, of a stream that ends with the number `end`.
    pub(crate) fn add(&mut self, after: u64, row: (i64, Timestamp, &str), end: i64) -> Result<()> {
        let (first, at, text) = row;
        self.chunks.extend(chunks(after, first, at, text)?);
        self.more = self.chunks.last().and_then(|last| last.number) < Some(end as u64);
        Ok(())
    }
}

/// The chunks of a row that come after a number.
fn chunks(
    after: u64,
    first: i64,
    at: Timestamp,
    text: &str,
) -> Result<impl Iterator<Item = Chunk>> {
    let said: Vec<Said> =
        serde_json::from_str(text).map_err(|e| Error::Database { reason: e.to_string() })?;
    let numbered = (first as u64..).zip(said).filter(move |(number, _)| *number > after);
    Ok(numbered.map(move |(number, said)| Chunk { number: Some(number), at, said }))
}

/// The progress that was kept. What cannot be read is as if it were not there.
pub(crate) fn progress(text: Option<&str>) -> Option<Progress> {
    text.and_then(|text| serde_json::from_str(text).ok())
}

/// The hints that carry what is ephemeral to those who follow. Two that say the same are two.
pub(crate) fn ephemeral(
    items: &[StreamItem],
    answers: &[StreamAnswer],
    at: Timestamp,
    followed: &Followed,
) -> Vec<Hint> {
    let living = items.iter().zip(answers).filter(|(item, answer)| {
        **answer != StreamAnswer::Stale && !item.ephemeral.is_empty() && followed.has(item.job)
    });
    let said = living.flat_map(|(item, _)| item.ephemeral.iter().map(|said| (item.job, said)));
    said.map(|(id, said)| {
        let chunk = Chunk { number: None, at, said: said.clone() };
        Hint::Ephemeral { id, serial: fastrand::u32(..), chunk: Box::new(chunk) }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_what_comes_after_a_number() -> Result<()> {
        let said =
            [Said::text("a"), Progress::of(1, 3).into(), Said::log("b"), Progress::of(2, 3).into()];
        let written = Written::of(&said)?;
        assert_eq!(progress(written.progress.as_deref()), Some(Progress::of(2, 3)));
        let read: Vec<_> = chunks(6, 5, Timestamp::UNIX_EPOCH, &written.chunks)?.collect();
        assert_eq!(read.iter().map(|chunk| chunk.number).collect::<Vec<_>>(), [Some(7), Some(8)]);
        assert_eq!(read[0].said, said[2]);
        Ok(())
    }
}
