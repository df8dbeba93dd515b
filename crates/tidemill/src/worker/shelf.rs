//! Jobs at hand: claimed for slots that are about to become free, and started as soon as one is.
//!
//! First come, first started. A job that waits for too long, or whose queue was paused, is given back
//! unspent; one that was called off meanwhile ends without having run. Refuses to start what was
//! claimed by a worker that was given up since: others have it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::wire::work::{OutcomeBody, Work};
use tidemill_core::{Settlement, Token, WorkerId};
use tidemill_store::{Claim, ClaimedJob};
use tokio::time::Instant;

use crate::engine::heard::Heard;
use crate::engine::measure::series::{Series, Sorts};
use crate::worker::boss::Boss;
use crate::worker::execute::{Lease, Told, execute, report, unstarted};
use crate::worker::shop::{Shop, locked};
use crate::worker::slots::{Group, Slot};
use crate::worker::wire;

/// A job that waits for a slot of this worker.
struct AtHand {
    claimed: ClaimedJob,
    token: Token,
    /// The store's present at the claim.
    now: Timestamp,
    since: Instant,
    worker: WorkerId,
    /// Elsewhere it is measured there.
    series: Option<Arc<Series>>,
    /// What was told of its time, elsewhere.
    told: Told,
}

/// The jobs at hand of one group of slots.
#[derive(Default)]
pub(crate) struct Shelf(VecDeque<AtHand>);

impl Shelf {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds what a claim of this worker brought.
    pub(crate) fn add(&mut self, worker: WorkerId, claim: Claim, sorts: &Sorts) {
        let Some(token) = claim.token else { return };
        let (now, since) = (claim.now, Instant::now());
        let at_hand = |(claimed, series): (_, &Arc<Series>)| {
            let (series, told) = (Some(Arc::clone(series)), Told::default());
            AtHand { claimed, token, now, since, worker, series, told }
        };
        self.0.extend(claim.jobs.into_iter().zip(sorts.each()).map(at_hand));
    }

    /// Adds what this worker was given elsewhere.
    pub(crate) fn add_given(&mut self, worker: WorkerId, work: Work) {
        let Some(token) = work.token else { return };
        let (now, since, series) = (work.now, Instant::now(), None);
        let at_hand = |assigned| {
            let (claimed, told) = wire::given(assigned, now);
            AtHand { claimed, token, now, since, worker, series: series.clone(), told }
        };
        self.0.extend(work.jobs.into_iter().map(at_hand));
    }

    /// Starts as many as there are free slots; what is not to start needs none.
    pub(crate) fn serve(&mut self, shop: &Arc<Shop>, group: &Arc<Group>) {
        if self.0.is_empty() {
            return;
        }
        let known = shop.boss.known();
        while let Some(job) = self.0.front() {
            let body = &job.claimed.job;
            let fate = if job.worker != shop.worker() {
                Fate::Lost
            } else if shop.is_called_off(body.id) {
                Fate::Unstarted(Unstarted::CalledOff)
            } else if known.book.paused_by(&body.queue).is_some() {
                Fate::Unstarted(Unstarted::GivenBack)
            } else {
                let Some(slot) = group.take(&body.queue) else { return };
                Fate::Starts(slot)
            };
            let Some(job) = self.0.pop_front() else { return };
            match fate {
                Fate::Lost => let_go(shop, &job),
                Fate::Unstarted(unstarted) => end(shop, job, unstarted),
                Fate::Starts(slot) => start(shop, group, slot, job),
            }
        }
    }

    /// When the first of them has waited for too long.
    pub(crate) fn deadline(&self, group: &Group) -> Option<Instant> {
        Some(self.0.front()?.since + locked(&group.credit).patience())
    }

    /// Gives back all of them, unspent.
    pub(crate) fn clear(&mut self, shop: &Arc<Shop>) {
        for job in self.0.drain(..) {
            if job.worker == shop.worker() {
                end(shop, job, Unstarted::GivenBack);
            } else {
                let_go(shop, &job);
            }
        }
    }
}

/// What becomes of a job at hand.
enum Fate {
    /// Others have it: whoever rescued the worker it was claimed for.
    Lost,
    Unstarted(Unstarted),
    Starts(Slot),
}

