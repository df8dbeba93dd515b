//! Work for hands elsewhere: what a worker of this process does by itself, as verbs for those who ask from outside.
//!
//! A worker registers, beats, claims and reports how its attempts ended; what becomes of the jobs is decided here, by
//! the rules. Any process takes a report, also of what another one gave out: what it does not remember it looks up.
//! It refuses nothing that a token proves, and everything else.

mod claim;
pub(crate) mod hands;
mod report;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::flow::saga::Undo;
use tidemill_core::limit::NAME_BYTES_MAX;
use tidemill_core::wire::work::QueueSlots;
use tidemill_core::{CredentialId, Error as Invalid, JobId, NewJob, Token, WorkerId, name};
use tidemill_store::request::{LEASE_TTL, Rescued};
use tidemill_store::run::Append;
use tidemill_store::{Hint, WorkerCard};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::engine::Tidemill;
use crate::engine::patience::ends_at;
use crate::engine::workflow::page::MailPage;
use crate::engine::workflow::unlock::unlock;
use crate::error::{Error, Result};
use crate::worker::job::Enqueue;

use claim::LOOK_EVERY;
pub use claim::{Demand, Given, Taken};
pub use report::{AddedStep, Outcome, Report};

/// The shortest lease that a worker may ask for, and the longest.
pub const LEASE_TTL_MIN: Duration = Duration::from_secs(1);
/// See [`LEASE_TTL_MIN`].
pub const LEASE_TTL_MAX: Duration = Duration::from_hours(1);
/// Queues that a worker may take from, by name or pattern.
pub const WORK_QUEUES_MAX: usize = 100;
/// Kinds that a worker may know.
pub const WORK_KINDS_MAX: usize = 1000;
/// Jobs of one claim.
pub const CLAIM_JOBS_MAX: usize = 500;
/// Reports of one settle.
pub const REPORTS_MAX: usize = 1000;
/// A lease that its worker does not know of is given back after this: until then its answer may be on its way.
const ANSWER_MAX: Duration = Duration::from_mins(1);

/// The verbs of those who work elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a>(&'a Tidemill);

/// A worker, as it introduces itself.
#[derive(Debug, Clone, Default)]
pub struct Hand {
    /// For people: host and process.
    pub name: String,
    /// The queues it will take from, by name or pattern.
    pub queues: Vec<String>,
    /// The kinds it knows; none means all.
    pub kinds: Vec<String>,
    /// How many jobs it runs at once.
    pub slots: u32,
    /// Which of them the jobs of a queue or pattern may take, where that is not all.
    pub slots_of: BTreeMap<String, QueueSlots>,
    /// How long after its last beat it is given up. Six seconds when not given.
    pub lease_ttl: Option<Duration>,
    /// The credential it works with, if it has one: see [`WorkerId::of`].
    pub owner: Option<CredentialId>,
}

/// What a beat brings back.
#[derive(Debug, Clone)]
pub struct Beaten {
    /// Jobs of the worker that were called off.
    pub cancelled: Vec<JobId>,
    /// How long it waited before it was written: the lease counts from then.
    pub waited: Duration,
}

impl Tidemill {
    /// Work for a worker that is not in this process, and asks for it by other means.
    pub fn work(&self) -> Work<'_> {
        Work(self)
    }
}

