//! Writes what the attempts of a worker say, by natural batching: what is said while a write is under way goes with the
//! next, of all attempts together. There is no timer.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_core::stream::Said;
use tidemill_core::{Limits, WorkerId};
use tidemill_store::Error as StoreError;
use tidemill_store::stream::{StreamAnswer, StreamItem};
use uuid::Uuid;

use crate::worker::boss::Boss;
use crate::worker::shop::locked;
use crate::worker::voice::{Refused, Voice};

/// Attempts whose words go together.
const BATCH_MAX: usize = 100;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The pen of a worker.
pub(crate) struct Scribe {
    boss: Boss,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    voices: VecDeque<Arc<Voice>>,
    writes: bool,
}

impl Scribe {
    pub(crate) fn new(boss: Boss) -> Arc<Self> {
        Arc::new(Self { boss, waiting: Mutex::default() })
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.boss.limits()
    }

    /// An attempt has something to be written.
    pub(crate) fn queue(self: &Arc<Self>, voice: Arc<Voice>) {
        let mut waiting = locked(&self.waiting);
        waiting.voices.push_back(voice);
        if !std::mem::replace(&mut waiting.writes, true) {
            // A task of its own: the handler that spoke first may end, what others say must not wait for ever.
            tokio::spawn(Arc::clone(self).write());
        }
    }

    /// The attempts of one worker that are written next; none ends the writing.
    fn next(&self) -> Vec<Arc<Voice>> {
        let mut waiting = locked(&self.waiting);
        let worker = waiting.voices.front().map(|voice| voice.worker());
        let is_its = |voice: &&Arc<Voice>| Some(voice.worker()) == worker;
        let number = waiting.voices.iter().take(BATCH_MAX).take_while(is_its).count();
        waiting.writes = number > 0;
        waiting.voices.drain(..number).collect()
    }

    async fn write(self: Arc<Self>) {
        loop {
            let voices = self.next();
            let Some(worker) = voices.first().map(|voice| voice.worker()) else { return };
            let items: Vec<StreamItem> = voices.iter().map(|voice| voice.take()).collect();
            let came = self.append(worker, items).await;
            for (voice, refused) in voices.into_iter().zip(came) {
                if voice.written(refused) {
                    locked(&self.waiting).voices.push_back(voice);
                }
            }
        }
    }

    /// Writes items, for as long as it takes. Answers what was refused.
    async fn append(&self, worker: WorkerId, items: Vec<StreamItem>) -> Vec<Option<Refused>> {
        let mut pause = Duration::from_millis(20);
        loop {
            match self.boss.append_stream(worker, items.clone()).await {
                Ok(answers) => return self.answered(worker, items, answers).await,
                // One attempt whose words the store cannot write must not silence the others.
                Err(StoreError::Database { .. }) if items.len() > 1 => {
                    let mut refused = Vec::with_capacity(items.len());
                    for item in items {
                        refused.extend(Box::pin(self.append(worker, vec![item])).await);
                    }
                    return refused;
                }
                Err(error @ StoreError::Database { .. }) => {
                    tracing::error!(%error, "what an attempt said cannot be written");
                    return vec![Some(Refused::Unwritable(error))];
                }
                Err(_) => {
                    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    async fn answered(
        &self,
        worker: WorkerId,
        items: Vec<StreamItem>,
        answers: Vec<StreamAnswer>,
    ) -> Vec<Option<Refused>> {
        let mut refused = Vec::with_capacity(items.len());
        for (item, answer) in items.into_iter().zip(answers) {
            refused.push(match answer {
                StreamAnswer::Kept { .. } => None,
                StreamAnswer::Stale => {
                    if let Boss::Here(mill) = &self.boss {
                        mill.0.measures.streams_stale.add(1);
                    }
                    Some(Refused::Over)
                }
                StreamAnswer::Full { bytes_left } => {
                    let id = item.job;
                    tracing::warn!(%id, "the stream of a job is full; what it says is not kept");
                    let item = StreamItem { said: fitting(item.said, bytes_left), ..item };
                    if !item.said.is_empty() {
                        let item =
                            StreamItem { sent: Uuid::now_v7(), ephemeral: Vec::new(), ..item };
                        Box::pin(self.append(worker, vec![item])).await;
                    }
                    Some(Refused::full(self.limits()))
                }
            });
        }
        refused
    }
}

/// The first of these that have no more bytes together, as they are kept: in a list, with commas between them.
fn fitting(mut said: Vec<Said>, bytes_left: u64) -> Vec<Said> {
    let mut bytes = 1;
    let fits = said.iter().take_while(|one| {
        bytes += one.bytes() as u64 + 1;
        bytes <= bytes_left
    });
    let number = fits.count();
    said.truncate(number);
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_is_kept_as_fits() {
        let said: Vec<Said> = (0..10).map(|n| Said::text(n.to_string())).collect();
        for number in 1..=10 {
            let bytes = serde_json::to_string(&said[..number]).map_or(0, |text| text.len() as u64);
            assert_eq!(fitting(said.clone(), bytes).len(), number);
            assert_eq!(fitting(said.clone(), bytes - 1).len(), number - 1);
        }
    }
}
