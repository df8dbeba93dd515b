//! Plays a game on two stores of one database, and tells the oracle what became of the jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::flow::plan::{self, Growth};
use tidemill_core::retention::Retention;
use tidemill_core::{
    ErrorClass, Failure, FlowId, JobId, Limits, ManualClock, NewJob, Payload, Priority, Settlement,
    WorkerId,
};
use tidemill_store::flow::{FlowAct, FlowAnswer, Start};
use tidemill_store::request::RescueRules;
use tidemill_store::{
    CancelAnswer, Claim, ClaimRequest, JobFilter, JobView, Lane, SettleItem, Settled, Share, Store,
    WorkerCard,
};

use super::graph::{Graph, job};
use super::ops::{End, Op};
use super::oracle::{Fate, Oracle};
use crate::games::{Verdict, fine};

const TTL: Duration = Duration::from_secs(8);

/// An attempt that somebody claimed by one of the stores.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    store: usize,
    pub(super) item: SettleItem,
}

pub(super) struct Play {
    pub(super) stores: [Arc<dyn Store>; 2],
    clock: ManualClock,
    workers: [WorkerId; 2],
    pub(super) oracles: Vec<Oracle>,
    running: Vec<Lease>,
    over: Vec<Lease>,
    grown: u32,
    /// Jobs of flows with a cap that were let go when it was looked last, or are by a replay.
    pub(super) let_go: BTreeMap<usize, BTreeSet<JobId>>,
}

impl Play {
    pub(super) async fn new(
        stores: [Arc<dyn Store>; 2],
        clock: ManualClock,
        graphs: &[Graph],
    ) -> Verdict<Self> {
        let workers = [register(&stores[0]).await?, register(&stores[1]).await?];
        let mut oracles = Vec::new();
        for (graph, store) in graphs.iter().zip(stores.iter().cycle()) {
            let plan = graph.flow().plan(&Limits::default(), Retention::default());
            let plan = plan.map_err(|e| TestCaseError::fail(format!("no flow: {e}")))?;
            let of = |at: usize| {
                let of_step = plan.jobs.iter().filter(|planned| planned.step as usize == at);
                of_step.map(|planned| planned.job.id).collect::<Vec<_>>()
            };
            let jobs: Vec<_> = (0..graph.steps.len()).map(of).collect();
            oracles.push(Oracle::new(graph, plan.id, &jobs));
            prop_assert!(fine(store.start_flow(plan, Start::Now).await)?, "it is new");
        }
        let (running, over, let_go) = (Vec::new(), Vec::new(), BTreeMap::new());
        Ok(Self { stores, clock, workers, oracles, running, over, grown: 0, let_go })
    }

    /// Plays one operation. Those whose meaning depends on what has been decided look first.
    pub(super) async fn step(&mut self, op: Op) -> Verdict {
        match op {
            Op::Take { store, jobs_max } => self.take(store.into(), jobs_max).await.map(drop),
            Op::End { store, ends } => {
                let picked = self.pick(store.into(), &ends);
                self.look_before_growth(&picked).await?;
                self.end(store.into(), picked).await
            }
            Op::EndTogether { one, two } => self.end_together(&one, &two).await,
            Op::Again { pick, end } => self.again(pick, end).await,
            Op::Lose => self.lose().await,
            Op::Cancel { store, pick } => self.cancel(store.into(), pick).await,
            Op::Replay { store, pick } => self.replay(store.into(), pick).await,
            Op::Retry { store, flow } => self.retry(store.into(), flow.into()).await,
            Op::Rerun { store, flow, pick } => self.rerun(store.into(), flow.into(), pick).await,
            Op::CallOff { store, flow } => self.call_off(store.into(), flow.into()).await,
            Op::Look => self.look().await,
        }
    }

    /// Claims; nothing comes that may not start.
    pub(super) async fn take(&mut self, store: usize, jobs_max: usize) -> Verdict<usize> {
        let claim = fine(self.stores[store].claim(ask(self.workers[store], jobs_max)).await)?;
        for at in 0..claim.jobs.len() {
            let item = item(&claim, at);
            let id = item.job.id;
            let oracle = self.oracle(id)?;
            let may = oracle.job(id);
            prop_assert_eq!(may, Some((Fate::Held, true)), "{} {}", item.job.kind, "started");
            oracle.set(id, Fate::Running { called_off: false });
            self.running.push(Lease { store, item });
        }
        Ok(claim.jobs.len())
    }

    fn oracle(&mut self, id: JobId) -> Verdict<&mut Oracle> {
        let found = self.oracles.iter_mut().find(|oracle| oracle.find(id).is_some());
        found.ok_or_else(|| TestCaseError::fail(format!("{id} is nobody's")))
    }

