//! Plays operations on two stores of one database, and holds what they answer against the oracle.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::schedule::due::due as core_due;
use tidemill_core::schedule::slot::Slots;
use tidemill_core::schedule::{Definition, Occasion, Overlap, Rule};
use tidemill_core::{ManualClock, Payload, Priority, Settlement, WorkerId};
use tidemill_store::request::GateEnd;
use tidemill_store::schedule::{
    Advance, FireAnswer, FireRequest, How, NextAt, ScheduleChange, SlotJobs, What, Which,
};
use tidemill_store::{
    ClaimRequest, Lane, ScheduleView, SettleItem, Settled, Share, Store, WorkerCard,
};

use super::ops::{Op, Wish};
use super::oracle::{GRACE_S, Oracle, Place, Rest, after, at, due};
use crate::games::{Verdict, fine};

const NAMES: [&str; 2] = ["a", "b"];

/// What a process means to fire.
#[derive(Debug, Clone)]
struct Plan {
    name: usize,
    ask: FireRequest,
}

pub(super) struct Play {
    stores: [Arc<dyn Store>; 2],
    clock: ManualClock,
    worker: WorkerId,
    oracle: Oracle,
    plans: [Option<Plan>; 2],
    running: Vec<SettleItem>,
}

fn definition(name: usize, wish: Wish) -> Definition {
    Definition {
        missed: wish.missed,
        overlap: wish.overlap,
        grace_ms: GRACE_S as u64 * 1000,
        ..Definition::new(NAMES[name], Rule::EveryMs(wish.every_s as u64 * 1000))
    }
}

impl Play {
    pub(super) async fn new(stores: [Arc<dyn Store>; 2], clock: ManualClock) -> Verdict<Self> {
        clock.set(at(clock.now().as_second()));
        let worker = WorkerId::new();
        let queues = vec!["default".into()];
        let card = WorkerCard {
            id: worker,
            name: "model".into(),
            queues,
            kinds: vec![],
            slots: 9,
            slots_of: std::collections::BTreeMap::new(),
            lease_ttl: None,
        };
        fine(stores[0].register(card).await)?;
        let (oracle, plans, running) = (Oracle::default(), [None, None], Vec::new());
        Ok(Self { stores, clock, worker, oracle, plans, running })
    }

    fn now(&self) -> i64 {
        self.clock.now().as_second()
    }

    pub(super) async fn step(&mut self, op: Op) -> Verdict {
        match op {
            Op::Set { name, wish } => self.set(name, wish).await?,
            Op::Pause { name } => self.rest(name, true).await?,
            Op::Resume { name } => self.rest(name, false).await?,
            Op::Delete { name } => self.delete(name).await?,
            Op::Look { process, name } => self.look(process, name).await?,
            Op::Fire { process } => {
                if let Some(plan) = self.plans[process].take() {
                    let answer = fine(self.stores[process].fire(plan.ask.clone()).await)?;
                    self.fired(&plan, answer)?;
                }
            }
            Op::FireBoth => self.fire_both().await?,
            Op::RunNow { name } => self.run_now(name).await?,
            Op::Backfill { name, back_s, again } => self.backfill(name, back_s, again).await?,
            Op::Claim { jobs_max } => self.claim(jobs_max).await?,
            Op::End { pick } => self.end(pick).await?,
            Op::Forward { seconds } => self.clock.set(at(self.now() + seconds)),
            Op::Backward { seconds } => self.clock.set(at(self.now() - seconds)),
        }
        self.compare().await
    }

    async fn view(&self, name: usize) -> Verdict<Option<ScheduleView>> {
        let found = fine(self.stores[0].schedules(&Which::Named(NAMES[name].into())).await)?;
        Ok(found.into_iter().next())
    }

    async fn change(&self, change: ScheduleChange) -> Verdict {
        prop_assert!(fine(self.stores[1].change_schedules(vec![change]).await)?, "of this version");
        Ok(())
    }

