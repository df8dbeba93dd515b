//! The measurements, one after another, on one queue.
//!
//! Handlers do nothing, so that what is measured is Tidemill and the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidemill::store::view::QueueView;
use tidemill::{Enqueue, Payload, Running, Settings};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Figures;
use crate::exit::{Failure, Outcome};
use crate::mill::Mill;
use crate::progress::Late;

/// The kind of all jobs, and their queue.
pub const KIND: &str = "tidemill_bench";
const PAYLOAD: &str = r#"{"user":42,"text":"a small payload, as most are"}"#;
const BATCH: u64 = 1000;
const PRODUCERS: u64 = 32;
const PROBES: usize = 300;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Counts what the worker has run.
#[derive(Debug, Default)]
struct Ran {
    jobs: AtomicU64,
    more: Notify,
}

/// The measurements and what they have made so far.
pub struct Phases {
    mill: Mill,
    jobs: u64,
    made: u64,
    ran: Arc<Ran>,
    worker: Option<Running>,
}

impl Phases {
    /// Nothing measured yet.
    pub fn new(mill: &Mill, jobs: u64) -> Self {
        Self { mill: mill.clone(), jobs, made: 0, ran: Arc::default(), worker: None }
    }

    /// Measures everything.
    pub async fn run(&mut self) -> Outcome<Figures> {
        let bulk_per_second = self.bulk().await?;
        let drain_per_second = self.drain().await?;
        self.stop().await;
        let single_32_per_second = self.singles(PRODUCERS, self.jobs / 5).await?;
        let single_1_per_second = self.singles(1, self.jobs / 50).await?;
        self.drain().await?;
        let (latency_p50_us, latency_p99_us) = self.latency().await?;
        Ok(Figures {
            bulk_per_second,
            single_32_per_second,
            single_1_per_second,
            drain_per_second,
            latency_p50_us,
            latency_p99_us,
        })
    }

    /// Stops the worker, if one runs.
    pub async fn stop(&mut self) {
        if let Some(worker) = self.worker.take() {
            worker.stop().await;
        }
    }

    /// Runs what is left, also of a measurement that was interrupted.
    pub async fn empty(&mut self) -> Outcome<()> {
        self.start().await?;
        loop {
            let queues = self.mill.queues().await?;
            let left = |queue: &QueueView| queue.name == KIND && queue.depth + queue.running > 0;
            if !queues.iter().any(left) {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn bulk(&mut self) -> Outcome<u64> {
        let mut bar = Late::new("enqueueing in thousands", Some(self.jobs));
        let since = Instant::now();
        let mut left = self.jobs;
        while left > 0 {
            let batch = left.min(BATCH);
            let receipts = self.mill.enqueue_many((0..batch).map(|_| job()).collect()).await?;
            self.made += receipts.len() as u64;
            left -= batch;
            bar.set(self.jobs - left);
        }
        Ok(per_second(self.jobs, since))
    }

    /// Runs all that wait.
    async fn drain(&mut self) -> Outcome<u64> {
        let (all, before) = (self.made, self.ran.jobs.load(Relaxed));
        let mut bar = Late::new("draining", Some(all - before));
        let since = Instant::now();
        self.start().await?;
        let ran = Arc::clone(&self.ran);
        loop {
            let more = ran.more.notified();
            let now = ran.jobs.load(Relaxed);
            bar.set(now - before);
            if now >= all {
                return Ok(per_second(all - before, since));
            }
            // The count is looked at now and then too: a notice wakes one waiter only.
            let _ = tokio::time::timeout(Duration::from_millis(5), more).await;
        }
    }

    async fn singles(&mut self, producers: u64, jobs: u64) -> Outcome<u64> {
        let each = (jobs / producers).max(1);
        let name = format!("enqueueing one at a time, {producers} at once");
        let since = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..producers {
            let mill = self.mill.clone();
            tasks.spawn(async move {
                for _ in 0..each {
                    mill.enqueue(job()).await?;
                }
                tidemill_client::Result::Ok(())
            });
        }
        let made = Late::wait(&name).during(tasks.join_all()).await;
        let rate = per_second(each * producers, since);
        made.into_iter().collect::<Result<(), _>>()?;
        self.made += each * producers;
        Ok(rate)
    }

    /// From the enqueue to the start of the handler, one job at a time.
    async fn latency(&mut self) -> Outcome<(u64, u64)> {
        let mut bar = Late::new("measuring the latency", Some(PROBES as u64));
        let mut times = Vec::with_capacity(PROBES);
        for probe in 0..PROBES {
            let before = self.ran.jobs.load(Relaxed);
            let started = self.ran.more.notified();
            let since = Instant::now();
            self.mill.enqueue(job()).await?;
            self.made += 1;
            if self.ran.jobs.load(Relaxed) == before {
                started.await;
            }
            times.push(since.elapsed());
            bar.set(probe as u64);
        }
        times.sort_unstable();
        let at = |part: usize| times[PROBES * part / 100].as_micros() as u64;
        Ok((at(50), at(99)))
    }

    async fn start(&mut self) -> Outcome<()> {
        if self.worker.is_some() {
            return Ok(());
        }
        let ran = Arc::clone(&self.ran);
        let settings = Settings { queue: KIND.to_owned(), ..Settings::default() };
        let worker = self.mill.worker().slots(500).handle_raw(KIND, settings, move |_, _| {
            ran.jobs.fetch_add(1, Relaxed);
            ran.more.notify_waiters();
            async { Ok(Payload::null()) }
        });
        self.worker = Some(worker.start().await.map_err(Failure::from)?);
        Ok(())
    }
}

fn job() -> Enqueue {
    Enqueue::raw(KIND, PAYLOAD).queue(KIND)
}

fn per_second(jobs: u64, since: Instant) -> u64 {
    (jobs as f64 / since.elapsed().as_secs_f64()) as u64
}