    /// Takes out of what runs what is picked of a store.
    fn pick(&mut self, store: usize, ends: &[(u16, End)]) -> Vec<(Lease, End)> {
        let mut picked = Vec::new();
        for (pick, end) in ends {
            let of_store = self.running.iter().enumerate();
            let of_store: Vec<usize> =
                of_store.filter(|(_, lease)| lease.store == store).map(|(at, _)| at).collect();
            let Some(at) = usize::from(*pick).checked_rem(of_store.len()) else { break };
            picked.push((self.running.remove(of_store[at]), *end));
        }
        picked
    }

    async fn look_before_growth(&mut self, picked: &[(Lease, End)]) -> Verdict {
        let grows = picked.iter().any(|(_, end)| matches!(end, End::Grow(_)));
        if grows { self.look().await } else { Ok(()) }
    }

    /// Tells the oracle what ends, and makes the items of it, with the answers they must get.
    fn ends(&mut self, picked: Vec<(Lease, End)>) -> Verdict<(Vec<SettleItem>, Vec<Settled>)> {
        let (mut items, mut expected) = (Vec::new(), Vec::new());
        let mut fates = Vec::new();
        for (lease, end) in picked {
            let id = lease.item.job.id;
            let fate = self.oracle(id)?.job(id).map(|(fate, _)| fate);
            let called_off = fate == Some(Fate::Running { called_off: true });
            let (settlement, fate) = match end {
                End::Done(output) => (done(output, Vec::new()), Fate::Done(output)),
                End::Grow(jobs) => (self.grow(&lease, jobs)?, Fate::Done(0)),
                End::Retry if called_off => (again(), Fate::Cancelled),
                End::Retry => (again(), Fate::Held),
                End::Cancelled => {
                    (Settlement::Cancelled { reason: "told".into() }, Fate::Cancelled)
                }
                End::Dead => (Settlement::Dead { failure: failure() }, Fate::Dead),
            };
            let is_cut = end == End::Retry && called_off;
            expected.push(if is_cut { Settled::Cancelled } else { Settled::Accepted });
            fates.push((id, fate));
            items.push(SettleItem { settlement, ..lease.item.clone() });
            self.over.push(lease);
        }
        for (id, fate) in fates {
            self.oracle(id)?.set(id, fate);
        }
        self.oracles.iter_mut().for_each(Oracle::go_on);
        Ok((items, expected))
    }

    fn grow(&mut self, lease: &Lease, jobs: usize) -> Verdict<Settlement> {
        self.grown += 1;
        let (name, by) = (format!("g{}", self.grown), &lease.item.job);
        let place = by.options.flow.as_deref().expect("it is of a flow");
        let added = (0..jobs)
            .map(|_| plan::grow(job(&name), Growth::new(place, &name)).expect("it may grow"));
        let added: Vec<NewJob> = added.collect();
        let ids: Vec<JobId> = added.iter().map(|job| job.id).collect();
        self.oracle(by.id)?.grow(by.id, &name, &ids);
        Ok(done(0, added))
    }

    pub(super) async fn end(&mut self, store: usize, picked: Vec<(Lease, End)>) -> Verdict {
        let (items, expected) = self.ends(picked)?;
        if items.is_empty() {
            return Ok(());
        }
        let answers = fine(self.stores[store].settle(self.workers[store], items).await)?;
        prop_assert_eq!(answers, expected, "settle");
        Ok(())
    }

    async fn end_together(&mut self, one: &[(u16, End)], two: &[(u16, End)]) -> Verdict {
        let (one, two) = (self.pick(0, one), self.pick(1, two));
        self.look_before_growth(&one).await?;
        self.look_before_growth(&two).await?;
        // A step that one of them adds may come before or after what the other decides.
        let plain = |picked: Vec<(Lease, End)>| {
            let plain = picked.into_iter().map(|(lease, end)| match end {
                End::Grow(_) => (lease, End::Done(0)),
                other => (lease, other),
            });
            plain.collect::<Vec<_>>()
        };
        let ((one, of_one), (two, of_two)) = (self.ends(plain(one))?, self.ends(plain(two))?);
        let [first, second] = [Arc::clone(&self.stores[0]), Arc::clone(&self.stores[1])];
        let (one, two) =
            tokio::join!(first.settle(self.workers[0], one), second.settle(self.workers[1], two));
        prop_assert_eq!((fine(one)?, fine(two)?), (of_one, of_two), "settle together");
        Ok(())
    }