fn start(shop: &Arc<Shop>, group: &Arc<Group>, slot: Slot, job: AtHand) {
    let (shop, group) = (Arc::clone(shop), Arc::clone(group));
    let attempts = shop.attempts.clone();
    let waited = Duration::try_from(job.now.duration_since(job.claimed.due_at)).unwrap_or_default();
    if let Some(series) = &job.series {
        series.starts.see_time(waited + job.since.elapsed());
    }
    attempts.spawn(async move {
        let AtHand { worker, token, now, .. } = job;
        let since = Heard::since(now, job.since.into_std());
        let (started, lease) = (Instant::now(), Lease { worker, token, since });
        let waited = job.since.elapsed();
        let seen = |ran: Duration| {
            if let Some(series) = &job.series {
                series.runs.see_time(ran);
            }
            locked(&group.credit).ran(ran);
        };
        match &shop.boss {
            Boss::Here(mill) => {
                let item = execute(&shop, mill, job.claimed, lease, slot).await;
                seen(started.elapsed());
                if let Some(item) = item {
                    shop.hand_over(item);
                }
            }
            Boss::Elsewhere(boss) => {
                let report = report(&shop, job.claimed, lease, slot, job.told.after(waited)).await;
                seen(started.elapsed());
                match report {
                    Some(report) => shop.report(report),
                    None => boss.held.ended(token),
                }
            }
        }
    });
}

/// Why a job that was at hand does not start.
enum Unstarted {
    CalledOff,
    GivenBack,
}

fn end(shop: &Shop, job: AtHand, why: Unstarted) {
    let AtHand { claimed, token, .. } = job;
    let reason = "called off before it ran".to_owned();
    match (&shop.boss, why) {
        (Boss::Here(mill), why) => {
            let spent = claimed.attempt.saturating_sub(1);
            let settlement = match why {
                Unstarted::CalledOff => Settlement::Cancelled { reason },
                Unstarted::GivenBack => {
                    Settlement::Again { delay: Duration::ZERO, spent, failure: None }
                }
            };
            shop.hand_over(unstarted(mill, claimed, token, settlement));
        }
        (Boss::Elsewhere(_), Unstarted::CalledOff) => {
            shop.report(wire::report(claimed.job.id, token, OutcomeBody::Cancel { reason }));
        }
        (Boss::Elsewhere(_), Unstarted::GivenBack) => {
            shop.report(wire::report(claimed.job.id, token, OutcomeBody::GiveBack {}));
        }
    }
}

