//! What every other operation does to the model, and what it should be answered.

use std::time::Duration;

use tidemill_core::{JobId, NewJob, State, Token, WorkerId};
use tidemill_store::request::Rescued;
use tidemill_store::{CancelAnswer, Settled};

use super::memory::{Holder, LOST_MAX, Memory, Place, TTL};
use super::ops::Held;

/// How a lease ends, with what is not in the model taken away.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    Done(Option<Box<NewJob>>),
    Again { delay: Duration, spent: u16 },
    Cancelled,
    Dead,
}

impl Memory {
    /// The answers a settle may get; the first is the one to expect.
    pub(super) fn settle(&mut self, id: JobId, token: Token, ending: Ending) -> Vec<Settled> {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&id) else { return vec![Settled::Stale] };
        let called_off = match job.place {
            Place::Running { token: held, called_off, .. } if held == token => called_off,
            _ if job.settled.contains(&token) => return vec![Settled::Accepted],
            _ if job.forgotten.contains(&token) => return vec![Settled::Stale, Settled::Accepted],
            _ => return vec![Settled::Stale],
        };
        job.settled.insert(token);
        match ending {
            Ending::Again { spent, .. } if called_off => {
                job.attempt = spent;
                self.finish(id, State::Cancelled);
                return vec![Settled::Cancelled];
            }
            Ending::Again { delay, spent } => {
                job.attempt = spent;
                job.place = Place::Waiting { due: now + delay };
            }
            Ending::Done(follow_up) => {
                job.attempt += 1;
                self.finish(id, State::Done);
                if let Some(follow_up) = follow_up {
                    self.enqueue(*follow_up);
                }
            }
            Ending::Cancelled => {
                job.attempt += 1;
                self.finish(id, State::Cancelled);
            }
            Ending::Dead => {
                job.attempt += 1;
                self.finish(id, State::Dead);
            }
        }
        vec![Settled::Accepted]
    }

    pub(super) fn cancel(&mut self, id: JobId) -> CancelAnswer {
        if self.jobs[&id].purged && !self.result_stays(id) {
            return CancelAnswer::Unknown;
        }
        match &mut self.job(id).place {
            Place::Finished(_) => CancelAnswer::Finished,
            Place::Running { called_off, .. } => {
                *called_off = true;
                CancelAnswer::Requested
            }
            Place::Blocked { .. } | Place::Lined { .. } | Place::Waiting { .. } => {
                self.finish(id, State::Cancelled);
                CancelAnswer::Cancelled
            }
        }
    }

    pub(super) fn run_now(&mut self, id: JobId) -> bool {
        let now = self.now;
        match &mut self.job(id).place {
            Place::Waiting { due } if *due > now => {
                *due = now;
                true
            }
            _ => false,
        }
    }

    /// Gives up the workers that have been silent for too long.
    pub(super) fn rescue(&mut self) -> Rescued {
        let silent = |beat: &jiff::Timestamp| *beat + TTL < self.now;
        let gone: Vec<_> =
            self.beats.iter().filter(|(_, beat)| silent(beat)).map(|(id, _)| *id).collect();
        let mut found = Rescued { workers: gone.len() as u64, ..Rescued::default() };
        for worker in gone {
            self.give_back(worker, 1, &mut found);
        }
        found
    }

    /// Takes a worker's jobs back; each has lost so many workers by it.
    pub(super) fn give_back(&mut self, worker: WorkerId, lost: u16, found: &mut Rescued) {
        self.beats.remove(&worker);
        for (id, called_off) in self.held_by(worker) {
            let now = self.now;
            let job = self.job(id);
            job.lost += lost;
            if called_off {
                found.cancelled += 1;
                self.finish(id, State::Cancelled);
            } else if lost > 0 && job.lost >= LOST_MAX {
                found.poisoned += 1;
                self.finish(id, State::Dead);
            } else {
                found.ready += 1;
                job.place = Place::Waiting { due: now };
            }
        }
    }

    pub(super) fn replay(&mut self, id: JobId) -> bool {
        let now = self.now;
        let job = self.job(id);
        if job.place != Place::Finished(State::Dead) || job.purged {
            return false;
        }
        (job.attempt, job.lost) = (0, 0);
        job.redrives += 1;
        let settled = std::mem::take(&mut job.settled);
        job.forgotten.extend(settled);
        // It holds its key again, unless another has it by now.
        if let Some(unique) = job.new.unique.clone() {
            let again = Holder { id, next: None, held: Held::Unfinished, until: None };
            self.keys.entry(unique.key).or_insert(again);
        }
        self.admit(id, now);
        true
    }

    /// Abandons a dead letter: those behind it pass.
    pub(super) fn give_up(&mut self, id: JobId) {
        let job = self.job(id);
        if job.place == Place::Finished(State::Dead) && !job.purged {
            self.leave(id);
        }
    }

    /// Forgets a finished job; expired keys go with any purge.
    pub(super) fn purge(&mut self, id: JobId) {
        let over: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, holder)| self.is_over(holder) && holder.next.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        for key in over {
            self.keys.remove(&key);
        }
        let stays = self.result_stays(id);
        self.give_up(id);
        let job = self.job(id);
        if matches!(job.place, Place::Finished(_)) {
            job.purged = true;
            job.result_stayed = stays;
            let settled = std::mem::take(&mut job.settled);
            job.forgotten.extend(settled);
        }
    }

    /// Whether a purged job's result must still be there: its key is held.
    pub(super) fn result_stays(&self, id: JobId) -> bool {
        let key = self.jobs[&id].new.unique.as_ref().map(|unique| unique.key.as_str());
        let holder = key.and_then(|key| self.keys.get(key));
        holder.is_some_and(|holder| holder.id == id && holder.held != Held::Unfinished)
    }

    /// Whether nothing of a purged job may be left: no key kept its result.
    pub(super) fn result_goes(&self, id: JobId) -> bool {
        !self.jobs[&id].result_stayed
    }
}
