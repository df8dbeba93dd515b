//! Plays operations on two stores of one database, and tells the oracle what came of them.

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::gate::{PART, QueueLimit};
use tidemill_core::queue::RuleBook;
use tidemill_core::{
    Due, ErrorClass, Failure, JobId, ManualClock, NewJob, Payload, Priority, QueueRules,
    Settlement, State, WorkerId,
};
use tidemill_store::request::{BEAT_AGE, GateEnd, RescueRules};
use tidemill_store::{
    CancelAnswer, Claim, ClaimRequest, Error, Hint, Lane, Receipt, SettleItem, Settled, Share,
    Store, WorkerCard,
};
use tokio::sync::broadcast::Receiver;

use super::ops::{End, Op, PLACES, RULED, Wish};
use super::oracle::{LOST_MAX, Oracle, Place, TTL, gates_of};
use crate::games::{Verdict, fine};

/// What a worker runs at once.
pub(super) const SLOTS: usize = 6;
/// What it says that it does: it may hold twice as many, which it goes beyond now and then.
pub(super) const SLOTS_SAID: u32 = 1;

/// A lease as the worker remembers it.
#[derive(Debug, Clone)]
struct Lease {
    process: usize,
    worker: WorkerId,
    item: SettleItem,
}

/// A game in progress.
pub(super) struct Play {
    pub(super) stores: [Arc<dyn Store>; 2],
    pub(super) clock: ManualClock,
    pub(super) oracle: Oracle,
    pub(super) books: [RuleBook; 2],
    pub(super) workers: [Option<WorkerId>; PLACES as usize],
    leases: Vec<Lease>,
    pub(super) heard: [Receiver<Hint>; 2],
}

fn wrong(what: impl Into<String>) -> TestCaseError {
    TestCaseError::fail(what.into())
}

impl Play {
    pub(super) fn new(stores: [Arc<dyn Store>; 2], clock: ManualClock) -> Self {
        Self {
            oracle: Oracle::at(clock.now()),
            books: [RuleBook::default(), RuleBook::default()],
            workers: [None; PLACES as usize],
            leases: Vec::new(),
            heard: [stores[0].wake().listen(), stores[1].wake().listen()],
            stores,
            clock,
        }
    }

    /// Plays one operation.
    pub(super) async fn step(&mut self, op: Op) -> Verdict {
        match op {
            Op::Enqueue(wishes) => self.enqueue(&wishes).await?,
            Op::Set { ruled, rules, is_heard } => {
                self.set(ruled, rules.map(|rules| *rules), is_heard).await?;
            }
            Op::SetBeside { ruled, rules, place, jobs_max } => {
                self.set_beside(ruled, rules.map(|rules| *rules), place, jobs_max.into()).await?;
            }
            Op::Learn => self.learn().await?,
            Op::Claim { place, jobs_max, queues, kind } => {
                self.claim(place, jobs_max.into(), queues, kind).await.map(drop)?;
            }
            Op::ClaimBoth { jobs_max, queues } => self.claim_both(jobs_max.into(), queues).await?,
            Op::Serve { place, queues } => self.serve(place, queues).await?,
            Op::Settle { ends } => self.settle_picked(&ends).await?,
            Op::Cancel { pick } => self.cancel(pick).await?,
            Op::RunNow { pick } => self.run_now(pick).await?,
            Op::Advance { ms } => self.advance(Duration::from_millis(ms.into())),
            Op::Beat { place } => self.beat(place).await?,
            Op::Join { place } => self.worker(place).await.map(drop)?,
            Op::JoinBeside { place, jobs_max } => self.join_beside(place, jobs_max.into()).await?,
            Op::Deregister { place } => {
                if let Some(worker) = self.workers[usize::from(place)].take() {
                    self.oracle.give_back(worker, 0);
                    fine(self.store(place).deregister(worker).await)?;
                }
            }
            Op::Kill { place } => self.workers[usize::from(place)] = None,
            Op::Rescue => self.rescue().await?,
        }
        self.compare_gates().await
    }

    pub(super) fn store(&self, place: u8) -> &Arc<dyn Store> {
        &self.stores[usize::from(place % 2)]
    }

