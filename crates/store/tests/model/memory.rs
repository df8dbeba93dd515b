//! The model: jobs, keys and workers in maps, and nothing clever.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::{JobId, NewJob, OnDead, State, Token, WorkerId};

use super::ops::Held;

/// How long a worker may be silent.
pub(super) const TTL: Duration = Duration::from_secs(8);
/// How long a key with a period is held.
pub(super) const PERIOD: Duration = Duration::from_secs(15);
/// How often a job may lose its worker.
pub(super) const LOST_MAX: u16 = 3;

/// Where a job stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// Kept for afterwards; when its turn comes it still waits for this.
    Blocked {
        due: Timestamp,
    },
    /// Behind others in its line; when its turn comes it still waits for this.
    Lined {
        due: Timestamp,
    },
    Waiting {
        due: Timestamp,
    },
    Running {
        worker: WorkerId,
        token: Token,
        called_off: bool,
    },
    Finished(State),
}

/// A job as the model sees it.
#[derive(Debug, Clone)]
pub(super) struct ModelJob {
    pub(super) new: NewJob,
    pub(super) place: Place,
    pub(super) attempt: u16,
    pub(super) lost: u16,
    /// Tokens that settled it: settling again with one of them is accepted and changes nothing.
    pub(super) settled: BTreeSet<Token>,
    /// Tokens that settled it before it was replayed: either answer is right, no change is.
    pub(super) forgotten: BTreeSet<Token>,
    pub(super) redrives: u16,
    pub(super) purged: bool,
    /// Whether its key kept its result when it was purged; a later sweep may take it.
    pub(super) result_stayed: bool,
}

/// Who holds a key.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) id: JobId,
    pub(super) next: Option<JobId>,
    pub(super) held: Held,
    pub(super) until: Option<Timestamp>,
}

/// Queue, tenant and key of a line.
pub(super) type LineName = (String, Option<String>, String);

/// Everything.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) now: Timestamp,
    pub(super) jobs: BTreeMap<JobId, ModelJob>,
    /// Jobs in the order they were written, for picks.
    pub(super) order: Vec<JobId>,
    pub(super) keys: BTreeMap<String, Holder>,
    /// Who is in each line, by queue, tenant and key, the first first.
    pub(super) lines: BTreeMap<LineName, Vec<JobId>>,
    pub(super) beats: BTreeMap<WorkerId, Timestamp>,
    pub(super) last_token: Option<Token>,
}

impl Memory {
    pub(super) fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    pub(super) fn job(&mut self, id: JobId) -> &mut ModelJob {
        self.jobs.get_mut(&id).expect("the model knows every id that is played")
    }

    /// The job a number stands for.
    pub(super) fn pick(&self, pick: u16) -> Option<JobId> {
        let at = usize::from(pick).checked_rem(self.order.len())?;
        Some(self.order[at])
    }

    pub(super) fn write(&mut self, new: NewJob, place: Place) {
        let id = new.id;
        self.order.push(id);
        let job = ModelJob {
            new,
            place,
            attempt: 0,
            lost: 0,
            settled: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            redrives: 0,
            purged: false,
            result_stayed: false,
        };
        self.jobs.insert(id, job);
    }

    pub(super) fn state(&self, id: JobId) -> State {
        match self.jobs[&id].place {
            Place::Blocked { .. } | Place::Lined { .. } => State::Blocked,
            Place::Waiting { due } if due > self.now => State::Scheduled,
            Place::Waiting { .. } => State::Ready,
            Place::Running { .. } => State::Running,
            Place::Finished(state) => state,
        }
    }

    /// Ends a job: its key is freed or goes to the one kept for afterwards, and its line goes on.
    pub(super) fn finish(&mut self, id: JobId, state: State) {
        let job = self.job(id);
        job.place = Place::Finished(state);
        let key = job.new.unique.as_ref().map(|unique| unique.key.clone());
        let blocks = state == State::Dead && job.new.options.ordered == Some(OnDead::Block);
        if let Some(key) = key {
            self.release(&key, id);
        }
        if !blocks {
            self.leave(id);
        }
    }

    /// The jobs a worker has, with whether they were called off.
    pub(super) fn held_by(&self, worker: WorkerId) -> Vec<(JobId, bool)> {
        let held = self.jobs.iter().filter_map(|(id, job)| match job.place {
            Place::Running { worker: holder, called_off, .. } if holder == worker => {
                Some((*id, called_off))
            }
            _ => None,
        });
        held.collect()
    }
}