    /// As the engine sets it: a change of time begins anew, behind all that has come.
    async fn set(&mut self, name: usize, wish: Wish) -> Verdict {
        let now = self.now();
        let (version, paused, next) = match &mut self.oracle.schedules[name] {
            Some(rest) => {
                let keeps = rest.wish.every_s == wish.every_s;
                let from = now.max(rest.last_slot.unwrap_or(now));
                rest.next = if keeps { rest.next } else { after(wish.every_s, from) };
                (rest.wish, rest.version) = (wish, rest.version + 1);
                (
                    rest.version - 1,
                    rest.paused,
                    if keeps { NextAt::Keep } else { anew(now, rest.next) },
                )
            }
            none => {
                let next = after(wish.every_s, now);
                let (last_slot, last_job, fired) = (None, None, BTreeSet::new());
                *none = Some(Rest {
                    wish,
                    // The clock stands still between whole seconds.
                    version: now * 1_000_000,
                    paused: false,
                    next,
                    last_slot,
                    last_job,
                    fired,
                });
                (0, false, anew(now, next))
            }
        };
        let definition = Box::new(definition(name, wish));
        self.change(ScheduleChange::Put { definition, version, paused, next_at: next }).await
    }

    async fn rest(&mut self, name: usize, paused: bool) -> Verdict {
        let now = self.now();
        let Some(rest) = &mut self.oracle.schedules[name] else { return Ok(()) };
        if rest.paused == paused {
            return Ok(());
        }
        let version = rest.version;
        (rest.paused, rest.version) = (paused, version + 1);
        let next_at = if paused {
            NextAt::Keep
        } else {
            rest.next = after(rest.wish.every_s, now);
            anew(now, rest.next)
        };
        let definition = Box::new(definition(name, rest.wish));
        self.change(ScheduleChange::Put { definition, version, paused, next_at }).await
    }

    async fn delete(&mut self, name: usize) -> Verdict {
        let Some(rest) = self.oracle.schedules[name].take() else { return Ok(()) };
        // Another of the same name is another schedule, though one that is made in the same moment has its versions.
        for plan in &mut self.plans {
            *plan = plan.take().filter(|plan| plan.name != name);
        }
        self.change(ScheduleChange::Delete { name: NAMES[name].into(), version: rest.version })
            .await
    }

    /// Plans as the engine does. What is due is what the oracle says.
    async fn look(&mut self, process: usize, name: usize) -> Verdict {
        let now = self.clock.now();
        let Some(view) = self.view(name).await? else { return Ok(()) };
        let Some(next_at) = view.next_at.filter(|next| *next <= now) else { return Ok(()) };
        let definition = &view.definition;
        let slots = Slots::of(definition).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let found = core_due(definition, &slots, next_at, now);
        if let Some(rest) = &self.oracle.schedules[name] {
            let (fire, missed) = due(rest.wish, rest.next, now.as_second());
            let seconds: Vec<_> = found.fire.iter().map(|slot| slot.as_second()).collect();
            prop_assert_eq!(seconds, fire, "what fires");
            prop_assert_eq!(found.missed.map_or(0, |missed| missed.slots), missed.len() as u64);
            let last = found.missed.map(|missed| missed.last.as_second());
            prop_assert_eq!(last, missed.last().copied(), "the last that is passed over");
            prop_assert_eq!(found.next, Some(at(after(rest.wish.every_s, now.as_second()))));
        }
        let made_at = view.made_at;
        let jobs_of =
            |slot| SlotJobs { slot, jobs: definition.jobs_of(Occasion::Slot { made_at, slot }) };
        let ask = FireRequest {
            name: definition.name.clone(),
            version: view.version,
            how: How::Slot,
            advance: Some(Advance { from: next_at, to: found.next }),
            overlap: definition.overlap,
            slots: found.fire.into_iter().map(jobs_of).collect(),
            missed: found.missed,
        };
        self.plans[process] = Some(Plan { name, ask });
        Ok(())
    }

    async fn fire_both(&mut self) -> Verdict {
        let [Some(one), Some(other)] = self.plans.clone() else { return Ok(()) };
        self.plans = [None, None];
        let [first, second] = &self.stores;
        let (a, b) = tokio::join!(first.fire(one.ask.clone()), second.fire(other.ask.clone()));
        let (a, b) = (fine(a)?, fine(b)?);
        // If it is one schedule, one of them was first.
        if a == FireAnswer::Changed {
            self.fired(&other, b)?;
            self.fired(&one, a)
        } else {
            self.fired(&one, a)?;
            self.fired(&other, b)
        }
    }