/// A job that others have by now.
fn let_go(shop: &Shop, job: &AtHand) {
    if let Boss::Elsewhere(boss) = &shop.boss {
        boss.held.ended(job.token);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use tidemill_core::{JobId, Payload};
    use tokio::sync::Notify;

    use super::*;
    use crate::engine::Tidemill;
    use crate::engine::rules::look;
    use crate::error::Result;
    use crate::worker::job::{Enqueue, Settings};
    use crate::worker::wish::{Had, Lanes};

    /// A worker with one slot, and jobs at hand that were claimed for it.
    struct Bench {
        shop: Arc<Shop>,
        shelf: Shelf,
        started: Arc<Mutex<Vec<String>>>,
        go: Arc<Notify>,
    }

    impl Bench {
        async fn with(jobs: usize) -> Result<Self> {
            let mill = Tidemill::open("sqlite::memory:").await?;
            let (started, go) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Notify>::default());
            let (log, gate) = (Arc::clone(&started), Arc::clone(&go));
            let handler = move |payload: Payload, _cx| {
                locked(&log).push(payload.as_str().to_owned());
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    Ok(Payload::null())
                }
            };
            let worker = mill.worker().slots(1).handle_raw("k", Settings::default(), handler);
            let shop = worker.into_shop()?;
            shop.register().await?;
            mill.enqueue_many((0..jobs).map(|n| Enqueue::raw("k", json!(n).to_string()))).await?;
            let mut bench = Self { shop, shelf: Shelf::default(), started, go };
            bench.claim().await?;
            Ok(bench)
        }

        /// Claims everything that waits.
        async fn claim(&mut self) -> Result<()> {
            let shop = &self.shop;
            let known = shop.boss.known();
            let lanes = Lanes::of(&shop.groups[0].queues, &known, &Had::default());
            let mill = shop.boss.mill()?;
            let claim = mill.store().claim(shop.wish(&lanes, &known, 100)).await?;
            let sorts = mill.0.measures.claimed(&claim.jobs);
            self.shelf.add(shop.worker(), claim, &sorts);
            Ok(())
        }

        fn serve(&mut self) {
            let group = Arc::clone(&self.shop.groups[0]);
            self.shelf.serve(&self.shop, &group);
        }

        fn ids(&self) -> Vec<JobId> {
            self.shelf.0.iter().map(|at_hand| at_hand.claimed.job.id).collect()
        }

        /// Lets the one that runs end, and waits until its slot is free.
        async fn end_one(&self) {
            let freed = self.shop.groups[0].slots.freed.notified();
            self.go.notify_one();
            freed.await;
        }

        /// What was handed over to be settled so far.
        fn settled(&self) -> Vec<Settlement> {
            let mut settled = self.shop.take_settled().into_iter();
            let mut receiver = settled.next();
            let next = || receiver.as_mut()?.try_recv().ok();
            std::iter::from_fn(next).map(|item| item.settlement).collect()
        }
    }

    const GIVEN_BACK: Settlement =
        Settlement::Again { delay: Duration::ZERO, spent: 0, failure: None };

    #[tokio::test]
    async fn a_slot_that_is_free_gets_the_next_at_hand_without_a_claim() -> Result<()> {
        let mut bench = Bench::with(3).await?;
        for (number, left) in [("0", 2), ("1", 1), ("2", 0)] {
            bench.serve();
            assert_eq!(bench.shelf.len(), left, "one slot, one job");
            bench.serve();
            assert_eq!(bench.shelf.len(), left, "no more than there are slots");
            bench.end_one().await;
            assert_eq!(locked(&bench.started).last().map(String::as_str), Some(number));
        }
        assert_eq!(bench.shop.used(), 0);
        Ok(())
    }

    #[tokio::test]
    async fn what_is_cleared_is_given_back_unspent() -> Result<()> {
        let mut bench = Bench::with(3).await?;
        bench.shelf.clear(&bench.shop);
        assert_eq!(bench.shelf.len(), 0);
        assert_eq!(bench.settled(), [GIVEN_BACK, GIVEN_BACK, GIVEN_BACK]);
        Ok(())
    }

    #[tokio::test]
    async fn what_was_called_off_does_not_start() -> Result<()> {
        let mut bench = Bench::with(2).await?;
        let called_off = bench.ids()[0];
        bench.shop.call_off(&[called_off]);
        bench.serve();
        bench.end_one().await;
        assert_eq!(*locked(&bench.started), ["1"]);
        let reason = "called off before it ran".to_owned();
        assert_eq!(bench.settled()[0], Settlement::Cancelled { reason });
        Ok(())
    }

    #[tokio::test]
    async fn jobs_of_a_queue_that_was_paused_are_given_back() -> Result<()> {
        let mut bench = Bench::with(2).await?;
        let mill = bench.shop.boss.mill()?.clone();
        mill.pause("default").await?;
        look(&mill).await?;
        bench.serve();
        assert_eq!((bench.shelf.len(), bench.shop.used()), (0, 0));
        assert_eq!(bench.settled(), [GIVEN_BACK, GIVEN_BACK]);
        Ok(())
    }

    #[tokio::test]
    async fn what_a_lost_lease_held_is_dropped() -> Result<()> {
        let mut bench = Bench::with(2).await?;
        bench.shop.renew();
        bench.serve();
        assert_eq!((bench.shelf.len(), bench.shop.used()), (0, 0));
        assert!(bench.settled().is_empty(), "others have them");
        Ok(())
    }

    #[tokio::test]
    async fn what_was_about_to_start_when_the_lease_was_lost_is_dropped() -> Result<()> {
        let mut bench = Bench::with(1).await?;
        let freed = Arc::clone(&bench.shop.groups[0].slots);
        // Its task is there, and has not come to run yet.
        bench.serve();
        bench.shop.renew();
        let dropped = tokio::time::timeout(Duration::from_secs(30), freed.freed.notified()).await;
        assert!(dropped.is_ok(), "its handler would run to its end");
        assert!(bench.settled().is_empty(), "others have it");
        Ok(())
    }
}
