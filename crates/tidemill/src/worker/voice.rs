//! What a handler says while it runs: kept in its job's stream, or passed on to who listens.
//!
//! To say something costs no write of its own: what is said while a write is under way goes with the next (`scribe`).
//! What waits to be written is bounded; who says more waits. All of it is written before the attempt is settled.

use std::sync::{Arc, Mutex};

use tidemill_core::stream::{Progress, Said};
use tidemill_core::{Error as Invalid, JobId, Limits, Token, WorkerId};
use tidemill_store::stream::StreamItem;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::worker::context::Context;
use crate::worker::durable::looking::For;
use crate::worker::scribe::Scribe;
use crate::worker::shop::locked;

/// What one attempt may have said that is not written yet.
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;

impl Context {
    /// Says how far the job has come. See [`text`](Self::text).
    ///
    /// ```
    /// # use tidemill::{Context, Fail, Progress};
    /// # async fn resize(cx: Context, pictures: Vec<String>) -> Result<(), Fail> {
    /// let total = pictures.len() as u64;
    /// for (step, picture) in (0..).zip(&pictures) {
    ///     cx.progress(Progress::of(step, total).message(picture)).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn progress(&self, progress: Progress) -> Result<()> {
        self.voice().say(self, self.shown(progress.into())).await
    }

    /// Adds a line to the log that the stream of the job carries. See [`text`](Self::text).
    pub async fn log(&self, message: impl Into<String> + Send) -> Result<()> {
        self.voice().say(self, self.shown(Said::log(message))).await
    }

    /// Adds a piece of text to the stream of the job, such as a token of a model.
    ///
    /// It is written soon after this returns, together with what is said meanwhile, and before the attempt is settled.
    /// Refused with `chunk_too_large` or `stream_full` by [`Limits`], and with `lease_lost` when the attempt is over;
    /// what was refused when it came to be written is told by the next call.
    pub async fn text(&self, text: impl Into<String> + Send) -> Result<()> {
        self.voice().say(self, self.shown(Said::text(text))).await
    }

    /// Says something to those who listen now; it is not kept, and has no number. It reaches who listens at other
    /// nodes as well as hints do: on SQLite, not other processes.
    pub async fn ephemeral(&self, said: impl Into<Said> + Send) -> Result<()> {
        self.voice().say_ephemeral(self, self.shown(said.into())).await
    }
}

/// The voice of one attempt.
pub(crate) struct Voice {
    /// Nobody: the attempt only follows what was recorded.
    scribe: Option<Arc<Scribe>>,
    job: JobId,
    token: Token,
    worker: WorkerId,
    unwritten: Mutex<Unwritten>,
    written: watch::Sender<()>,
}

#[derive(Default)]
struct Unwritten {
    said: Vec<Said>,
    ephemeral: Vec<Said>,
    bytes: usize,
    /// It waits for the scribe, or is being written.
    queued: bool,
    refused: Option<Refused>,
}

/// Why nothing more is written.
#[derive(Debug, Clone)]
pub(crate) enum Refused {
    /// The attempt is over.
    Over,
    /// The stream is full; what is ephemeral is still passed on.
    Full { bytes_max: u64 },
    /// The store cannot write it.
    Unwritable(tidemill_store::Error),
}

impl Voice {
    pub(crate) fn new(scribe: Arc<Scribe>, job: JobId, token: Token, worker: WorkerId) -> Self {
        Self::of(Some(scribe), job, token, worker)
    }

    /// One that nobody hears.
    pub(crate) fn mute(job: JobId, token: Token) -> Self {
        Self::of(None, job, token, WorkerId(Uuid::nil()))
    }

    fn of(scribe: Option<Arc<Scribe>>, job: JobId, token: Token, worker: WorkerId) -> Self {
        let (unwritten, written) = (Mutex::default(), watch::Sender::default());
        Self { scribe, job, token, worker, unwritten, written }
    }