    async fn enqueue(&mut self, wishes: &[Wish]) -> Verdict {
        let jobs: Vec<NewJob> = wishes.iter().map(new_job).collect();
        for (job, wish) in jobs.iter().zip(wishes) {
            let due = self.oracle.now + Duration::from_secs(wish.delay_s.into());
            self.oracle.enqueue(job.clone(), due);
        }
        let expected: Vec<_> = jobs.iter().map(|job| Receipt::Enqueued { id: job.id }).collect();
        prop_assert_eq!(fine(self.stores[0].enqueue(jobs).await)?, expected);
        Ok(())
    }

    pub(super) async fn set(
        &mut self,
        named: u8,
        rules: Option<QueueRules>,
        is_heard: bool,
    ) -> Verdict {
        let name = RULED[usize::from(named)];
        prop_assert!(fine(self.stores[1].set_queue(name, rules).await)?, "nobody else sets rules");
        self.hear().await?;
        if is_heard { self.learn().await } else { Ok(()) }
    }

    /// A claim comes before the change, and is counted by it, or after it, and is refused.
    async fn set_beside(
        &mut self,
        named: u8,
        rules: Option<QueueRules>,
        place: u8,
        jobs_max: usize,
    ) -> Verdict {
        let Some(ask) = self.wish(place, jobs_max, 3, None).await? else { return Ok(()) };
        let is_stale = self.is_stale(&ask);
        let (name, store) = (RULED[usize::from(named)], self.store(place));
        let (set, claim) =
            tokio::join!(self.stores[1].set_queue(name, rules), store.claim(ask.clone()));
        prop_assert!(fine(set)?, "nobody else sets rules");
        match claim {
            Err(Error::RulesOutdated) => {}
            claim => {
                prop_assert!(!is_stale, "it follows rules that were no more before");
                self.adopt(place, &ask, &fine(claim)?)?;
            }
        }
        self.hear().await
    }

    /// Whether a claim follows rules that are no more. One who was given up gets nothing in any case.
    fn is_stale(&self, ask: &ClaimRequest) -> bool {
        self.oracle.beats.contains_key(&ask.worker) && ask.edition != Some(self.books[1].edition())
    }

    /// The process that sets rules knows them at once; from now on they count.
    async fn hear(&mut self) -> Verdict {
        let before = self.books[1].edition();
        self.books[1] = fine(self.stores[1].queue_rules().await)?;
        prop_assert!(self.books[1].edition() > before, "a change makes another edition");
        self.oracle.follow(&self.books[1]);
        Ok(())
    }

    pub(super) async fn learn(&mut self) -> Verdict {
        let book = fine(self.stores[0].queue_rules().await)?;
        self.books = [book.clone(), book];
        Ok(())
    }

    /// What a claim gave; `None` when it was refused: then, and only then, it followed rules that are no more.
    pub(super) async fn answer(
        &mut self,
        place: u8,
        ask: &ClaimRequest,
        claim: tidemill_store::Result<Claim>,
    ) -> Verdict<Option<Claim>> {
        let is_stale = self.is_stale(ask);
        match claim {
            Err(Error::RulesOutdated) => {
                prop_assert!(is_stale, "refused although it follows the latest rules");
                self.learn().await?;
                Ok(None)
            }
            claim => {
                let claim = fine(claim)?;
                prop_assert!(!is_stale, "it follows rules that are no more");
                self.adopt(place, ask, &claim)?;
                Ok(Some(claim))
            }
        }
    }

    /// The worker in a place, registered if there is none.
    pub(super) async fn worker(&mut self, place: u8) -> Verdict<WorkerId> {
        if let Some(worker) = self.workers[usize::from(place)] {
            return Ok(worker);
        }
        let card = new_card();
        let id = card.id;
        fine(self.store(place).register(card).await)?;
        self.join(place, id);
        Ok(id)
    }

    fn join(&mut self, place: u8, id: WorkerId) {
        self.oracle.beats.insert(id, self.oracle.now);
        self.workers[usize::from(place)] = Some(id);
    }

