//! Plays a game on two stores of one database, and holds what they say against the oracle.

use std::sync::Arc;
use std::time::Duration;

use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::retention::Retention;
use tidemill_core::{
    By, ErrorClass, Failure, FlowId, JobId, Limits, ManualClock, Payload, Priority, Settlement,
    State, WorkerId,
};
use tidemill_store::flow::{FlowAct, FlowAnswer, FlowView, Start};
use tidemill_store::request::RescueRules;
use tidemill_store::{ClaimRequest, Lane, SettleItem, Settled, Share, Store, WorkerCard};

use super::graph::{End, Op, Saga};
use super::oracle::{Fate, Oracle};
use crate::games::{Verdict, fine};

const TTL: Duration = Duration::from_secs(8);
/// Looks before a saga that never comes to rest is given up.
const LOOKS_MAX: usize = 50;

pub(super) struct Play {
    stores: [Arc<dyn Store>; 2],
    clock: ManualClock,
    workers: [WorkerId; 2],
    id: FlowId,
    oracle: Oracle,
    running: Vec<(usize, SettleItem)>,
}

impl Play {
    pub(super) async fn new(
        stores: [Arc<dyn Store>; 2],
        clock: ManualClock,
        saga: &Saga,
    ) -> Verdict<Self> {
        let workers = [register(&stores[0]).await?, register(&stores[1]).await?];
        let plan = saga.flow().plan(&Limits::default(), Retention::default());
        let plan = plan.map_err(|e| TestCaseError::fail(format!("no saga: {e}")))?;
        let ids: Vec<JobId> = plan.jobs.iter().map(|planned| planned.job.id).collect();
        let (id, oracle) = (plan.id, Oracle::new(saga, &ids));
        prop_assert!(fine(stores[0].start_flow(plan, Start::Now).await)?, "it is new");
        Ok(Self { stores, clock, workers, id, oracle, running: Vec::new() })
    }

    /// Plays one operation. Those whose meaning depends on what has been decided look first.
    pub(super) async fn step(&mut self, op: Op) -> Verdict {
        match op {
            Op::Take { store, jobs_max } => self.take(store.into(), jobs_max).await.map(drop),
            Op::End { pick, end } => {
                let Some(at) = usize::from(pick).checked_rem(self.running.len()) else {
                    return Ok(());
                };
                self.end(at, end).await
            }
            Op::Lose => self.lose().await,
            Op::Cancel { pick } => self.cancel(pick).await,
            Op::Replay { pick } => self.replay(pick).await,
            Op::Retry => self.retry().await,
            Op::Resolve { pick } => self.resolve(pick).await,
            Op::CallOff => self.call_off().await,
            Op::Look => self.look().await,
        }
    }

    /// Claims; nothing comes that may not start.
    async fn take(&mut self, store: usize, jobs_max: usize) -> Verdict<usize> {
        // An undo has a job that the oracle learns of by looking.
        self.look().await?;
        let claim = fine(self.stores[store].claim(ask(self.workers[store], jobs_max)).await)?;
        for taken in &claim.jobs {
            let at = self.part(taken.job.id)?;
            let part = &mut self.oracle.parts[at];
            prop_assert_eq!((part.fate, part.has_run), (Fate::Held, true), "{}", &part.name);
            part.fate = Fate::Running { called_off: false };
            let item = SettleItem {
                job: Arc::clone(&taken.job),
                token: claim.token.expect("a claim with jobs has a token"),
                attempt: taken.attempt,
                lost: taken.lost,
                started_at: claim.now,
                gates: Vec::new(),
                settlement: Settlement::Cancelled { reason: "told".into() },
                decided: false,
                run: None,
            };
            self.running.push((store, item));
        }
        Ok(claim.jobs.len())
    }

    fn part(&self, id: JobId) -> Verdict<usize> {
        self.oracle.find(id).ok_or_else(|| TestCaseError::fail(format!("{id} is nobody's")))
    }

