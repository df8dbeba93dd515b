//! The loop that asks for work: whenever a slot is free, or about to be, and there may be a job for it.
//!
//! No timer gates a free slot. What is at hand starts as soon as a slot is free, whether a claim is
//! under way or not. A full claim is followed by the next one as soon as there is room; after a short
//! one the loop waits for a hint, for the next due time, or for its turn to look; and where the store can,
//! it leaves a claim standing meanwhile, which brings what this process enqueues without being asked again.
//! A claim that is refused because rules have changed is asked anew at once, by those that hold now.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tidemill_core::queue::takes;
use tidemill_core::span::Span;
use tidemill_core::wire::work::{Ask, Work};
use tidemill_core::{Edition, WorkerId};
use tidemill_store::request::{Seen, Stand};
use tidemill_store::{Claim, ClaimRequest, Error, Hint};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::Tidemill;
use crate::engine::rules::renew;
use crate::worker::boss::{Boss, Elsewhere};
use crate::worker::shelf::Shelf;
use crate::worker::shop::{Shop, locked};
use crate::worker::slots::Group;
use crate::worker::wish::{Had, Lanes};

/// How long a claim stands elsewhere before it is asked anew.
const STAND: Duration = Duration::from_secs(10);
/// By when its answer is there after that, or the connection is taken for dead.
const ANSWER_MAX: Duration = Duration::from_secs(10);
const OUTAGE_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Asks for jobs for one group of slots, until `quiet`.
pub(crate) async fn dispatch(shop: Arc<Shop>, group: Arc<Group>, quiet: CancellationToken) {
    let mut hints = shop.boss.listen();
    let mut desk = Desk::new(&shop, &group);
    let mut asking: Option<Asking> = None;
    loop {
        let freed = group.slots.freed.notified();
        if !quiet.is_cancelled() {
            desk.shelf.serve(&shop, &group);
            if asking.is_none() {
                asking = desk.ask(&mut hints);
            }
        }
        let (is_asking, rest) = (asking.is_some(), desk.resting_until);
        let is_busy = asking.as_ref().is_some_and(|asking| !asking.asked.stands());
        let (claim, asked) =
            asking.as_mut().map(|Asking { claim, asked }| (claim, &*asked)).unzip();
        tokio::select! {
            biased;
            claimed = answer(claim), if is_asking => {
                if let Some(asking) = asking.take() {
                    desk.take(&asking.asked, claimed);
                }
            }
            // What was asked for is waited for: nobody else would know of it.
            () = quiet.cancelled(), if !is_busy => match &asking {
                Some(asking) => asking.asked.withdraw(),
                None => break,
            },
            () = freed => {}
            () = rested(rest, &group, &mut hints, asked), if rest.is_some() && !is_busy => {
                desk.resting_until = None;
                if let Some(asking) = &asking {
                    asking.asked.withdraw();
                }
            }
            () = until(desk.shelf.deadline(&group)), if desk.shelf.len() > 0 => {
                locked(&group.credit).stalled();
                desk.shelf.clear(&shop);
            }
        }
    }
    desk.shelf.clear(&shop);
}

type Claiming = BoxFuture<'static, tidemill_store::Result<Brought>>;

/// What a claim brought.
enum Brought {
    Here(Claim),
    Elsewhere(Work),
}

/// A claim under way.
struct Asking {
    claim: Claiming,
    asked: Asked,
}

/// What a claim asks for.
struct Asked {
    worker: WorkerId,
    lanes: Lanes,
    jobs: usize,
    since: Instant,
    /// The rules it follows.
    edition: Edition,
    /// Withdraws one that stands.
    stand: Option<CancellationToken>,
}

impl Asked {
    /// Whether it is left standing.
    fn stands(&self) -> bool {
        self.stand.as_ref().is_some_and(|until| !until.is_cancelled())
    }

    fn withdraw(&self) {
        if let Some(until) = &self.stand {
            until.cancel();
        }
    }

    /// Whether it is run by what brings jobs to this queue.
    fn stands_for(&self, queue: &str) -> bool {
        self.stands() && self.lanes.lanes.iter().any(|lane| lane.queue == queue)
    }
}

async fn answer(claim: Option<&mut Claiming>) -> tidemill_store::Result<Brought> {
    match claim {
        Some(claim) => claim.await,
        None => std::future::pending().await,
    }
}

