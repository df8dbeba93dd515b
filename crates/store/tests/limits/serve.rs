//! A worker that asks as the engine does: again after a full claim, when it is told, or when its alarm rings.
//! Whoever may start must come to it by that alone.

use std::time::Duration;

use jiff::Timestamp;
use proptest::prop_assert;
use proptest::test_runner::TestCaseError;
use tidemill_core::JobId;
use tidemill_store::{ClaimRequest, Hint};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::ops::RULED;
use super::oracle::{Place, TTL, gates_of};
use super::play::Play;
use crate::games::{Verdict, fine};

/// When to come back for what is in other hands for a moment.
const SOON: Duration = Duration::from_millis(20);
/// Claims that bring nothing and ring at once, before it is called a busy loop.
const VAIN_MAX: usize = 100;
/// How long a hint may take.
const TOLD_WITHIN: Duration = Duration::from_secs(3);
/// How long those may wait who are held beside stowaways.
const LOOK: Duration = Duration::from_millis(500);
/// So many looks, before it is called forgotten: one is under way when the last of them ends.
const LOOKS_MAX: usize = 2;
/// Rounds that everybody must be through in.
const ROUNDS_MAX: usize = 3000;

impl Play {
    /// Takes all that a worker may have; nobody who may start is left, if there is a slot for him.
    pub(super) async fn serve(&mut self, place: u8, queues: u8) -> Verdict {
        let (mut vain, mut looks) = (0, 0);
        loop {
            let process = usize::from(place % 2);
            while matches!(self.heard[process].try_recv(), Ok(_) | Err(TryRecvError::Lagged(_))) {}
            let Some(ask) = self.wish(place, usize::MAX, queues, None).await? else {
                return Ok(());
            };
            if !self.oracle.beats.contains_key(&ask.worker) {
                return Ok(());
            }
            let claim = self.store(place).claim(ask.clone()).await;
            let Some(claim) = self.answer(place, &ask, claim).await? else { continue };
            if !claim.jobs.is_empty() {
                (vain, looks) = (0, 0);
                continue;
            }
            let free = self.free(&ask);
            let in_hand = if free.is_some() { SOON } else { Duration::ZERO };
            if claim.next_due.is_some_and(|at| at <= claim.now + in_hand) {
                vain += 1;
                prop_assert!(
                    vain < VAIN_MAX,
                    "asks in vain: {:?} at {}",
                    claim.next_due,
                    claim.now
                );
                self.told(process, SOON / 10).await;
                continue;
            }
            let Some(free) = free else { return self.rings(&ask, claim.next_due) };
            // Nobody tells when a stowaway ends: the alarm rings for whoever is held beside one.
            let soon = claim.next_due.filter(|at| *at <= claim.now + LOOK && self.is_stowed(free));
            if let Some(at) = soon.filter(|_| looks < LOOKS_MAX) {
                looks += 1;
                self.advance(Duration::try_from(at.duration_since(claim.now)).unwrap_or_default());
                continue;
            }
            let is_told = self.told(process, TOLD_WITHIN).await;
            prop_assert!(is_told, "{} may start, and nobody was told", free);
        }
    }

    /// Whether a job goes through a gate that had stowaways since the rules are what they are.
    fn is_stowed(&self, id: JobId) -> bool {
        let job = &self.oracle.jobs[&id].new;
        let limits = self.books[1].limits(&job.queue);
        gates_of(job, &limits).iter().any(|(gate, _)| self.oracle.stowed.contains(gate))
    }

    /// Somebody who may start under these limits, if there is one.
    fn free(&self, ask: &ClaimRequest) -> Option<JobId> {
        let waits = self.oracle.jobs.iter().filter(|(_, job)| {
            matches!(job.place, Place::Waiting { due } if due <= self.oracle.now)
                && ask.lanes.iter().any(|lane| lane.queue == job.new.queue)
        });
        let mut free = waits.filter(|(_, job)| self.oracle.stop(&job.new, &ask.limits).is_none());
        free.next().map(|(id, _)| *id)
    }

    /// Where only the clock is in the way of the next one that is due, the alarm is set for it.
    fn rings(&self, ask: &ClaimRequest, alarm: Option<Timestamp>) -> Verdict {
        let of_lanes = |queue: &str| ask.lanes.iter().any(|lane| lane.queue == queue);
        let dues = self.oracle.jobs.values().filter_map(|job| match job.place {
            Place::Waiting { due } if due > self.oracle.now && of_lanes(&job.new.queue) => {
                Some(due)
            }
            _ => None,
        });
        if let Some(next) = dues.min() {
            prop_assert!(alarm.is_some_and(|at| at <= next), "due {next}, alarm {alarm:?}");
        }
        Ok(())
    }

    /// Waits until this process is told that there may be something; `false` when it is not.
    async fn told(&mut self, process: usize, within: Duration) -> bool {
        let heard = &mut self.heard[process];
        let listening = async {
            loop {
                match heard.recv().await {
                    Ok(Hint::Ready { .. } | Hint::Any) | Err(RecvError::Lagged(_)) => return true,
                    Ok(_) => {}
                    Err(RecvError::Closed) => return false,
                }
            }
        };
        tokio::time::timeout(within, listening).await.unwrap_or(false)
    }

    /// All workers die; then everybody gets through.
    pub(super) async fn run_out(&mut self, is_lifted: bool) -> Verdict {
        for (ruled, name) in RULED.iter().enumerate() {
            let book = fine(self.stores[0].queue_rules().await)?;
            let Some(mut rules) = book.set_for(name).cloned() else { continue };
            (rules.paused, rules.version) = (false, 0);
            self.set(ruled as u8, (!is_lifted).then_some(rules), true).await?;
        }
        self.workers.fill(None);
        self.advance(TTL + Duration::from_secs(1));
        self.rescue().await?;
        self.compare_gates().await?;
        for _ in 0..ROUNDS_MAX {
            let before = self.oracle.unfinished();
            if before == 0 {
                return self.compare_jobs().await;
            }
            for place in 0..2 {
                self.beat(place).await?;
                self.serve(place, 3).await?;
                self.compare_gates().await?;
                let worker = self.worker(place).await?;
                self.settle_all(worker).await?;
            }
            if self.oracle.unfinished() == before {
                self.advance(Duration::from_millis(500));
            }
        }
        let left = self.oracle.unfinished();
        Err(TestCaseError::fail(format!("{left} are still waiting")))
    }
}
