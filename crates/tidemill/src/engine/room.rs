//! The rules as those know them who enqueue, and waiting for room: what `wait` means for a full queue.
//!
//! Those of this process who wait for the same queue stand in line, and only the first one tries. It says
//! so (`Hint::Wanted`), and whoever takes from the queue answers (`Hint::Room`), in whichever process.
//! Hints can be lost, so it also tries by itself, once a second.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidemill_core::{Error as Invalid, JobId, NewJob, Overflow, RuleBook};
use tidemill_store::{Error, Full, Hint, Receipt, Result};
use tokio::sync::Mutex as Line;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout_at};

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::worker::shop::locked;

/// While jobs are enqueued, the rules are looked at this often, beside them.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Rules are this old at most: whoever has not looked for so long, or never, looks before it enqueues. Nobody who is
/// that rare is hurt by it.
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// A store that is away keeps nobody longer than this; writing the jobs will say so.
const LOOK_WITHIN: Duration = Duration::from_millis(500);
pub(crate) const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Those who take forget after a minute who waits; it is said anew well before.
const WANT_AGAIN: Duration = Duration::from_secs(20);

/// Who of this process waits for room, and whether any rule says that one may.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    /// Whether some queue's rule is to wait: then a call's jobs are kept until it is answered.
    waits: AtomicBool,
    /// Whether some queue's rule is to divert: then it is looked up where jobs went.
    diverts: AtomicBool,
    looked: Mutex<Option<Instant>>,
    /// The rules when they were looked at last.
    book: RwLock<Arc<RuleBook>>,
    lines: Mutex<HashMap<String, Arc<Line<()>>>>,
}

impl Rooms {
    /// Whether it is time to look at the rules; says so once per look. Until then a rule may be to wait.
    fn is_stale(&self) -> bool {
        let mut looked = locked(&self.looked);
        let is_stale = looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
        if is_stale {
            *looked = Some(Instant::now());
            self.waits.store(true, Relaxed);
        }
        is_stale
    }

    fn is_old(&self) -> bool {
        locked(&self.looked).is_none_or(|looked| looked.elapsed() >= LOOK_FIRST)
    }

    /// The rules as they were when somebody of this process last looked.
    pub(crate) fn book(&self) -> Arc<RuleBook> {
        Arc::clone(&self.book.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The line for a queue. Forgets those in which nobody stands.
    fn line(&self, queue: &str) -> Arc<Line<()>> {
        let mut lines = locked(&self.lines);
        lines.retain(|_, line| Arc::strong_count(line) > 1);
        Arc::clone(lines.entry(queue.to_owned()).or_default())
    }
}

impl Tidemill {
    /// Which of these jobs a full queue would send elsewhere, by the rules as they are known here; with the queues they
    /// ask for.
    pub(crate) fn may_divert(&self, jobs: &[NewJob]) -> HashMap<JobId, String> {
        if !self.0.rooms.diverts.load(Relaxed) {
            return HashMap::new();
        }
        let book = self.0.rooms.book();
        let diverts =
            |queue: &str| book.of(queue).is_some_and(|rules| rules.overflow.divert().is_some());
        let meant = jobs.iter().filter(|job| job.line().is_none() && diverts(&job.queue));
        meant.map(|job| (job.id, job.queue.clone())).collect()
    }

    /// Jobs that a full queue would divert to one which refuses them are not to be diverted; answers, by their queues,
    /// what is wrong if there is no room. In a batch of which others may be diverted, have unique keys or take turns,
    /// the depth is looked at before.
    pub(crate) async fn hold_back(
        &self,
        jobs: &mut [NewJob],
    ) -> crate::Result<HashMap<String, Invalid>> {
        let may_divert = self.may_divert(jobs);
        if may_divert.is_empty() {
            return Ok(HashMap::new());
        }
        let (book, mut held) = (self.0.rooms.book(), HashMap::new());
        for job in jobs.iter().filter(|job| may_divert.contains_key(&job.id)) {
            let (tenant, key) = (job.tenant.as_deref(), job.key.as_deref());
            if let Some(to) = book.of(&job.queue).and_then(|rules| rules.overflow.divert())
                && let Err(why) = book.check_counted(to, &job.kind, tenant, key)
            {
                let (queue, to, why) = (job.queue.clone(), to.to_owned(), Box::new(why));
                let refused = Invalid::DivertRefused { queue: queue.clone(), to, why };
                held.entry(queue).or_insert(refused);
            }
        }
        let is_plain = |job: &NewJob| job.unique.is_none() && job.line().is_none();
        let is_mixed = may_divert.values().any(|queue| !held.contains_key(queue));
        if held.is_empty() {
            return Ok(held);
        }
        if is_mixed || !jobs.iter().all(is_plain) {
            self.check_diverted(jobs).await?;
            return Ok(HashMap::new());
        }
        for job in jobs.iter_mut().filter(|job| may_divert.contains_key(&job.id)) {
            job.options.stays = true;
        }
        Ok(held)
    }

    /// Refuses jobs that a full queue would divert to one which refuses them.
    pub(crate) async fn check_diverted(&self, jobs: &[NewJob]) -> crate::Result<()> {
        if !self.0.rooms.diverts.load(Relaxed) {
            return Ok(());
        }
        let book = self.0.rooms.book();
        let mut looked = BTreeSet::new();
        for job in jobs.iter().filter(|job| job.line().is_none()) {
            let (queue, tenant, key) = (&job.queue, job.tenant.as_deref(), job.key.as_deref());
            let Some(rules) = book.of(queue) else { continue };
            let (Some(to), Some(depth_max)) = (rules.overflow.divert(), rules.depth_max) else {
                continue;
            };
            let Err(why) = book.check_counted(to, &job.kind, tenant, key) else { continue };
            if !looked.insert(queue.as_str()) {
                continue;
            }
            let coming = jobs.iter().filter(|other| other.queue == *queue).count() as u64;
            if self.depth(queue).await?.depth() + coming > depth_max {
                let (queue, to, why) = (queue.clone(), to.to_owned(), Box::new(why));
                return Err(Invalid::DivertRefused { queue, to, why }.into());
            }
        }
        Ok(())
    }

    /// Says which queue would have diverted jobs to one that is full itself.
    pub(crate) fn full_beyond(&self, asked: &HashMap<JobId, String>, mut full: Full) -> Full {
        let book = self.0.rooms.book();
        let diverts = |queue: &&String| {
            **queue != full.queue
                && book.of(queue).and_then(|rules| rules.overflow.divert()) == Some(&full.queue)
        };
        full.from = asked.values().find(diverts).cloned();
        full
    }

    /// Where a queue sends its jobs when it is full, by the rules as they are known here.
    pub async fn diverts_to(&self, queue: &str) -> Option<String> {
        self.know_rules().await;
        self.0.rooms.book().of(queue)?.overflow.divert().map(str::to_owned)
    }

    /// Says where those are that were diverted. They are written by now, so whoever cannot look says less, and fails
    /// nobody.
    pub(crate) async fn diverted(
        &self,
        asked: HashMap<JobId, String>,
        receipts: Vec<Receipt>,
    ) -> Vec<Receipt> {
        if asked.is_empty() {
            return receipts;
        }
        let mut found = match self.0.store.queues_of(asked.keys().copied().collect()).await {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%error, "where jobs were diverted to could not be looked up");
                return receipts;
            }
        };
        let told = |receipt| match receipt {
            Receipt::Enqueued { id } => match found.remove(&id) {
                Some(queue) if asked.get(&id).is_some_and(|asked| *asked != queue) => {
                    Receipt::Diverted { id, queue }
                }
                _ => Receipt::Enqueued { id },
            },
            other => other,
        };
        receipts.into_iter().map(told).collect()
    }

