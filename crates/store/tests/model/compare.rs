//! Claims, which have more than one right answer, and the comparison of everything at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::{
    JobId, NewJob, OnDuplicate, Payload, Priority, Scope, Settlement, State, UniqueKey, WorkerId,
};
use tidemill_store::request::BEAT_AGE;
use tidemill_store::{Claim, ClaimRequest, Lane, Receipt, SettleItem, Share};

use super::memory::{Place, TTL};
use super::ops::{End, Held};
use super::play::{Lease, Play};
use crate::games::{Verdict, fine};

impl Play {
    /// Claims, and judges what came: the right number, nothing that was not due, in order of lane, and of
    /// each tenant what was due first. Which of several equals comes first, and which tenant, is the store's
    /// affair.
    pub(super) async fn claim(
        &mut self,
        worker: WorkerId,
        jobs_max: usize,
        queues: u8,
        kind: Option<u8>,
    ) -> Verdict<usize> {
        let lanes = lanes(queues);
        let kinds = kind.map(|kind| Arc::new(vec![format!("k{kind}")]));
        let (asked, share) = (lanes.clone(), Share::default());
        let ask = ClaimRequest {
            worker,
            lanes: asked,
            share,
            limits: Arc::default(),
            edition: None,
            kinds: kinds.clone(),
            jobs_max,
            stand: None,
        };
        let claim = fine(self.store.claim(ask).await)?;
        let place = |job: &NewJob| {
            lanes.iter().position(|lane| (&lane.queue, lane.priority) == (&job.queue, job.priority))
        };
        let known = |job: &NewJob| kinds.as_ref().is_none_or(|kinds| kinds.contains(&job.kind));
        let mut due_now: Vec<Due<'_>> = Vec::new();
        let (mut next, mut next_known) = (None, None);
        for job in self.memory.jobs.values() {
            let (Place::Waiting { due }, Some(lane)) = (&job.place, place(&job.new)) else {
                continue;
            };
            if *due > self.memory.now {
                next = Some(earlier(next, *due));
                if known(&job.new) {
                    next_known = Some(earlier(next_known, *due));
                }
            } else if known(&job.new) {
                due_now.push((lane, &job.new.tenant, *due));
            }
        }
        if !self.memory.beats.contains_key(&worker) {
            due_now.clear();
            prop_assert!(claim.jobs.is_empty(), "a worker that was given up gets nothing");
            return Ok(0);
        }
        due_now.sort_unstable();
        let short = due_now.len() < jobs_max;
        let came = claim.jobs.iter().map(|taken| {
            let job = &self.memory.jobs[&taken.job.id].new;
            (place(job).unwrap_or(usize::MAX), &job.tenant, taken.due_at)
        });
        check_order(&came.collect::<Vec<_>>(), &due_now, jobs_max)?;
        if short {
            let right = claim.next_due == next || claim.next_due == next_known;
            prop_assert!(right, "next due {:?}, not {:?}", claim.next_due, next);
        }
        self.adopt(worker, &claim)?;
        Ok(claim.jobs.len())
    }

    /// Writes what a claim gave into the model.
    fn adopt(&mut self, worker: WorkerId, claim: &Claim) -> Verdict {
        prop_assert_eq!(claim.token.is_some(), !claim.jobs.is_empty());
        let Some(token) = claim.token else { return Ok(()) };
        prop_assert!(Some(token) > self.memory.last_token, "tokens only grow");
        self.memory.last_token = Some(token);
        let now = self.memory.now;
        let beat = self.memory.beats.get_mut(&worker);
        if let Some(beat) = beat.filter(|beat| **beat + BEAT_AGE < now) {
            *beat = now;
        }
        for taken in &claim.jobs {
            let id = taken.job.id;
            let job = self.memory.job(id);
            prop_assert_eq!(&job.place, &Place::Waiting { due: taken.due_at });
            prop_assert_eq!((taken.attempt, taken.lost), (job.attempt + 1, job.lost));
            prop_assert_eq!(&taken.job.payload, &job.new.payload);
            prop_assert_eq!(&taken.job.kind, &job.new.kind);
            job.place = Place::Running { worker, token, called_off: false };
            let item = SettleItem {
                job: Arc::clone(&taken.job),
                token,
                attempt: taken.attempt,
                lost: taken.lost,
                started_at: now,
                gates: Vec::new(),
                settlement: Settlement::Cancelled { reason: String::new() },
                decided: false,
                run: None,
            };
            self.leases.push(Lease { worker, item });
        }
        Ok(())
    }