    /// Whether that had to come of it.
    fn fired(&mut self, plan: &Plan, answer: FireAnswer) -> Verdict {
        let now = self.clock.now();
        let Plan { name, ask } = plan;
        let holds = self.oracle.schedules[*name].as_ref().is_some_and(|rest| {
            let has_come =
                |step: Advance| !rest.paused && at(rest.next) == step.from && step.from <= now;
            rest.version == ask.version && ask.advance.is_none_or(has_come)
        });
        let FireAnswer::Done(slots) = answer else {
            prop_assert!(!holds, "it is as it was: {:?}", ask);
            return Ok(());
        };
        prop_assert!(holds, "it has changed: {:?}", ask);
        prop_assert_eq!(slots.len(), ask.slots.len());
        for (planned, fired) in ask.slots.iter().zip(slots) {
            let slot = planned.slot.as_second();
            let rest = self.oracle.schedules[*name].as_ref();
            let is_known = ask.how.is_once() && rest.is_some_and(|rest| rest.fired.contains(&slot));
            let overlap = ask.how.minds_overlap().then_some(ask.overlap);
            let id = planned.jobs[0].id;
            let expected =
                if is_known { What::Known } else { self.oracle.make(*name, id, overlap) };
            prop_assert_eq!(fired.what, expected, "slot {} of {:?}", slot, ask);
            let Some(rest) = &mut self.oracle.schedules[*name] else { continue };
            if fired.what == What::Fired {
                prop_assert_eq!(fired.job, Some(id));
                if ask.how.is_once() {
                    prop_assert!(rest.fired.insert(slot), "{} has fired twice", slot);
                }
                if ask.how.minds_overlap() {
                    rest.last_job = Some(id);
                }
            }
        }
        if let (Some(step), Some(rest)) = (ask.advance, &mut self.oracle.schedules[*name]) {
            rest.next = step.to.map_or(i64::MAX, Timestamp::as_second);
            let last =
                ask.slots.last().map(|slot| slot.slot).max(ask.missed.map(|missed| missed.last));
            rest.last_slot = rest.last_slot.max(last.map(Timestamp::as_second));
        }
        Ok(())
    }

    async fn ask(&mut self, name: usize, how: How, slots: Vec<SlotJobs>) -> Verdict {
        let Some(view) = self.view(name).await? else { return Ok(()) };
        let (overlap, version) = (view.definition.overlap, view.version);
        let (advance, missed) = (None, None);
        let ask =
            FireRequest { name: NAMES[name].into(), version, how, advance, overlap, slots, missed };
        let answer = fine(self.stores[0].fire(ask.clone()).await)?;
        self.fired(&Plan { name, ask }, answer)
    }

    async fn run_now(&mut self, name: usize) -> Verdict {
        let Some(view) = self.view(name).await? else { return Ok(()) };
        let jobs = view.definition.jobs_of(Occasion::RunNow);
        self.ask(name, How::RunNow, vec![SlotJobs { slot: self.clock.now(), jobs }]).await
    }

    async fn backfill(&mut self, name: usize, back_s: i64, again: bool) -> Verdict {
        let Some(view) = self.view(name).await? else { return Ok(()) };
        let now = self.now();
        let slots = Slots::of(&view.definition).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let past = slots.between(at(now - back_s), at(now), 100);
        let each = Definition { overlap: Overlap::Allow, ..view.definition.clone() };
        let how = if again { How::Again } else { How::Backfill };
        let (made_at, asked_at) = (view.made_at, self.clock.now());
        let occasion = |slot| {
            if again {
                Occasion::Again { asked_at, slot }
            } else {
                Occasion::Slot { made_at, slot }
            }
        };
        let jobs_of = |slot| SlotJobs { slot, jobs: each.jobs_of(occasion(slot)) };
        let slots: Vec<SlotJobs> = past.into_iter().map(jobs_of).collect();
        // Asked for twice at one moment, it is the same work.
        if again && slots.iter().any(|slot| self.oracle.jobs.contains_key(&slot.jobs[0].id)) {
            return Ok(());
        }
        self.ask(name, how, slots).await
    }

