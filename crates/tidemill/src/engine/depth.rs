//! Depth and watermarks: how full queues are, and being told when that matters.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::Error as Invalid;
use tidemill_core::queue::is_pattern;
use tidemill_store::{DepthView, Hint};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::error::Result;

/// The store is looked at this often when no hint comes: hints may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Tidemill {
    /// What a queue has counted: how many jobs wait in it, how many came and went, whose they are. Its
    /// cost does not grow with the jobs.
    pub async fn depth(&self, queue: &str) -> Result<DepthView> {
        if is_pattern(queue) {
            let reason = format!("{queue:?} is a pattern; ask for one queue by its name");
            return Err(Invalid::RuleInvalid { rule: "the queue", reason }.into());
        }
        let mut views = self.0.store.depths(&[queue.to_owned()]).await?;
        Ok(views.remove(0))
    }

    /// Whether a queue has reached its high watermark and has not been down at the low one since:
    /// producers should pause.
    pub async fn is_above(&self, queue: &str) -> Result<bool> {
        Ok(self.depth(queue).await?.above_since.is_some())
    }

    /// Waits until a queue is down at its low watermark, at once when it is not above. `false` when
    /// that takes longer than `timeout`.
    pub async fn until_below(&self, queue: &str, timeout: Duration) -> Result<bool> {
        let deadline = ends_at(timeout);
        let mut hints = self.0.store.wake().listen();
        loop {
            if !self.is_above(queue).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            let look = (Instant::now() + LOOK_EVERY).min(deadline);
            let _ = timeout_at(look, heard(&mut hints)).await;
        }
    }

    /// Every watermark that is crossed from now on, of all queues and by whichever process, and first
    /// the queues that are above theirs already.
    ///
    /// ```
    /// # use tidemill::{Enqueue, QueueRules, Tidemill};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidemill::Result<()> {
    /// # let mill = Tidemill::open("sqlite::memory:").await?;
    /// mill.change_queue("mail", |rules| rules.depth_max = Some(5)).await?;
    /// let mut watermarks = mill.watermarks();
    /// mill.enqueue_many((0..4).map(|_| Enqueue::raw("send", "{}").queue("mail"))).await?;
    /// let crossed = watermarks.next().await?;
    /// assert!(crossed.queue == "mail" && crossed.is_above && crossed.depth == 4);
    /// # mill.close().await; Ok(()) }
    /// ```
    pub fn watermarks(&self) -> Watermarks {
        let hints = self.0.store.wake().listen();
        let (above, crossed) = (BTreeMap::new(), VecDeque::new());
        Watermarks { mill: self.clone(), hints, above, crossed, is_first: true }
    }
}

/// A watermark that a queue has crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watermark {
    /// Which queue.
    pub queue: String,
    /// Up over the high one, or down to the low one.
    pub is_above: bool,
    /// How deep it was when that was seen.
    pub depth: u64,
}

/// Where crossed watermarks are heard. See [`Tidemill::watermarks`].
pub struct Watermarks {
    mill: Tidemill,
    hints: Receiver<Hint>,
    /// Queues that were above when they were last looked at, and since when.
    above: BTreeMap<String, Timestamp>,
    crossed: VecDeque<Watermark>,
    is_first: bool,
}

impl Watermarks {
    /// The next crossing. May be dropped while it waits, and called again: none is lost by that.
    pub async fn next(&mut self) -> Result<Watermark> {
        loop {
            if let Some(crossed) = self.crossed.pop_front() {
                return Ok(crossed);
            }
            if !std::mem::take(&mut self.is_first) {
                let _ = timeout_at(Instant::now() + LOOK_EVERY, heard(&mut self.hints)).await;
            }
            self.look().await?;
        }
    }

    async fn look(&mut self) -> Result<()> {
        let above = self.mill.0.store.depths(&[]).await?;
        let since = |view: &DepthView| view.above_since.unwrap_or(view.now.at);
        let now: BTreeMap<String, Timestamp> =
            above.iter().map(|view| (view.queue.clone(), since(view))).collect();
        let gone: Vec<String> = self
            .above
            .iter()
            .filter(|(queue, at)| now.get(*queue) != Some(at))
            .map(|(queue, _)| queue.clone())
            .collect();
        let below =
            if gone.is_empty() { Vec::new() } else { self.mill.0.store.depths(&gone).await? };
        let seen = |view: &DepthView, is_above| Watermark {
            queue: view.queue.clone(),
            is_above,
            depth: view.depth(),
        };
        self.crossed.extend(below.iter().map(|view| seen(view, false)));
        let is_new = |view: &&DepthView| self.above.get(&view.queue) != Some(&since(view));
        self.crossed.extend(above.iter().filter(is_new).map(|view| seen(view, true)));
        self.above = now;
        Ok(())
    }
}

/// Completes when a watermark may have been crossed.
async fn heard(hints: &mut Receiver<Hint>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any | Hint::Rules | Hint::Watermark { .. }) | Err(RecvError::Lagged(_)) => {
                return;
            }
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