/// Completes when it is time to look, or when there may be a job that no standing claim would get.
async fn rested(
    rest: Option<Instant>,
    group: &Group,
    hints: &mut Receiver<Hint>,
    asked: Option<&Asked>,
) {
    tokio::select! {
        () = until(rest) => {}
        () = heard(group, hints, asked) => {}
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// What a dispatcher keeps between two claims.
struct Desk<'a> {
    shop: &'a Arc<Shop>,
    group: &'a Arc<Group>,
    shelf: Shelf,
    had: Had,
    outage: Outage,
    /// Until when nothing is asked for: the last claim came back short.
    resting_until: Option<Instant>,
    /// The last claim came back full. Only then is anything asked for in advance: without a backlog a
    /// job is better left to whoever has a free slot.
    has_backlog: bool,
    /// What the last claim had seen, where the next one can stand.
    seen: Option<Seen>,
}

impl<'a> Desk<'a> {
    fn new(shop: &'a Arc<Shop>, group: &'a Arc<Group>) -> Self {
        let (shelf, had, outage) = (Shelf::default(), Had::default(), Outage::default());
        let (resting_until, has_backlog, seen) = (None, false, None);
        Self { shop, group, shelf, had, outage, resting_until, has_backlog, seen }
    }

    /// Begins a claim, if there is room for something; while it rests, one that stands.
    fn ask(&self, hints: &mut Receiver<Hint>) -> Option<Asking> {
        let (shop, group) = (self.shop, self.group);
        let stand = match self.resting_until {
            Some(_) => Some(Stand { since: self.seen?, until: CancellationToken::new() }),
            None => None,
        };
        let free = group.slots.free();
        let credit = *locked(&group.credit);
        let in_advance = if self.has_backlog { credit.in_advance(group.slots.max()) } else { 0 };
        if group.slots.is_choked(&shop.unsettled) || free + in_advance <= self.shelf.len() {
            return None;
        }
        let mill = match &shop.boss {
            Boss::Here(mill) => mill,
            Boss::Elsewhere(boss) => return self.ask_elsewhere(boss, free),
        };
        let known = mill.0.rules.known();
        let lanes = Lanes::of(&group.queues, &known, &self.had);
        let mut wish = shop.wish(&lanes, &known, 0);
        // What waits here would keep others from passing a limit.
        let in_advance = if wish.limits.is_empty() { in_advance } else { 0 };
        let room = (free + in_advance).saturating_sub(self.shelf.len());
        wish.jobs_max = room.min(shop.options.claim_jobs_max);
        if wish.jobs_max == 0 {
            return None;
        }
        let until = stand.as_ref().map(|stand| stand.until.clone());
        if stand.is_none() {
            forget(hints);
        }
        wish.stand = stand;
        let (worker, jobs, since) = (wish.worker, wish.jobs_max, Instant::now());
        let edition = known.book.edition();
        let claim = Box::pin(claim(mill.clone(), wish));
        Some(Asking { claim, asked: Asked { worker, lanes, jobs, since, edition, stand: until } })
    }

    /// The same elsewhere: for the free slots alone, as what waits here could keep others from passing a limit. It
    /// stands there until there is something.
    fn ask_elsewhere(&self, boss: &Arc<Elsewhere>, free: usize) -> Option<Asking> {
        let (shop, group) = (self.shop, self.group);
        let jobs = free.saturating_sub(self.shelf.len()).min(shop.options.claim_jobs_max);
        if jobs == 0 || self.resting_until.is_some() {
            return None;
        }
        let ask = Ask {
            queues: group.queues.clone(),
            kinds: shop.kinds().to_vec(),
            jobs_max: u32::try_from(jobs).unwrap_or(u32::MAX),
            wait: Some(Span(STAND)),
        };
        let (worker, until) = (shop.worker(), CancellationToken::new());
        let claim = Box::pin(claim_elsewhere(Arc::clone(boss), worker, ask, until.clone()));
        let (lanes, edition, since) = (Lanes::default(), Edition::default(), Instant::now());
        Some(Asking {
            claim,
            asked: Asked { worker, lanes, jobs, since, edition, stand: Some(until) },
        })
    }

    /// Whether other rules are known by now than those that a claim followed: then it need not wait to ask again.
    fn knows_more_than(&self, asked: &Asked) -> bool {
        self.shop.boss.known().book.edition() != asked.edition
    }

    /// Takes what a claim brought.
    fn take(&mut self, asked: &Asked, claimed: tidemill_store::Result<Brought>) {
        self.resting_until = None;
        let pause = match claimed {
            // Given up while it asked: whoever rescued the worker has these jobs.
            Ok(_) if asked.worker != self.shop.worker() => return,
            Ok(Brought::Elsewhere(work)) => {
                self.outage.over();
                let is_soon = asked.since.elapsed() < self.shop.options.poll_every;
                let is_empty = work.jobs.is_empty();
                if let (Boss::Elsewhere(boss), Some(token)) = (&self.shop.boss, work.token) {
                    boss.held.took(token, work.jobs.len());
                }
                self.shelf.add_given(asked.worker, work);
                // One that stood and brought nothing is asked again at once, unless it was not let stand.
                if !(is_empty && is_soon) {
                    return;
                }
                None
            }
            Ok(Brought::Here(claim)) => {
                self.outage.over();
                let (jobs, next_due) = (claim.jobs.len(), wait_of(&claim));
                if jobs > 0 && asked.stand.is_none() {
                    locked(&self.group.credit).claimed(asked.since.elapsed());
                }
                if let Boss::Here(mill) = &self.shop.boss {
                    let sorts = mill.0.measures.claimed(&claim.jobs);
                    asked.lanes.took(&claim, &mut self.had);
                    self.seen = claim.seen;
                    self.shelf.add(asked.worker, claim, &sorts);
                }
                self.has_backlog = jobs >= asked.jobs;
                let is_withdrawn = asked.stand.is_some() && !asked.stands();
                if self.has_backlog || is_withdrawn {
                    return;
                }
                next_due
            }
            Err(Error::RulesOutdated) if self.knows_more_than(asked) => {
                self.seen = None;
                return;
            }
            Err(error) => {
                self.seen = None;
                self.resting_until = Some(Instant::now() + self.outage.pause(&error));
                return;
            }
        };
        let look = poll_pause(self.shop);
        self.resting_until = Some(Instant::now() + pause.map_or(look, |due| due.min(look)));
    }
}

/// Claims. One that follows rules that are no more brings those that hold now.
async fn claim(mill: Tidemill, wish: ClaimRequest) -> tidemill_store::Result<Brought> {
    let claimed = mill.0.store.claim(wish).await;
    if matches!(claimed, Err(Error::RulesOutdated)) {
        renew(&mill).await?;
    }
    claimed.map(Brought::Here)
}

/// Claims elsewhere, until it is withdrawn: what was on its way then is given back when the worker signs off.
async fn claim_elsewhere(
    boss: Arc<Elsewhere>,
    worker: WorkerId,
    ask: Ask,
    until: CancellationToken,
) -> tidemill_store::Result<Brought> {
    let claiming = tokio::time::timeout(STAND + ANSWER_MAX, boss.broker.claim(worker, &ask));
    let work = tokio::select! {
        biased;
        () = until.cancelled() => Work { token: None, now: Timestamp::UNIX_EPOCH, jobs: Vec::new() },
        claimed = claiming => claimed.map_err(|_| {
            let reason = "a claim was not answered in time".to_owned();
            Error::Unavailable { reason, unknown: true }
        })??,
    };
    Ok(Brought::Elsewhere(work))
}

/// How long until the next job of these lanes is due, by the store's clock.
fn wait_of(claim: &Claim) -> Option<Duration> {
    let wait = claim.next_due?.duration_since(claim.now);
    Some(Duration::try_from(wait).unwrap_or_default())
}

/// Spread, so that a thousand workers do not look in step.
fn poll_pause(shop: &Shop) -> Duration {
    shop.options.poll_every.mul_f64(0.75 + fastrand::f64() / 2.0)
}

/// What is heard before a claim is answered by that claim.
fn forget(hints: &mut Receiver<Hint>) {
    while matches!(hints.try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
}

/// Completes when there may be a job for this worker that no claim of its own stands for.
async fn heard(group: &Group, hints: &mut Receiver<Hint>, asked: Option<&Asked>) {
    loop {
        match hints.recv().await {
            Ok(Hint::Any) | Err(RecvError::Lagged(_)) => return,
            Ok(Hint::Ready { queue }) if asked.is_some_and(|asked| asked.stands_for(&queue)) => {}
            Ok(Hint::Ready { queue }) if group.queues.iter().any(|own| takes(own, &queue)) => {
                return;
            }
            Ok(_) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The database is away: said once, tried ever more rarely, with jitter.
#[derive(Default)]
struct Outage {
    failures: u32,
}

impl Outage {
    fn pause(&mut self, error: &Error) -> Duration {
        if self.failures == 0 {
            tracing::warn!(%error, "no jobs can be claimed; trying again until it works");
        }
        self.failures = self.failures.saturating_add(1);
        let full = Duration::from_millis(50) * 2_u32.pow(self.failures.min(10));
        full.min(OUTAGE_PAUSE_MAX).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    fn over(&mut self) {
        if self.failures > 0 {
            tracing::info!(failures = self.failures, "jobs can be claimed again");
        }
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use tidemill_core::Payload;

    use super::*;
    use crate::worker::job::Settings;

    #[tokio::test]
    async fn a_store_that_is_away_is_asked_ever_more_rarely() -> crate::Result<()> {
        let mill = Tidemill::open("sqlite::memory:").await?;
        let handler = |payload: Payload, _| async move { Ok(payload) };
        let shop = mill.worker().handle_raw("k", Settings::default(), handler).into_shop()?;
        let mut desk = Desk::new(&shop, &shop.groups[0]);
        let asked = Asked {
            worker: shop.worker(),
            lanes: Lanes::default(),
            jobs: 1,
            since: Instant::now(),
            edition: shop.boss.known().book.edition(),
            stand: None,
        };
        let mut pause = |failures| {
            for _ in 0..failures {
                let away = Error::Unavailable { reason: String::new(), unknown: false };
                desk.take(&asked, Err(away));
            }
            desk.resting_until.map(|until| until.saturating_duration_since(Instant::now()))
        };
        assert!(pause(1).is_some_and(|pause| pause <= Duration::from_millis(100)));
        // However often it looks for jobs of its own accord.
        let rarely = pause(10).unwrap_or_default();
        assert!(rarely > shop.options.poll_every * 2 && rarely <= OUTAGE_PAUSE_MAX, "{rarely:?}");
        Ok(())
    }
}