    async fn claim(&mut self, jobs_max: usize) -> Verdict {
        let lanes = Priority::ALL.map(|priority| Lane { queue: "default".into(), priority }).into();
        let ask = ClaimRequest {
            worker: self.worker,
            lanes,
            share: Share::default(),
            limits: Arc::default(),
            edition: None,
            kinds: None,
            jobs_max,
            stand: None,
        };
        let claim = fine(self.stores[0].claim(ask).await)?;
        for taken in &claim.jobs {
            let id = taken.job.id;
            prop_assert_eq!(self.oracle.jobs.get(&id), Some(&Place::Waiting), "{}", id);
            prop_assert!(self.oracle.runs_alone(id), "{} was kept for afterwards", id);
            self.oracle.jobs.insert(id, Place::Running);
            self.running.push(SettleItem {
                job: Arc::clone(&taken.job),
                token: claim.token.expect("a claim with jobs has a token"),
                attempt: taken.attempt,
                lost: taken.lost,
                started_at: claim.now,
                gates: taken.gates.iter().cloned().map(GateEnd::new).collect(),
                settlement: Settlement::Done { output: Payload::null(), follow_ups: Vec::new() },
                decided: false,
                run: None,
            });
        }
        Ok(())
    }

    async fn end(&mut self, pick: u16) -> Verdict {
        let Some(number) = usize::from(pick).checked_rem(self.running.len()) else { return Ok(()) };
        let item = self.running.swap_remove(number);
        self.oracle.end(item.job.id);
        prop_assert_eq!(
            fine(self.stores[1].settle(self.worker, vec![item]).await)?,
            [Settled::Accepted]
        );
        Ok(())
    }

    async fn compare(&self) -> Verdict {
        for (name, known) in self.oracle.schedules.iter().enumerate() {
            let view = self.view(name).await?;
            prop_assert_eq!(view.is_some(), known.is_some());
            let (Some(view), Some(rest)) = (view, known) else { continue };
            prop_assert_eq!((view.version, view.paused), (rest.version, rest.paused));
            prop_assert_eq!(view.next_at, Some(at(rest.next)), "the next slot of {}", NAMES[name]);
            prop_assert_eq!(view.last_slot, rest.last_slot.map(at), "the last of {}", NAMES[name]);
            prop_assert_eq!(view.last_job, rest.last_job);
            let history = fine(self.stores[1].fires(NAMES[name], 1000).await)?;
            let once = history.iter().filter(|e| e.what == What::Fired && e.how.is_once());
            let slots: Vec<i64> = once.map(|entry| entry.slot.as_second()).collect();
            let each: BTreeSet<i64> = slots.iter().copied().collect();
            prop_assert_eq!(slots.len(), each.len(), "a slot has fired twice");
            prop_assert_eq!(&each, &rest.fired, "what has fired of {}", NAMES[name]);
        }
        Ok(())
    }

    /// Every job that was made is there, and no other.
    pub(super) async fn run_out(&mut self) -> Verdict {
        for (id, place) in &self.oracle.jobs {
            let view = fine(self.stores[0].job(*id).await)?;
            let Some(view) = view else { return Err(TestCaseError::fail(format!("no job {id}"))) };
            prop_assert_eq!(
                view.state.is_final(),
                *place == Place::Ended,
                "{} is {:?}",
                id,
                view.state
            );
        }
        let unfinished = fine(self.stores[0].unfinished().await)?;
        let known = self.oracle.jobs.keys().filter(|id| self.oracle.is_unfinished(**id)).count();
        prop_assert_eq!(unfinished.waiting + unfinished.running, known as u64, "unfinished jobs");
        Ok(())
    }
}

/// Another next slot, by what is so now.
fn anew(now: i64, next: i64) -> NextAt {
    NextAt::At { next: Some(at(next)), looked_at: at(now) }
}
