//! Plays operations on a store and on the model side by side, and compares each answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::dead::Triage;
use tidemill_core::{
    Due, ErrorClass, Failure, JobId, ManualClock, NewJob, Options, Payload, Scope, Settlement,
    UniqueKey, WorkerId,
};
use tidemill_store::request::{RescueRules, Rescued};
use tidemill_store::{CancelAnswer, Receipt, SettleItem, Store, WorkerCard};

use super::apply::Ending;
use super::memory::{LOST_MAX, Memory, PERIOD, TTL};
use super::ops::{End, Held, Op, Wish};
use crate::games::{Verdict, fine};

/// A lease as the worker remembers it.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) worker: WorkerId,
    pub(super) item: SettleItem,
}

/// A game in progress.
pub(super) struct Play {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: ManualClock,
    pub(super) memory: Memory,
    /// Three places for workers; one stays with a worker that was given up until it is told.
    pub(super) slots: [Option<WorkerId>; 3],
    pub(super) leases: Vec<Lease>,
}

impl Play {
    pub(super) fn new(store: Arc<dyn Store>, clock: ManualClock) -> Self {
        let memory = Memory::at(clock.now());
        Self { store, clock, memory, slots: [None; 3], leases: Vec::new() }
    }

    /// Plays one operation.
    pub(super) async fn step(&mut self, op: Op) -> Verdict {
        match op {
            Op::Enqueue(wishes) => {
                self.enqueue(wishes.iter().map(new_job).collect()).await.map(drop)
            }
            Op::Resend { pick } => self.resend(pick).await,
            Op::Claim { slot, jobs_max, queues, kind } => {
                let worker = self.worker(slot).await?;
                self.claim(worker, jobs_max.into(), queues, kind).await.map(drop)
            }
            Op::Settle { ends } => self.settle_picked(&ends).await,
            Op::Cancel { pick } => self.cancel(pick).await,
            Op::RunNow { pick } => self.run_now(pick).await,
            Op::Advance { seconds } => {
                self.advance(Duration::from_secs(seconds.into()));
                Ok(())
            }
            Op::Beat { slot } => self.beat(slot).await,
            Op::Deregister { slot } => self.deregister(slot).await,
            Op::Rescue => self.rescue().await,
            Op::Replay { pick } => self.replay(pick).await,
            Op::Purge { pick } => self.purge(pick).await,
            Op::GiveUp { pick } => match self.memory.pick(pick) {
                Some(id) => self.give_up(id).await,
                None => Ok(()),
            },
        }
    }

    pub(super) async fn enqueue(&mut self, jobs: Vec<NewJob>) -> Verdict<Vec<Receipt>> {
        let expected: Vec<_> = jobs.iter().map(|job| self.memory.enqueue(job.clone())).collect();
        let receipts = fine(self.store.enqueue(jobs).await)?;
        prop_assert_eq!(&receipts, &expected, "receipts");
        Ok(receipts)
    }

    async fn resend(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.memory.pick(pick) else { return Ok(()) };
        let job = &self.memory.jobs[&id];
        if job.purged {
            return Ok(());
        }
        self.enqueue(vec![job.new.clone()]).await.map(drop)
    }

    /// The worker in a place, registered if there is none.
    pub(super) async fn worker(&mut self, slot: u8) -> Verdict<WorkerId> {
        let slot = &mut self.slots[usize::from(slot)];
        if let Some(worker) = *slot {
            return Ok(worker);
        }
        let id = WorkerId::new();
        let queues = vec!["q0".into(), "q1".into()];
        let card = WorkerCard {
            id,
            name: "model".into(),
            queues,
            kinds: Vec::new(),
            slots: 9,
            slots_of: std::collections::BTreeMap::new(),
            lease_ttl: None,
        };
        fine(self.store.register(card).await)?;
        self.memory.beats.insert(id, self.clock.now());
        *slot = Some(id);
        Ok(id)
    }

    async fn settle_picked(&mut self, ends: &[(u16, End)]) -> Verdict {
        let mut picked: Vec<(Lease, End)> = Vec::new();
        for (pick, end) in ends {
            let Some(at) = usize::from(*pick).checked_rem(self.leases.len()) else { continue };
            let lease = self.leases[at].clone();
            let same_worker = picked.iter().all(|(other, _)| other.worker == lease.worker);
            let other_job = picked.iter().all(|(other, _)| other.item.job.id != lease.item.job.id);
            if same_worker && other_job {
                picked.push((lease, end.clone()));
            }
        }
        self.settle(picked).await
    }

    pub(super) async fn settle(&mut self, picked: Vec<(Lease, End)>) -> Verdict {
        let Some((first, _)) = picked.first() else { return Ok(()) };
        let worker = first.worker;
        // With several ends in one call, the order in which keys are freed and taken is open.
        let alone = picked.len() == 1;
        let (mut items, mut expected) = (Vec::new(), Vec::new());
        for (Lease { item, .. }, end) in picked {
            let (settlement, ending) = both(&end, &item, alone);
            expected.push(self.memory.settle(item.job.id, item.token, ending));
            items.push(SettleItem { settlement, ..item });
        }
        let answers = fine(self.store.settle(worker, items).await)?;
        prop_assert_eq!(answers.len(), expected.len());
        for (answer, right) in answers.iter().zip(&expected) {
            prop_assert!(right.contains(answer), "settle: {answer:?}, expected {right:?}");
        }
        Ok(())
    }