    /// A claim comes before one more joins, and is counted if a limit counts from then on, or after it.
    async fn join_beside(&mut self, place: u8, jobs_max: usize) -> Verdict {
        if self.workers[usize::from(place)].is_some() {
            return Ok(());
        }
        let other = (place + 1) % PLACES;
        let Some(ask) = self.wish(other, jobs_max, 3, None).await? else { return Ok(()) };
        let card = new_card();
        let id = card.id;
        let (joined, claim) =
            tokio::join!(self.store(place).register(card), self.store(other).claim(ask.clone()));
        fine(joined)?;
        self.answer(other, &ask, claim).await?;
        self.join(place, id);
        Ok(())
    }

    /// What the engine would ask for: what is not paused, and the limits of that, by the rules this process knows.
    /// `None`: it would not ask.
    pub(super) async fn wish(
        &mut self,
        place: u8,
        jobs_max: usize,
        queues: u8,
        kind: Option<u8>,
    ) -> Verdict<Option<ClaimRequest>> {
        let worker = self.worker(place).await?;
        let book = &self.books[usize::from(place % 2)];
        let asked = ["q0", "q1"].into_iter().zip([1, 2]).filter(|(_, bit)| queues & bit > 0);
        let names: Vec<&str> =
            asked.map(|(name, _)| name).filter(|name| book.paused_by(name).is_none()).collect();
        let mut limits: Vec<_> = names.iter().flat_map(|name| book.limits(name)).collect();
        limits.sort_by_key(QueueLimit::order);
        let bands = |name: &&str| {
            let queue = (*name).to_owned();
            Priority::ALL.map(|priority| Lane { queue: queue.clone(), priority })
        };
        let jobs_max = jobs_max.min(SLOTS.saturating_sub(self.oracle.held_by(worker).len()));
        let ask = ClaimRequest {
            worker,
            lanes: names.iter().flat_map(bands).collect(),
            share: Share::default(),
            limits: Arc::new(limits),
            edition: Some(book.edition()),
            kinds: kind.map(|kind| Arc::new(vec![format!("k{kind}")])),
            jobs_max,
            stand: None,
        };
        Ok((jobs_max > 0 && !ask.lanes.is_empty()).then_some(ask))
    }

    async fn claim(&mut self, place: u8, jobs_max: usize, queues: u8, kind: Option<u8>) -> Verdict {
        let Some(ask) = self.wish(place, jobs_max, queues, kind).await? else { return Ok(()) };
        let claim = self.store(place).claim(ask.clone()).await;
        self.answer(place, &ask, claim).await.map(drop)
    }

    async fn claim_both(&mut self, jobs_max: usize, queues: u8) -> Verdict {
        let one = self.wish(0, jobs_max, queues, None).await?;
        let other = self.wish(1, jobs_max, queues, None).await?;
        let (Some(one), Some(other)) = (one, other) else { return Ok(()) };
        let [first, second] = &self.stores;
        let claims = tokio::join!(first.claim(one.clone()), second.claim(other.clone()));
        self.answer(0, &one, claims.0).await?;
        self.answer(1, &other, claims.1).await.map(drop)
    }

    /// Writes down what a claim gave, if it may have.
    fn adopt(&mut self, place: u8, ask: &ClaimRequest, claim: &Claim) -> Verdict {
        prop_assert_eq!(claim.token.is_some(), !claim.jobs.is_empty());
        prop_assert!(claim.jobs.len() <= ask.jobs_max, "more than was asked for");
        let Some(token) = claim.token else { return Ok(()) };
        let beat = self.oracle.beats.get_mut(&ask.worker);
        prop_assert!(beat.is_some(), "it was given up");
        if let Some(beat) = beat.filter(|beat| **beat + BEAT_AGE < self.oracle.now) {
            *beat = self.oracle.now;
        }
        for taken in &claim.jobs {
            let id = taken.job.id;
            let now = self.oracle.now;
            let job = self.oracle.job(id);
            prop_assert_eq!(&job.place, &Place::Waiting { due: taken.due_at }, "{}", id);
            prop_assert!(taken.due_at <= now, "{} is not due", id);
            prop_assert_eq!((taken.attempt, taken.lost), (job.attempt + 1, job.lost));
            prop_assert!(ask.lanes.iter().any(|lane| lane.queue == job.new.queue), "not asked for");
            prop_assert!(ask.kinds.as_ref().is_none_or(|kinds| kinds.contains(&job.new.kind)));
            let gates: Vec<_> = taken.gates.iter().map(|gate| (**gate).to_owned()).collect();
            let of_job = gates_of(&job.new, &ask.limits);
            let unknown = gates.iter().find(|gate| of_job.iter().all(|(own, _)| own != *gate));
            prop_assert!(unknown.is_none(), "{} went through {:?}", id, unknown);
            self.oracle.start(id, ask.worker, token, &ask.limits, &gates).map_err(wrong)?;
            let item = SettleItem {
                job: Arc::clone(&taken.job),
                token,
                attempt: taken.attempt,
                lost: taken.lost,
                started_at: now,
                gates: taken.gates.iter().cloned().map(GateEnd::new).collect(),
                settlement: Settlement::Cancelled { reason: String::new() },
                decided: false,
                run: None,
            };
            self.leases.push(Lease { process: usize::from(place % 2), worker: ask.worker, item });
        }
        Ok(())
    }