impl Work<'_> {
    /// Announces a worker. It beats from now on, within every [`lease_ttl`](Hand::lease_ttl), or is given up.
    pub async fn register(&self, hand: Hand) -> Result<WorkerId> {
        name::check("worker", &hand.name, NAME_BYTES_MAX)?;
        check_names(&hand.queues, &hand.kinds)?;
        check_slots(&hand)?;
        let lease_ttl = hand.lease_ttl.unwrap_or(LEASE_TTL);
        if !(LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&lease_ttl) {
            let reason = format!(
                "a lease lasts between {LEASE_TTL_MIN:?} and {LEASE_TTL_MAX:?}, not {lease_ttl:?}"
            );
            return Err(Invalid::WorkInvalid { reason }.into());
        }
        let id = hand.owner.map_or_else(WorkerId::new, WorkerId::of);
        let Hand { name, queues, kinds, slots, slots_of, .. } = hand;
        let own = Some(lease_ttl);
        let card =
            WorkerCard { id, name, queues, kinds: kinds.clone(), slots, slots_of, lease_ttl: own };
        self.0.0.store.register(card).await?;
        self.0.0.hands.registered(id, lease_ttl);
        unlock(self.0, kinds);
        Ok(id)
    }

    /// Beats for a worker once `wait` is over, or sooner if a job of it is called off; answers the jobs that are. At
    /// once if one is already of which this process has not told it.
    ///
    /// With `tokens`, those it has: what was claimed for it a minute before it said so and is under none of them was
    /// lost on its way, and is given back.
    pub async fn beat(
        &self,
        worker: WorkerId,
        wait: Duration,
        tokens: Option<&[Token]>,
    ) -> Result<Beaten> {
        let (store, began) = (&self.0.0.store, Instant::now());
        // Listened for first, so that nothing can come in between.
        let hints = store.wake().listen();
        // What was claimed while the beat waits, the worker could not have known of when it sent it.
        let said = match tokens {
            Some(tokens) => Some((tokens, store.now().await?)),
            None => None,
        };
        let mut waited = Duration::ZERO;
        let mut cancelled = self.live(worker).await?;
        // What was called off before is no hint any more.
        if !wait.is_zero() && !self.0.0.hands.is_news(worker, &cancelled) {
            self.called_off_within(worker, wait, hints).await;
            waited = began.elapsed();
            cancelled = self.live(worker).await?;
        }
        self.0.0.hands.told(worker, &cancelled);
        if let Some((tokens, at)) = said {
            self.give_back_unheard(worker, tokens, at).await?;
        }
        Ok(Beaten { cancelled, waited })
    }

    /// Says that a worker lives; answers its jobs that are called off.
    async fn live(&self, worker: WorkerId) -> Result<Vec<JobId>> {
        let beat = self.0.0.store.beat(worker).await?;
        if beat.lost {
            self.0.0.hands.forget(worker);
            return Err(Error::WorkerLost { id: worker });
        }
        self.0.0.hands.lives(worker, beat.lease_ttl);
        Ok(beat.cancelled)
    }

    /// Signs a worker off; what it still has is ready again, unspent.
    pub async fn sign_off(&self, worker: WorkerId) -> Result<Rescued> {
        self.0.0.hands.forget(worker);
        Ok(self.0.0.store.deregister(worker).await?)
    }

    /// Writes to the journal of a run, if its token still holds; `false` if it does not.
    pub async fn append(&self, worker: WorkerId, item: Append) -> Result<bool> {
        let (store, key) = (&self.0.0.store, (item.token, item.job));
        let mut held = self.0.0.hands.find(worker, std::iter::once(key));
        if held.iter().all(Option::is_none) {
            held = store.held(worker, &[key]).await?;
        }
        if !held.iter().flatten().any(|held| held.attempt > 0) {
            return Ok(false);
        }
        self.0.check_told(&item.writes.children).await?;
        Ok(store.append(worker, vec![item]).await? == [true])
    }

    /// Jobs that a run starts as its children, checked as an enqueue checks them.
    pub fn adopt(&self, parent: JobId, children: Vec<Enqueue>) -> Result<Vec<NewJob>> {
        let mut children = self.check(children)?;
        for child in &mut children {
            child.options.parent = Some(parent);
        }
        Ok(children)
    }

    /// Jobs that a run starts and does not wait for, checked as an enqueue checks them.
    pub fn check(&self, jobs: Vec<Enqueue>) -> Result<Vec<NewJob>> {
        jobs.into_iter().map(|job| self.0.checked(job)).collect()
    }

    /// Checks what undoes a step of a run as an enqueue checks a job.
    pub async fn check_undo(&self, undo: &Undo) -> Result<()> {
        let Tidemill(inner) = &self.0;
        undo.check(&inner.limits, inner.clock.now())?;
        let (tenant, key) = (undo.tenant.as_deref(), undo.key.as_deref());
        inner.rooms.book().check_counted(&undo.queue, &undo.kind, tenant, key)?;
        self.0.hearers(std::iter::once(&undo.options)).await?.check(&undo.options)
    }

    /// A page of the mail of a run after a number: at once, or as soon as there is some within `wait`.
    pub async fn mail(
        &self,
        job: JobId,
        after: i64,
        limit: usize,
        wait: Duration,
    ) -> Result<MailPage> {
        let deadline = ends_at(wait);
        // Listened for first, so that nothing can come in between.
        let came = self.0.0.store.wake().expect([Hint::Mail { id: job }]);
        loop {
            let page = self.0.mail_page(job, after, limit).await?;
            let now = Instant::now();
            if !page.mail.is_empty() || now >= deadline {
                return Ok(page);
            }
            tokio::select! {
                () = tokio::time::sleep_until(deadline.min(now + LOOK_EVERY)) => {}
                () = came.come() => {}
            }
        }
    }

    async fn called_off_within(&self, worker: WorkerId, wait: Duration, mut hints: Receiver<Hint>) {
        let told = async {
            loop {
                match hints.recv().await {
                    Ok(Hint::Cancel { worker: of }) if of == worker => return,
                    // On SQLite other processes are heard only so.
                    Ok(Hint::Any) if self.0.0.hands.has_jobs(worker) => return,
                    Ok(_) | Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        let _ = tokio::time::timeout(wait, told).await;
    }

    /// Gives back what a worker did not know of at this time, though it had been claimed for it long before.
    async fn give_back_unheard(
        &self,
        worker: WorkerId,
        tokens: &[Token],
        at: Timestamp,
    ) -> Result<()> {
        let tokens: HashSet<Token> = tokens.iter().copied().collect();
        self.0.0.hands.has(worker, &tokens, at);
        for lease in self.0.0.store.leases(worker).await? {
            if !tokens.contains(&lease.token) && is_unheard(lease.claimed_at, at) {
                let (token, jobs) = (lease.token, lease.jobs.len());
                tracing::warn!(%worker, %token, jobs, "the answer to a claim was lost; its jobs are given back");
                self.give_back(worker, token, lease.jobs).await?;
            }
        }
        Ok(())
    }

    /// Gives jobs of a claim back, unspent.
    async fn give_back(&self, worker: WorkerId, token: Token, ids: Vec<JobId>) -> Result<()> {
        let give_back = |id| Report::new(id, token, Outcome::GiveBack);
        let reports: Vec<Report> = ids.into_iter().map(give_back).collect();
        for page in reports.chunks(REPORTS_MAX) {
            self.settle(worker, page.to_vec(), |_| true).await?;
        }
        Ok(())
    }
}

/// Whether a worker that says at this time what it has would say so of what was claimed for it at that one.
fn is_unheard(claimed_at: Timestamp, at: Timestamp) -> bool {
    Duration::try_from(at.duration_since(claimed_at)).is_ok_and(|age| age >= ANSWER_MAX)
}

/// Refuses slots of queues that it does not take from, that are none, or that it does not have.
fn check_slots(hand: &Hand) -> Result<()> {
    let refuse = |reason: String| Err(Invalid::WorkInvalid { reason }.into());
    let mut own = 0;
    for (queue, slots) in &hand.slots_of {
        if !hand.queues.contains(queue) {
            return refuse(format!("it has slots of {queue:?}, and does not take from it"));
        }
        if slots.all() == 0 {
            return refuse(format!("it takes from {queue:?}, and has no slots for it"));
        }
        own += u64::from(slots.own);
    }
    let (all, free) = (hand.slots, u64::from(hand.slots).saturating_sub(own));
    if own > u64::from(all) {
        return refuse(format!("it has {all} slots, and {own} are queues' own"));
    }
    match hand.slots_of.iter().find(|(_, slots)| u64::from(slots.shared) > free) {
        Some((queue, QueueSlots { shared, .. })) => refuse(format!(
            "it shares {free} of {all} slots, and {queue:?} may take {shared} of those"
        )),
        None => Ok(()),
    }
}

/// Refuses names that cannot be, and too many of them.
fn check_names(queues: &[String], kinds: &[String]) -> Result<()> {
    if queues.is_empty() || queues.len() > WORK_QUEUES_MAX || kinds.len() > WORK_KINDS_MAX {
        let (queues, kinds) = (queues.len(), kinds.len());
        let reason = format!(
            "a worker names between 1 and {WORK_QUEUES_MAX} queues and at most {WORK_KINDS_MAX} kinds, not {queues} \
             and {kinds}"
        );
        return Err(Invalid::WorkInvalid { reason }.into());
    }
    for queue in queues {
        name::check("queue", queue, NAME_BYTES_MAX)?;
    }
    for kind in kinds {
        name::check("kind", kind, NAME_BYTES_MAX)?;
    }
    Ok(())
}