    async fn cancel(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.memory.pick(pick) else { return Ok(()) };
        let open = self.memory.jobs[&id].purged && !self.memory.result_goes(id);
        let expected = self.memory.cancel(id);
        let answer = fine(self.store.cancel(vec![id], "enough").await)?[0];
        if open {
            prop_assert!(matches!(answer, CancelAnswer::Finished | CancelAnswer::Unknown));
        } else {
            prop_assert_eq!(answer, expected, "cancel {}", id);
        }
        Ok(())
    }

    async fn run_now(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.memory.pick(pick) else { return Ok(()) };
        let expected = self.memory.run_now(id);
        prop_assert_eq!(fine(self.store.run_now(id).await)?, expected, "run now {}", id);
        Ok(())
    }

    pub(super) fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.memory.now = self.clock.now();
    }

    async fn beat(&mut self, slot: u8) -> Verdict {
        let Some(worker) = self.slots[usize::from(slot)] else { return Ok(()) };
        let beat = fine(self.store.beat(worker).await)?;
        let alive = self.memory.beats.contains_key(&worker);
        prop_assert_eq!(beat.lost, !alive, "lost");
        if !alive {
            self.slots[usize::from(slot)] = None;
            return Ok(());
        }
        self.memory.beats.insert(worker, self.clock.now());
        let told: BTreeSet<_> = beat.cancelled.into_iter().collect();
        let called_off: BTreeSet<JobId> = self
            .memory
            .held_by(worker)
            .into_iter()
            .filter_map(|(id, called_off)| called_off.then_some(id))
            .collect();
        prop_assert_eq!(told, called_off, "called off");
        Ok(())
    }

    async fn deregister(&mut self, slot: u8) -> Verdict {
        let Some(worker) = self.slots[usize::from(slot)].take() else { return Ok(()) };
        let mut expected = Rescued::default();
        self.memory.give_back(worker, 0, &mut expected);
        let found = fine(self.store.deregister(worker).await)?;
        prop_assert_eq!(Rescued { workers: 0, ..found }, expected, "deregister");
        Ok(())
    }

    pub(super) async fn rescue(&mut self) -> Verdict {
        let expected = self.memory.rescue();
        let rules = RescueRules { lease_ttl: TTL, clear_for: None, lost_max: LOST_MAX };
        prop_assert_eq!(fine(self.store.rescue(rules).await)?, expected, "rescue");
        Ok(())
    }

    async fn replay(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.memory.pick(pick) else { return Ok(()) };
        let expected: Vec<_> = self.memory.replay(id).then_some(id).into_iter().collect();
        let replayed = fine(self.store.dead_replay(&[id], "model".into(), None).await)?;
        prop_assert_eq!(replayed, expected, "replay");
        Ok(())
    }

    /// Abandons a dead letter, if it is one.
    pub(super) async fn give_up(&mut self, id: JobId) -> Verdict {
        self.memory.give_up(id);
        let triage = Some(Triage::Abandoned);
        fine(self.store.dead_note(&[id], "model", "", triage, None).await).map(drop)
    }

    async fn purge(&mut self, pick: u16) -> Verdict {
        let Some(id) = self.memory.pick(pick) else { return Ok(()) };
        self.memory.purge(id);
        fine(self.store.purge(&[id]).await).map(drop)
    }
}

/// The job of a wish.
pub(super) fn new_job(wish: &Wish) -> NewJob {
    let kind = format!("k{}", wish.kind);
    let unique = wish.unique.map(|key| UniqueKey {
        key: UniqueKey::given(&kind, &key.number.to_string()),
        scope: match key.held {
            Held::Unfinished => Scope::Unfinished,
            Held::Period => Scope::Period(PERIOD),
            Held::Forever => Scope::Forever,
        },
        on_duplicate: key.policy,
        force: key.force,
        together: false,
        within: Vec::new(),
    });
    NewJob {
        queue: format!("q{}", wish.queue),
        tenant: wish.tenant.map(|tenant| format!("t{tenant}")),
        priority: wish.priority,
        due: Due::In(Duration::from_secs(wish.delay_s.into())),
        unique,
        key: wish.line.map(|(key, _)| format!("line{key}")),
        options: Options { ordered: wish.line.map(|(_, on_dead)| on_dead), ..Options::default() },
        ..NewJob::new(kind, Payload::trusted(wish.payload.to_string()))
    }
}

/// An end in the words of the store and in those of the model.
fn both(end: &End, item: &SettleItem, alone: bool) -> (Settlement, Ending) {
    let failure = || Failure::new(&item.job.kind, ErrorClass::Transient, "it broke");
    let seconds = |s: &u8| Duration::from_secs((*s).into());
    let output = Payload::null();
    match end {
        End::Done => (Settlement::Done { output, follow_ups: Vec::new() }, Ending::Done(None)),
        End::DoneWith(wish) => {
            let mut follow_up = new_job(wish);
            follow_up.unique = follow_up.unique.filter(|_| alone);
            let follow_ups = vec![follow_up.clone()];
            (Settlement::Done { output, follow_ups }, Ending::Done(Some(Box::new(follow_up))))
        }
        End::Retry { delay_s } => {
            let (delay, spent) = (seconds(delay_s), item.attempt);
            let failure = Some(failure());
            (Settlement::Again { delay, spent, failure }, Ending::Again { delay, spent })
        }
        End::Snooze { delay_s } => {
            let (delay, spent) = (seconds(delay_s), item.attempt - 1);
            (Settlement::Again { delay, spent, failure: None }, Ending::Again { delay, spent })
        }
        End::Cancelled => (Settlement::Cancelled { reason: "no use".into() }, Ending::Cancelled),
        End::Dead => (Settlement::Dead { failure: failure() }, Ending::Dead),
    }
}