    async fn settle_picked(&mut self, ends: &[(u16, End)]) -> Verdict {
        let mut picked: Vec<(Lease, End)> = Vec::new();
        for (pick, end) in ends {
            let Some(at) = usize::from(*pick).checked_rem(self.leases.len()) else { continue };
            // The later ones more often: most of the others are over.
            let at = self.leases.len() - 1 - at * at / self.leases.len();
            let lease = self.leases[at].clone();
            let same_worker = picked.iter().all(|(other, _)| other.worker == lease.worker);
            let other_job = picked.iter().all(|(other, _)| other.item.job.id != lease.item.job.id);
            if same_worker && other_job {
                picked.push((lease, *end));
            }
        }
        self.settle(picked).await
    }

    /// All that a worker has ends well.
    pub(super) async fn settle_all(&mut self, worker: WorkerId) -> Verdict {
        let held: Vec<JobId> = self.oracle.held_by(worker).into_iter().map(|(id, _)| id).collect();
        let mut picked: Vec<(Lease, End)> = Vec::new();
        for lease in self.leases.iter().rev() {
            let id = lease.item.job.id;
            if held.contains(&id) && picked.iter().all(|(other, _)| other.item.job.id != id) {
                picked.push((lease.clone(), End::Done));
            }
        }
        self.settle(picked).await
    }

    async fn settle(&mut self, picked: Vec<(Lease, End)>) -> Verdict {
        let Some((Lease { process, worker, .. }, _)) = picked.first() else { return Ok(()) };
        let (process, worker) = (*process, *worker);
        let (mut items, mut expected) = (Vec::new(), Vec::new());
        for (Lease { mut item, .. }, end) in picked {
            item.settlement = settlement(end, &item);
            if let End::RateLimited { delay_s } = end {
                let limits = self.books[process].limits(&item.job.queue);
                for gate in &mut item.gates {
                    let base = gate.gate.split(PART).next();
                    let limit = limits.iter().find(|limit| Some(&*limit.gate) == base);
                    let is_held = limit.is_some_and(|limit| limit.hold);
                    gate.shut_for = is_held.then(|| Duration::from_secs(delay_s.into()));
                }
            }
            expected.push(self.end(&item));
            items.push(item);
        }
        prop_assert_eq!(
            fine(self.stores[process].settle(worker, items).await)?,
            expected,
            "settle"
        );
        Ok(())
    }

    /// What a settle does to the oracle, and what it is to be answered.
    fn end(&mut self, item: &SettleItem) -> Settled {
        let (now, id) = (self.oracle.now, item.job.id);
        let job = self.oracle.job(id);
        let called_off = match &job.place {
            Place::Running { token, called_off, .. } if *token == item.token => *called_off,
            _ if job.settled.contains(&item.token) => return Settled::Accepted,
            _ => return Settled::Stale,
        };
        job.settled.insert(item.token);
        let mut answer = Settled::Accepted;
        job.place = match &item.settlement {
            Settlement::Again { spent, .. } if called_off => {
                job.attempt = *spent;
                answer = Settled::Cancelled;
                Place::Finished(State::Cancelled)
            }
            Settlement::Again { delay, spent, .. } => {
                job.attempt = *spent;
                Place::Waiting { due: now + *delay }
            }
            ended => {
                job.attempt += 1;
                Place::Finished(match ended {
                    Settlement::Dead { .. } => State::Dead,
                    Settlement::Cancelled { .. } => State::Cancelled,
                    _ => State::Done,
                })
            }
        };
        for gate in &item.gates {
            if let Some(delay) = gate.shut_for {
                self.oracle.shut(&gate.gate, delay);
            }
        }
        answer
    }