    /// Writes jobs, and waits for room as long as the rule of a full queue allows.
    pub(crate) async fn put(&self, jobs: Vec<NewJob>) -> Result<Vec<Receipt>> {
        if !self.may_wait() {
            return self.0.store.enqueue(jobs).await;
        }
        match self.0.store.enqueue(jobs.clone()).await {
            Err(Error::QueueFull(full)) if full.wait_ms.is_some() && full.fits_ever() => {
                self.put_in_line(jobs, full).await
            }
            answer => answer,
        }
    }

    async fn put_in_line(&self, jobs: Vec<NewJob>, mut full: Full) -> Result<Vec<Receipt>> {
        let deadline = ends_at(Duration::from_millis(full.wait_ms.unwrap_or(0)));
        let line = self.0.rooms.line(&full.queue);
        let Ok(_first) = timeout_at(deadline, line.lock()).await else {
            return Err(Error::QueueFull(full));
        };
        let mut hints = self.0.store.wake().listen();
        let mut want_at = Instant::now();
        loop {
            if Instant::now() >= want_at {
                self.0.store.hint(Hint::Wanted { queue: full.queue.clone() });
                want_at = Instant::now() + WANT_AGAIN;
            }
            match self.0.store.enqueue(jobs.clone()).await {
                Err(Error::QueueFull(again)) => full = again,
                answer => return answer,
            }
            if Instant::now() >= deadline || full.wait_ms.is_none() {
                return Err(Error::QueueFull(full));
            }
            let next_try = (Instant::now() + TRY_AGAIN).min(deadline);
            let _ = timeout_at(next_try, heard(&mut hints, &full.queue)).await;
        }
    }

    /// Whether a queue's rule may be to wait, as far as this process knows. Who has not looked for a while does not
    /// know, and keeps the jobs until they are answered; looking first would make them late.
    fn may_wait(&self) -> bool {
        let rooms = &self.0.rooms;
        if rooms.is_stale() {
            let mill = self.clone();
            tokio::spawn(async move { mill.learn_rules().await });
        }
        rooms.waits.load(Relaxed)
    }

    /// Looks at the rules, unless somebody of this process has within the last second.
    pub(crate) async fn know_rules(&self) {
        if self.0.rooms.is_old() {
            let _ = tokio::time::timeout(LOOK_WITHIN, self.learn_rules()).await;
        }
    }

    /// Looks at the rules. A store that is away says so when the jobs are written.
    pub(crate) async fn learn_rules(&self) {
        let Ok(book) = self.0.store.queue_rules().await else { return };
        let rooms = &self.0.rooms;
        let any = |is: fn(&Overflow) -> bool| book.iter().any(|(_, rules)| is(&rules.overflow));
        rooms.waits.store(any(|overflow| overflow.wait_ms().is_some()), Relaxed);
        rooms.diverts.store(any(|overflow| overflow.divert().is_some()), Relaxed);
        *rooms.book.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(book);
        *locked(&rooms.looked) = Some(Instant::now());
    }
}

/// Completes when there may be room.
pub(crate) async fn heard(hints: &mut Receiver<Hint>, queue: &str) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any | Hint::Rules) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Room { queue: free }) if free == queue => return,
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