    async fn again(&mut self, pick: u16, end: End) -> Verdict {
        let Some(at) = usize::from(pick).checked_rem(self.over.len()) else { return Ok(()) };
        let Lease { store, item } = self.over[at].clone();
        let settlement = match end {
            End::Dead => Settlement::Dead { failure: failure() },
            _ => done(99, Vec::new()),
        };
        let worker = self.workers[store];
        fine(self.stores[store].settle(worker, vec![SettleItem { settlement, ..item }]).await)?;
        Ok(())
    }

    async fn lose(&mut self) -> Verdict {
        self.clock.advance(TTL + Duration::from_secs(1));
        let rules = RescueRules { lease_ttl: TTL, clear_for: None, lost_max: 10_000 };
        fine(self.stores[0].rescue(rules).await)?;
        for lease in std::mem::take(&mut self.running) {
            let id = lease.item.job.id;
            let oracle = self.oracle(id)?;
            let called_off = oracle
                .job(id)
                .is_some_and(|(fate, _)| matches!(fate, Fate::Running { called_off: true }));
            oracle.set(id, if called_off { Fate::Cancelled } else { Fate::Held });
            self.over.push(lease);
        }
        self.oracles.iter_mut().for_each(Oracle::go_on);
        self.workers = [register(&self.stores[0]).await?, register(&self.stores[1]).await?];
        Ok(())
    }

    fn pick_job(&self, pick: u16) -> Option<JobId> {
        let all = self.oracles.iter().flat_map(|oracle| &oracle.parts);
        let all: Vec<JobId> = all.flat_map(|part| part.jobs.iter().map(|(id, _)| *id)).collect();
        usize::from(pick).checked_rem(all.len()).map(|at| all[at])
    }

    async fn cancel(&mut self, store: usize, pick: u16) -> Verdict {
        self.look().await?;
        let Some(id) = self.pick_job(pick) else { return Ok(()) };
        let oracle = self.oracle(id)?;
        let (step, _) = oracle.find(id).expect("it is there");
        let is_over = oracle.step(step).is_final();
        let is_replayed = oracle.parts[step].history.is_some() && oracle.parts[step].has_run;
        let expected = match oracle.job(id) {
            Some((Fate::Running { .. }, _)) => CancelAnswer::Requested,
            Some((Fate::Held, _)) if !is_over || is_replayed => CancelAnswer::Cancelled,
            _ => CancelAnswer::Finished,
        };
        if expected != CancelAnswer::Finished {
            oracle.cancel(id);
            oracle.go_on();
        }
        let answers = fine(self.stores[store].cancel(vec![id], "enough").await)?;
        prop_assert_eq!(answers, [expected], "cancel {}", id);
        Ok(())
    }

    async fn replay(&mut self, store: usize, pick: u16) -> Verdict {
        self.look().await?;
        let dead: Vec<JobId> = self.dead(0).into_iter().chain(self.dead(1)).collect();
        let Some(at) = usize::from(pick).checked_rem(dead.len()) else { return Ok(()) };
        let sent = fine(self.stores[store].dead_replay(&[dead[at]], "model".into(), None).await)?;
        prop_assert_eq!(sent, [dead[at]]);
        self.sent(&dead[at..=at])
    }

    fn dead(&self, flow: usize) -> Vec<JobId> {
        let parts = self.oracles.get(flow).map_or(&[][..], |oracle| &oracle.parts);
        let jobs = parts.iter().flat_map(|part| &part.jobs);
        jobs.filter(|(_, fate)| *fate == Fate::Dead).map(|(id, _)| *id).collect()
    }

    fn sent(&mut self, ids: &[JobId]) -> Verdict {
        let Some(first) = ids.first() else { return Ok(()) };
        let oracle = self.oracle(*first)?;
        oracle.replay(ids);
        oracle.go_on();
        let flow = self.oracles.iter().position(|oracle| oracle.find(*first).is_some());
        self.let_go.entry(flow.unwrap_or(0)).or_default().extend(ids);
        Ok(())
    }