    async fn cancel(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.oracle.pick(pick) else { return Ok(()) };
        let job = self.oracle.job(id);
        let expected = match &mut job.place {
            Place::Finished(_) => CancelAnswer::Finished,
            Place::Running { called_off, .. } => {
                *called_off = true;
                CancelAnswer::Requested
            }
            Place::Waiting { .. } => {
                job.place = Place::Finished(State::Cancelled);
                CancelAnswer::Cancelled
            }
        };
        prop_assert_eq!(
            fine(self.stores[0].cancel(vec![id], "enough").await)?,
            [expected],
            "cancel"
        );
        Ok(())
    }

    async fn run_now(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.oracle.pick(pick) else { return Ok(()) };
        let now = self.oracle.now;
        let expected = match &mut self.oracle.job(id).place {
            Place::Waiting { due } if *due > now => {
                *due = now;
                true
            }
            _ => false,
        };
        prop_assert_eq!(fine(self.stores[0].run_now(id).await)?, expected, "run now {}", id);
        Ok(())
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.oracle.now = self.clock.now();
    }

    pub(super) async fn beat(&mut self, place: u8) -> Verdict {
        let Some(worker) = self.workers[usize::from(place)] else { return Ok(()) };
        let beat = fine(self.store(place).beat(worker).await)?;
        prop_assert_eq!(beat.lost, !self.oracle.beats.contains_key(&worker), "lost");
        if beat.lost {
            self.workers[usize::from(place)] = None;
        } else {
            self.oracle.beats.insert(worker, self.oracle.now);
        }
        Ok(())
    }

    pub(super) async fn rescue(&mut self) -> Verdict {
        self.oracle.rescue();
        fine(self.stores[0].rescue(rescue_rules()).await).map(drop)
    }
}

fn new_card() -> WorkerCard {
    WorkerCard {
        id: WorkerId::new(),
        name: "model".into(),
        queues: vec!["q0".into(), "q1".into()],
        kinds: Vec::new(),
        slots: SLOTS_SAID,
        slots_of: std::collections::BTreeMap::new(),
        lease_ttl: None,
    }
}

pub(super) fn rescue_rules() -> RescueRules {
    RescueRules { lease_ttl: TTL, clear_for: None, lost_max: LOST_MAX }
}

fn new_job(wish: &Wish) -> NewJob {
    NewJob {
        queue: format!("q{}", wish.queue),
        priority: wish.priority,
        tenant: wish.tenant.map(|tenant| format!("t{tenant}")),
        key: wish.key.map(|key| format!("key{key}")),
        due: Due::In(Duration::from_secs(wish.delay_s.into())),
        ..NewJob::new(format!("k{}", wish.kind), Payload::null())
    }
}

fn settlement(end: End, item: &SettleItem) -> Settlement {
    let failure = |class| Failure::new(&item.job.kind, class, "it broke");
    let delay = |s: u8| Duration::from_secs(s.into());
    let spared = item.attempt - 1;
    match end {
        End::Done => Settlement::Done { output: Payload::null(), follow_ups: Vec::new() },
        End::Retry { delay_s } => {
            let failure = Some(failure(ErrorClass::Transient));
            Settlement::Again { delay: delay(delay_s), spent: item.attempt, failure }
        }
        End::Snooze { delay_s } => {
            Settlement::Again { delay: delay(delay_s), spent: spared, failure: None }
        }
        End::RateLimited { delay_s } => {
            let failure = Some(failure(ErrorClass::RateLimited));
            Settlement::Again { delay: delay(delay_s), spent: spared, failure }
        }
        End::Cancelled => Settlement::Cancelled { reason: "no use".into() },
        End::Dead => Settlement::Dead { failure: failure(ErrorClass::Permanent) },
    }
}