    /// Compares every job, the counts and every key, and then runs what is left to its end.
    pub(super) async fn compare_and_drain(&mut self) -> Verdict {
        self.compare_jobs().await?;
        self.check_invariants()?;
        self.compare_keys().await?;
        self.drain().await
    }

    async fn compare_jobs(&self) -> Verdict {
        let (mut waiting, mut running) = (0, 0);
        for (id, job) in &self.memory.jobs {
            let view = fine(self.store.job(*id).await)?;
            let state = self.memory.state(*id);
            if job.purged {
                let must_stay = self.memory.result_stays(*id);
                prop_assert!(view.is_some() || !must_stay, "the result of {} is held", id);
                prop_assert!(view.is_none() || !self.memory.result_goes(*id), "{} is purged", id);
                continue;
            }
            let Some(view) = view else {
                return Err(TestCaseError::fail(format!("{id} is lost, it should be {state:?}")));
            };
            prop_assert_eq!(view.state, state, "state of {}", id);
            prop_assert_eq!(
                (view.attempt, view.lost),
                (job.attempt, job.lost),
                "{} {:?}",
                id,
                state
            );
            prop_assert_eq!(&view.job.payload, &job.new.payload, "payload of {}", id);
            prop_assert_eq!(&view.job.queue, &job.new.queue);
            prop_assert_eq!(&view.job.tenant, &job.new.tenant);
            match job.place {
                Place::Waiting { due } => {
                    prop_assert_eq!(view.due_at, Some(due), "due time of {}", id);
                    waiting += 1;
                }
                Place::Blocked { .. } => waiting += 1,
                Place::Lined { .. } => {
                    self.compare_place(*id).await?;
                    waiting += 1;
                }
                Place::Running { worker, token, called_off } => {
                    prop_assert_eq!((view.worker, view.token), (Some(worker), Some(token)));
                    prop_assert_eq!(view.cancel_requested, called_off);
                    running += 1;
                }
                Place::Finished(_) => prop_assert!(view.finished_at.is_some()),
            }
        }
        let count = fine(self.store.unfinished().await)?;
        prop_assert_eq!((count.waiting, count.running), (waiting, running), "unfinished");
        let queues = ["q0", "q1"].map(str::to_owned);
        let counted = fine(self.store.depths(&queues).await)?;
        let jobs = self.memory.jobs.values();
        let is_there = |place: &Place| matches!(place, Place::Waiting { .. } | Place::Lined { .. });
        let there = jobs.filter(|job| is_there(&job.place)).count() as u64;
        let depth: u64 = counted.iter().map(tidemill_store::DepthView::depth).sum();
        prop_assert_eq!(depth, there, "depth");
        Ok(())
    }

    async fn compare_place(&self, id: JobId) -> Verdict {
        let line = self.memory.lines.values().find(|line| line.contains(&id));
        let line = line.expect("who is behind others is in a line");
        let place = fine(self.store.line(id).await)?;
        let found = place.map(|place| (place.head, place.ahead as usize, place.dead));
        let ahead = line.iter().position(|other| *other == id).unwrap_or_default();
        let dead = self.memory.state(line[0]) == State::Dead;
        prop_assert_eq!(found, Some((line[0], ahead, dead)), "the place of {}", id);
        Ok(())
    }