    async fn retry(&mut self, store: usize, flow: usize) -> Verdict {
        self.look().await?;
        let flow = flow % self.oracles.len();
        let (id, mut dead) = (self.oracles[flow].id, self.dead(flow));
        let is_current = |id: &JobId| {
            let parts = &self.oracles[flow].parts;
            self.oracles[flow].find(*id).is_some_and(|(step, _)| parts[step].history.is_none())
        };
        dead.retain(is_current);
        let act = FlowAct::Retry { step: None, by: "model".into(), why: None };
        let answer = fine(self.stores[store].change_flow(id, act).await)?;
        match dead.len() as u64 {
            0 => prop_assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}"),
            jobs => prop_assert_eq!(answer, FlowAnswer::Acted { jobs }),
        }
        self.sent(&dead)
    }

    async fn rerun(&mut self, store: usize, flow: usize, pick: u16) -> Verdict {
        self.look().await?;
        let flow = flow % self.oracles.len();
        let oracle = &self.oracles[flow];
        let (id, at) = (oracle.id, usize::from(pick) % oracle.parts.len());
        let (step, may) = (oracle.parts[at].name.clone(), oracle.may_rerun(at));
        let answer = self.stores[store].change_flow(id, FlowAct::Rerun { step }).await;
        let answer = fine(answer)?;
        if !may {
            prop_assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}");
            return Ok(());
        }
        let fresh = self.jobs_by_step(id).await?;
        let jobs = self.oracles[flow].rerun(at, &fresh);
        prop_assert_eq!(answer, FlowAnswer::Acted { jobs });
        self.look().await
    }

    /// The jobs of the steps by which a flow goes: of copies only the store knows them.
    async fn jobs_by_step(&self, id: FlowId) -> Verdict<BTreeMap<String, Vec<JobId>>> {
        let all = JobFilter { limit: 1000, ..JobFilter::default() };
        let jobs = fine(self.stores[0].jobs(&all).await)?.jobs;
        let view = fine(self.stores[0].flow(id).await)?.expect("the flow is there");
        let of = |number: u32| {
            let is_of = move |view: &&JobView| {
                let place = view.job.options.flow.as_deref();
                place.is_some_and(|place| (place.id, place.step) == (id, number))
            };
            jobs.iter().filter(is_of).map(|view| view.job.id).collect()
        };
        let current = view.steps.into_iter().filter(|step| !step.superseded);
        Ok(current.map(|step| (step.name, of(step.number))).collect())
    }

    async fn call_off(&mut self, store: usize, flow: usize) -> Verdict {
        self.look().await?;
        let flow = flow % self.oracles.len();
        let (id, is_open) = (self.oracles[flow].id, self.oracles[flow].call_off());
        let act = FlowAct::Cancel { reason: "no more".into() };
        let answer = fine(self.stores[store].change_flow(id, act).await)?;
        prop_assert_eq!(matches!(answer, FlowAnswer::Acted { .. }), is_open, "{:?}", answer);
        self.look().await
    }

    /// Runs everything that is due to done, until nothing is; then every flow has ended.
    pub(super) async fn run_out(&mut self) -> Verdict {
        self.look().await?;
        loop {
            for store in [0, 1] {
                let all = std::mem::take(&mut self.running);
                let (of_store, others) = all.into_iter().partition(|lease| lease.store == store);
                self.running = others;
                let of_store: Vec<Lease> = of_store;
                let ends = of_store.into_iter().map(|lease| (lease, End::Done(7))).collect();
                self.end(store, ends).await?;
            }
            self.look().await?;
            if self.take(0, 1000).await? == 0 {
                break;
            }
        }
        for oracle in &self.oracles {
            prop_assert!(oracle.state().is_final(), "{:?} is left over", oracle);
        }
        Ok(())
    }
}

async fn register(store: &Arc<dyn Store>) -> Verdict<WorkerId> {
    let id = WorkerId::new();
    let queues = vec!["default".into()];
    let card = WorkerCard {
        id,
        name: "model".into(),
        queues,
        kinds: Vec::new(),
        slots: 9,
        slots_of: BTreeMap::new(),
        lease_ttl: None,
    };
    fine(store.register(card).await)?;
    Ok(id)
}

fn ask(worker: WorkerId, jobs_max: usize) -> ClaimRequest {
    let lane = |priority| Lane { queue: "default".into(), priority };
    ClaimRequest {
        worker,
        lanes: Priority::ALL.map(lane).into(),
        share: Share::default(),
        limits: Arc::default(),
        edition: None,
        kinds: None,
        jobs_max,
        stand: None,
    }
}

fn item(claim: &Claim, at: usize) -> SettleItem {
    let taken = &claim.jobs[at];
    SettleItem {
        job: Arc::clone(&taken.job),
        token: claim.token.expect("a claim with jobs has a token"),
        attempt: taken.attempt,
        lost: taken.lost,
        started_at: claim.now,
        gates: Vec::new(),
        settlement: Settlement::Cancelled { reason: String::new() },
        decided: false,
        run: None,
    }
}

fn done(output: i64, follow_ups: Vec<NewJob>) -> Settlement {
    Settlement::Done { output: Payload::trusted(output.to_string()), follow_ups }
}

fn again() -> Settlement {
    Settlement::Again { delay: Duration::ZERO, spent: 1, failure: Some(failure()) }
}

fn failure() -> Failure {
    Failure::new("k", ErrorClass::Transient, "it broke")
}