    async fn end(&mut self, at: usize, end: End) -> Verdict {
        let (store, mut item) = self.running.remove(at);
        let part = self.part(item.job.id)?;
        let part = &mut self.oracle.parts[part];
        let called_off = part.fate == Fate::Running { called_off: true };
        let failure = |in_doubt: bool| {
            let class = if in_doubt { ErrorClass::Ambiguous } else { ErrorClass::Transient };
            Failure::new("k", class, "it broke")
        };
        let mut expected = Settled::Accepted;
        match end {
            End::Done(output) => {
                let output_text = Payload::trusted(output.to_string());
                item.settlement = Settlement::Done { output: output_text, follow_ups: Vec::new() };
                part.fate = Fate::Done(output);
            }
            End::Retry { in_doubt } => {
                let failure = Some(failure(in_doubt));
                item.settlement = Settlement::Again { delay: Duration::ZERO, spent: 1, failure };
                // Called off in its middle: nobody knows how far it came.
                part.in_doubt |= in_doubt || called_off;
                part.fate = if called_off { Fate::Cancelled } else { Fate::Held };
                expected = if called_off { Settled::Cancelled } else { Settled::Accepted };
            }
            End::PutOff => {
                let delay = Duration::ZERO;
                item.settlement = Settlement::Again { delay, spent: 0, failure: None };
                part.in_doubt = true;
                part.fate = if called_off { Fate::Cancelled } else { Fate::Held };
                expected = if called_off { Settled::Cancelled } else { Settled::Accepted };
            }
            End::Dead { in_doubt } => {
                item.settlement = Settlement::Dead { failure: failure(in_doubt) };
                part.in_doubt |= in_doubt;
                part.fate = Fate::Dead;
            }
            End::Cancelled => {
                part.in_doubt = true;
                part.fate = Fate::Cancelled;
            }
        }
        self.oracle.go_on();
        let answers = fine(self.stores[store].settle(self.workers[store], vec![item]).await)?;
        prop_assert_eq!(answers, [expected], "settle");
        self.look().await
    }

    async fn lose(&mut self) -> Verdict {
        self.clock.advance(TTL + Duration::from_secs(1));
        fine(
            self.stores[0]
                .rescue(RescueRules { lease_ttl: TTL, clear_for: None, lost_max: 10_000 })
                .await,
        )?;
        for (_, item) in std::mem::take(&mut self.running) {
            let at = self.part(item.job.id)?;
            let part = &mut self.oracle.parts[at];
            let called_off = part.fate == Fate::Running { called_off: true };
            part.fate = if called_off { Fate::Cancelled } else { Fate::Held };
            part.in_doubt = true;
        }
        self.oracle.go_on();
        self.workers = [register(&self.stores[0]).await?, register(&self.stores[1]).await?];
        self.look().await
    }

    async fn cancel(&mut self, pick: u16) -> Verdict {
        self.look().await?;
        let may = |at: &usize| {
            let part = &self.oracle.parts[*at];
            let is_open = matches!(part.fate, Fate::Held | Fate::Running { .. });
            part.has_run && is_open
        };
        let may: Vec<usize> = (0..self.oracle.parts.len()).filter(may).collect();
        let Some(at) = usize::from(pick).checked_rem(may.len()) else { return Ok(()) };
        let part = &mut self.oracle.parts[may[at]];
        let Some(id) = part.id else { return Ok(()) };
        part.fate = match part.fate {
            Fate::Running { .. } => Fate::Running { called_off: true },
            _ => Fate::Cancelled,
        };
        self.oracle.go_on();
        fine(self.stores[1].cancel(vec![id], "enough").await)?;
        self.look().await
    }

    async fn replay(&mut self, pick: u16) -> Verdict {
        self.look().await?;
        let is_dead = |at: &usize| self.oracle.parts[*at].fate == Fate::Dead;
        let dead: Vec<usize> = (0..self.oracle.parts.len()).filter(is_dead).collect();
        let Some(at) = usize::from(pick).checked_rem(dead.len()) else { return Ok(()) };
        let (at, may) = (dead[at], self.oracle.replayable().contains(&dead[at]));
        let Some(id) = self.oracle.parts[at].id else { return Ok(()) };
        let sent = fine(
            self.stores[0].dead_replay(&[id], By::from("model").because("mended"), None).await,
        )?;
        prop_assert_eq!(sent.len(), usize::from(may), "replay {}", &self.oracle.parts[at].name);
        if may {
            self.oracle.replay(&[at]);
        }
        self.look().await
    }

    async fn retry(&mut self) -> Verdict {
        self.look().await?;
        let again = self.oracle.replayable();
        let act = FlowAct::Retry { step: None, by: "model".into(), why: Some("mended".into()) };
        let answer = fine(self.stores[1].change_flow(self.id, act).await)?;
        match again.len() as u64 {
            0 => prop_assert!(matches!(answer, FlowAnswer::NotNow { .. }), "{answer:?}"),
            jobs => prop_assert_eq!(answer, FlowAnswer::Acted { jobs }),
        }
        self.oracle.replay(&again);
        self.look().await
    }