    /// What must hold whatever was played: a blocked job is somebody's next.
    fn check_invariants(&self) -> Verdict {
        let kept: BTreeSet<JobId> =
            self.memory.keys.values().filter_map(|holder| holder.next).collect();
        for (id, job) in &self.memory.jobs {
            prop_assert_eq!(
                matches!(job.place, Place::Blocked { .. }),
                kept.contains(id),
                "{} is blocked",
                id
            );
        }
        for (key, holder) in &self.memory.keys {
            let live = self.memory.jobs.get(&holder.id).is_some_and(|job| {
                !matches!(job.place, Place::Finished(_) | Place::Blocked { .. })
            });
            prop_assert!(live || holder.held != Held::Unfinished, "{} is held by the living", key);
        }
        Ok(())
    }

    /// Asks every key who holds it, by a duplicate that would be rejected.
    async fn compare_keys(&mut self) -> Verdict {
        for kind in 0..2 {
            for number in 0..2 {
                let kind = format!("k{kind}");
                let unique = UniqueKey {
                    key: UniqueKey::given(&kind, &number.to_string()),
                    scope: Scope::Unfinished,
                    on_duplicate: OnDuplicate::Reject,
                    force: false,
                    together: false,
                    within: Vec::new(),
                };
                let unique = Some(unique);
                let queue = "q0".to_owned();
                let probe = NewJob { unique, queue, ..NewJob::new(kind, Payload::null()) };
                let receipts = self.enqueue(vec![probe]).await?;
                let told =
                    matches!(receipts[0], Receipt::Rejected { .. } | Receipt::Enqueued { .. });
                prop_assert!(told, "{:?}", receipts);
            }
        }
        Ok(())
    }

    /// Everything that was accepted and not finished can still be run to its end.
    async fn drain(&mut self) -> Verdict {
        self.advance(TTL * 10);
        self.rescue().await?;
        self.slots = [None; 3];
        for id in self.memory.order.clone() {
            self.give_up(id).await?;
        }
        let worker = self.worker(0).await?;
        while self.claim(worker, 100, 3, None).await? > 0 {
            let held: BTreeSet<JobId> =
                self.memory.held_by(worker).into_iter().map(|(id, _)| id).collect();
            let mine = self.leases.iter().filter(|lease| lease.worker == worker);
            let mine = mine.filter(|lease| held.contains(&lease.item.job.id)).cloned();
            let picked: Vec<_> = mine.map(|lease| (lease, End::Done)).collect();
            self.settle(picked).await?;
        }
        let left = fine(self.store.unfinished().await)?;
        prop_assert_eq!((left.waiting, left.running), (0, 0), "nothing is left behind");
        let finished = |id: &JobId| self.memory.state(*id) >= State::Done;
        prop_assert!(self.memory.order.iter().all(finished));
        self.compare_jobs().await
    }
}

/// Lane, tenant and due time of a job.
type Due<'a> = (usize, &'a Option<String>, Timestamp);

/// What came of what is due, which is sorted: the first lanes are emptied first, and of each tenant come the first.
fn check_order(came: &[Due<'_>], due_now: &[Due<'_>], jobs_max: usize) -> Verdict {
    let lanes_of = |jobs: &[Due<'_>]| jobs.iter().map(|job| job.0).collect::<Vec<_>>();
    let wanted = &due_now[..jobs_max.min(due_now.len())];
    prop_assert_eq!(lanes_of(came), lanes_of(wanted), "what came, by lane");
    for job in came {
        let is_beside = |other: &&Due<'_>| (other.0, other.1) == (job.0, job.1);
        let mine: Vec<_> = came.iter().filter(is_beside).collect();
        let first: Vec<_> = due_now.iter().filter(is_beside).take(mine.len()).collect();
        prop_assert_eq!(mine, first, "what came of one lane and tenant, by due time");
    }
    Ok(())
}

fn earlier(one: Option<Timestamp>, two: Timestamp) -> Timestamp {
    one.map_or(two, |one| one.min(two))
}

fn lanes(queues: u8) -> Vec<Lane> {
    let mut lanes = Vec::new();
    for queue in 0..2_u8 {
        if queues & (1 << queue) != 0 {
            lanes.extend(
                Priority::ALL.map(|priority| Lane { queue: format!("q{queue}"), priority }),
            );
        }
    }
    lanes
}