    pub(crate) fn worker(&self) -> WorkerId {
        self.worker
    }

    async fn say(self: &Arc<Self>, cx: &Context, said: Said) -> Result<()> {
        let Some(scribe) = &self.scribe else { return Ok(()) };
        let bytes = said.check(false, scribe.limits())?;
        self.push((cx, scribe), bytes, |unwritten| match &unwritten.refused {
            None => {
                unwritten.said.push(said);
                Ok(())
            }
            Some(refused) => Err(refused.error(self.job)),
        })
        .await
    }

    async fn say_ephemeral(self: &Arc<Self>, cx: &Context, said: Said) -> Result<()> {
        let Some(scribe) = &self.scribe else { return Ok(()) };
        let bytes = said.check(true, scribe.limits())?;
        self.push((cx, scribe), bytes, |unwritten| match &unwritten.refused {
            None | Some(Refused::Full { .. }) => {
                unwritten.ephemeral.push(said);
                Ok(())
            }
            Some(refused) => Err(refused.error(self.job)),
        })
        .await
    }

    /// Adds to what is unwritten, once there is room for it.
    async fn push(
        self: &Arc<Self>,
        (cx, scribe): (&Context, &Arc<Scribe>),
        bytes: usize,
        add: impl FnOnce(&mut Unwritten) -> Result<()>,
    ) -> Result<()> {
        loop {
            let mut written = {
                let mut unwritten = locked(&self.unwritten);
                if unwritten.bytes == 0 || unwritten.bytes + bytes <= UNWRITTEN_BYTES_MAX {
                    add(&mut unwritten)?;
                    unwritten.bytes += bytes;
                    if !std::mem::replace(&mut unwritten.queued, true) {
                        scribe.queue(Arc::clone(self));
                    }
                    return Ok(());
                }
                self.written.subscribe()
            };
            // With the last voice nobody waits any more.
            let call = async move { drop(written.changed().await) };
            cx.at_store(For::Room, call).await;
        }
    }

    /// What is to be written now.
    pub(crate) fn take(&self) -> StreamItem {
        let mut unwritten = locked(&self.unwritten);
        let (said, ephemeral) =
            (std::mem::take(&mut unwritten.said), std::mem::take(&mut unwritten.ephemeral));
        StreamItem { job: self.job, token: self.token, sent: Uuid::now_v7(), said, ephemeral }
    }

    /// What was taken is written, or refused. Answers whether there is more by now.
    pub(crate) fn written(&self, refused: Option<Refused>) -> bool {
        let mut unwritten = locked(&self.unwritten);
        if let Some(refused) = refused {
            unwritten.refused.get_or_insert(refused);
            unwritten.said.clear();
        }
        unwritten.bytes = unwritten.said.iter().chain(&unwritten.ephemeral).map(Said::bytes).sum();
        unwritten.queued = !unwritten.said.is_empty() || !unwritten.ephemeral.is_empty();
        let is_queued = unwritten.queued;
        drop(unwritten);
        self.written.send_replace(());
        is_queued
    }

    /// The attempt has ended: nothing more is said, and what was said is written when this returns.
    pub(crate) async fn end(&self) {
        loop {
            let mut written = {
                let mut unwritten = locked(&self.unwritten);
                unwritten.refused.get_or_insert(Refused::Over);
                if !unwritten.queued {
                    return;
                }
                self.written.subscribe()
            };
            let _ = written.changed().await;
        }
    }
}

impl Refused {
    fn error(&self, id: JobId) -> Error {
        match self {
            Self::Over => Error::LeaseLost { id },
            Self::Full { bytes_max } => Invalid::StreamFull { bytes_max: *bytes_max }.into(),
            Self::Unwritable(error) => error.clone().into(),
        }
    }

    /// How a stream is full by these limits.
    pub(crate) fn full(limits: &Limits) -> Self {
        Self::Full { bytes_max: limits.stream_bytes_max }
    }
}