    async fn resolve(&mut self, pick: u16) -> Verdict {
        self.look().await?;
        let is_dead = |at: &usize| self.oracle.parts[*at].fate == Fate::Dead;
        let is_held = |at: &usize| self.oracle.holding().contains(at);
        let may = |at: &usize| is_held(at) && self.oracle.replayable().contains(at);
        // One whose failure is answered is left as it is, unless it has been turned back from.
        let picked =
            |at: &usize| is_dead(at) && (may(at) || !self.oracle.replayable().contains(at));
        let dead: Vec<usize> = (0..self.oracle.parts.len()).filter(picked).collect();
        let Some(at) = usize::from(pick).checked_rem(dead.len()) else { return Ok(()) };
        let (at, may) = (dead[at], may(&dead[at]));
        let part = &mut self.oracle.parts[at];
        let (step, output) = (part.name.clone(), Some(Payload::trusted("5".to_owned())));
        if may {
            part.fate = Fate::Done(5);
            self.oracle.go_on();
        }
        let (by, why) = ("model".to_owned(), "called them".to_owned());
        let act = FlowAct::Resolve { step, output, by, why };
        let answer = fine(self.stores[0].change_flow(self.id, act).await)?;
        prop_assert_eq!(matches!(answer, FlowAnswer::Acted { jobs: 1 }), may, "{:?}", answer);
        self.look().await
    }

    async fn call_off(&mut self) -> Verdict {
        self.look().await?;
        let may = self.oracle.call_off();
        let act = FlowAct::Cancel { reason: "no more".into() };
        let answer = fine(self.stores[1].change_flow(self.id, act).await)?;
        prop_assert_eq!(matches!(answer, FlowAnswer::Acted { .. }), may, "{:?}", answer);
        self.look().await
    }

    /// Tends until nothing changes any more, learns the jobs of undos, and compares.
    async fn look(&mut self) -> Verdict {
        let mut last = None;
        let mut is_at_rest = false;
        for look in 0..LOOKS_MAX {
            let has_more = fine(self.stores[look % 2].tend_flows().await)?;
            let view = fine(self.stores[0].flow(self.id).await)?;
            is_at_rest = !has_more && view == last;
            if is_at_rest {
                break;
            }
            last = view;
        }
        prop_assert!(is_at_rest, "the saga comes to rest");
        let view = last.ok_or_else(|| TestCaseError::fail("the saga is gone"))?;
        self.compare(&view)?;
        for at in 0..self.oracle.parts.len() {
            self.compare_job(at).await?;
        }
        Ok(())
    }

    fn compare(&mut self, view: &FlowView) -> Verdict {
        let mut names: Vec<&str> = view.steps.iter().map(|step| step.name.as_str()).collect();
        let mut expected: Vec<&str> =
            self.oracle.parts.iter().map(|part| part.name.as_str()).collect();
        names.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(names, expected, "steps and undos");
        for at in 0..self.oracle.parts.len() {
            let state = self.oracle.step(at);
            let part = &mut self.oracle.parts[at];
            let step = view.steps.iter().find(|step| step.name == part.name);
            let step = step.ok_or_else(|| TestCaseError::fail(part.name.clone()))?;
            prop_assert_eq!(step.state, state, "{}", &part.name);
            prop_assert_eq!(step.undoes.map(|number| number as usize), part.undoes);
            part.id = part.id.or(step.first);
        }
        prop_assert_eq!(view.head.state, self.oracle.state(), "the saga");
        Ok(())
    }

    async fn compare_job(&self, at: usize) -> Verdict {
        let part = &self.oracle.parts[at];
        let id = part.id.ok_or_else(|| TestCaseError::fail(format!("{} has no job", part.name)))?;
        let job = fine(self.stores[1].job(id).await)?;
        let job = job.ok_or_else(|| TestCaseError::fail(format!("{} is lost", part.name)))?;
        let expected = match part.fate {
            Fate::Held if self.oracle.step(at).is_final() => State::Cancelled,
            Fate::Held if !part.has_run => State::Blocked,
            Fate::Held => State::Ready,
            Fate::Running { .. } => State::Running,
            Fate::Done(_) => State::Done,
            Fate::Dead => State::Dead,
            Fate::Cancelled => State::Cancelled,
        };
        prop_assert_eq!(job.state, expected, "the job of {}", &part.name);
        let called_off = part.fate == Fate::Running { called_off: true };
        prop_assert_eq!(job.cancel_requested, called_off, "{}", &part.name);
        if let Some((outcome, output)) = self.oracle.told(at) {
            let told: serde_json::Value = job.job.payload.read().expect("it is JSON");
            prop_assert_eq!(&told["outcome"], outcome, "{}", &part.name);
            prop_assert_eq!(told["output"].as_i64(), output, "{}", &part.name);
        }
        Ok(())
    }

    /// Runs everything that is due to done, sends again what is dead, and resolves nothing: then it has ended.
    pub(super) async fn run_out(&mut self) -> Verdict {
        loop {
            while !self.running.is_empty() {
                self.end(0, End::Done(7)).await?;
            }
            if self.take(0, 1000).await? > 0 {
                continue;
            }
            if self.oracle.replayable().is_empty() || self.oracle.state().is_final() {
                break;
            }
            self.retry().await?;
        }
        let state = self.oracle.state();
        prop_assert!(
            state.is_final(),
            "it is {:?}, and nobody can go on: {:?}",
            state,
            self.oracle
        );
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
        slots_of: std::collections::BTreeMap::new(),
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
