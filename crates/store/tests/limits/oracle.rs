//! What must be, from the rules alone: who is inside of which gate, when a rate has a cell free, and who may start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use tidemill_core::gate::{Horizon, PART, QueueLimit, Rate};
use tidemill_core::{JobId, NewJob, RuleBook, State, Token, WorkerId};

use super::play::SLOTS_SAID;

/// How long a worker may be silent.
pub(super) const TTL: Duration = Duration::from_secs(8);
/// How often a job may lose its worker.
pub(super) const LOST_MAX: u16 = 3;

/// Where a job stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    Waiting { due: Timestamp },
    Running { worker: WorkerId, token: Token, called_off: bool, inside: Inside },
    Finished(State),
}

/// The gates that a job is inside of.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Inside {
    /// Those it went through.
    permits: Vec<String>,
    /// Those whose limit was set, or began to count, while it ran, and those that counted nobody when it started.
    stowed: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) new: NewJob,
    pub(super) place: Place,
    pub(super) attempt: u16,
    pub(super) lost: u16,
    /// Tokens that settled it: settling again with one of them is accepted and changes nothing.
    pub(super) settled: BTreeSet<Token>,
}

/// What starts a rate has let pass, since it is this rate.
#[derive(Debug, Clone)]
struct Starts {
    rate: Rate,
    at: Vec<Timestamp>,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) now: Timestamp,
    pub(super) jobs: BTreeMap<JobId, Known>,
    /// In the order they were written, for picks.
    pub(super) order: Vec<JobId>,
    pub(super) beats: BTreeMap<WorkerId, Timestamp>,
    /// When the rate of a gate has caught up.
    book: RuleBook,
    pub(super) tats: BTreeMap<String, Timestamp>,
    pub(super) shut: BTreeMap<String, Timestamp>,
    starts: BTreeMap<String, Starts>,
    /// Every gate that somebody was inside of.
    pub(super) gates: BTreeSet<String>,
    /// Those that somebody was inside of without a permit since the rules were set last: his end is told to nobody.
    pub(super) stowed: BTreeSet<String>,
}

/// The gates that a job goes through, with their limits.
pub(super) fn gates_of<'a>(
    job: &NewJob,
    limits: &'a [QueueLimit],
) -> Vec<(String, &'a QueueLimit)> {
    let (tenant, key) = (job.tenant.as_deref(), job.key.as_deref());
    let of = limits.iter().filter(|limit| limit.queue == job.queue);
    of.filter_map(|limit| {
        let gate = limit.gate_of(&job.kind, tenant.unwrap_or(""), key.unwrap_or(""), false)?;
        Some((gate, limit))
    })
    .collect()
}

impl Oracle {
    pub(super) fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    pub(super) fn job(&mut self, id: JobId) -> &mut Known {
        self.jobs.get_mut(&id).expect("the oracle knows every id that is played")
    }

    /// The job a number stands for.
    pub(super) fn pick(&self, pick: u16) -> Option<JobId> {
        let at = usize::from(pick).checked_rem(self.order.len())?;
        Some(self.order[at])
    }

    pub(super) fn enqueue(&mut self, new: NewJob, due: Timestamp) {
        let (id, place) = (new.id, Place::Waiting { due });
        self.order.push(id);
        self.jobs.insert(id, Known { new, place, attempt: 0, lost: 0, settled: BTreeSet::new() });
    }

    /// Those inside of a gate, by worker.
    pub(super) fn inside(&self, gate: &str) -> BTreeMap<WorkerId, u64> {
        let mut inside = BTreeMap::new();
        for job in self.jobs.values() {
            if let Place::Running { worker, inside: gates, .. } = &job.place
                && gates.permits.iter().chain(&gates.stowed).any(|own| own == gate)
            {
                *inside.entry(*worker).or_default() += 1;
            }
        }
        inside
    }

    /// The jobs a worker has, with whether they were called off.
    pub(super) fn held_by(&self, holder: WorkerId) -> Vec<(JobId, bool)> {
        let held = self.jobs.iter().filter_map(|(id, job)| match &job.place {
            Place::Running { worker, called_off, .. } if *worker == holder => {
                Some((*id, *called_off))
            }
            _ => None,
        });
        held.collect()
    }

    /// What keeps a job from starting under these limits, if anything does.
    pub(super) fn stop(&self, job: &NewJob, limits: &[QueueLimit]) -> Option<String> {
        for (gate, limit) in gates_of(job, limits) {
            let inside: u64 = self.inside(&gate).values().sum();
            if limit.concurrency.is_some_and(|most| inside >= u64::from(most)) {
                return Some(format!("{gate:?} has {inside} inside"));
            }
            let shut = self.shut.get(&gate).filter(|_| limit.hold);
            if let Some(until) = shut.filter(|until| **until > self.now) {
                return Some(format!("{gate:?} is shut until {until}"));
            }
            if let Some((rate, tat)) = limit.rate.zip(self.tats.get(&gate)) {
                let ahead = tat.as_microsecond() - self.now.as_microsecond();
                let every = rate.every_us() as i64;
                if ahead > (i64::from(rate.burst) - 1) * every {
                    return Some(format!("{gate:?} has no cell free until {tat}, less the burst"));
                }
            }
        }
        None
    }

    /// A job starts, through these gates. Answers what is wrong with that.
    pub(super) fn start(
        &mut self,
        id: JobId,
        worker: WorkerId,
        token: Token,
        limits: &[QueueLimit],
        through: &[String],
    ) -> Result<(), String> {
        let job = self.jobs[&id].new.clone();
        if let Some(stop) = self.stop(&job, limits) {
            return Err(format!("{id} started although {stop}"));
        }
        let gates = gates_of(&job, limits);
        for (gate, limit) in &gates {
            self.gates.insert(gate.clone());
            if let Some(rate) = limit.rate {
                let tat = self.tats.get(gate).map_or(self.now, |tat| self.now.max(*tat));
                self.tats.insert(gate.clone(), tat + Duration::from_micros(rate.every_us()));
                self.count_start(gate, rate)?;
            }
        }
        // A gate may be left out that does nothing but count, and could not be exceeded by all workers together.
        let least = self.beats.len() as u64 * u64::from(2 * SLOTS_SAID);
        let (is_in, left_out): (Vec<_>, Vec<_>) =
            gates.into_iter().partition(|(gate, _)| through.contains(gate));
        for (gate, limit) in &left_out {
            if !limit.only_counts() || !limit.is_out_of_reach(least) {
                return Err(format!("{id} went by {gate:?}, which {least} may be inside of"));
            }
        }
        let counted = is_in.into_iter().filter(|(_, limit)| limit.concurrency.is_some());
        let permits = counted.map(|(gate, _)| gate).collect();
        let stowed: Vec<_> = left_out.into_iter().map(|(gate, _)| gate).collect();
        self.stowed.extend(stowed.iter().cloned());
        let inside = Inside { permits, stowed };
        self.job(id).place = Place::Running { worker, token, called_off: false, inside };
        Ok(())
    }

    /// The rules are these now: whoever runs counts where they count.
    pub(super) fn follow(&mut self, book: &RuleBook) {
        // What nobody heeded before is not heeded now.
        let before = std::mem::replace(&mut self.book, book.clone());
        self.forget(&before);
        self.forget(book);
        self.stowed.clear();
        for job in self.jobs.values_mut() {
            let Place::Running { inside, .. } = &mut job.place else { continue };
            let limits = book.limits(&job.new.queue);
            let counted = gates_of(&job.new, &limits).into_iter();
            let counted = counted.filter(|(_, limit)| limit.concurrency.is_some());
            let stowed =
                counted.map(|(gate, _)| gate).filter(|gate| !inside.permits.contains(gate));
            inside.stowed = stowed.collect();
            self.stowed.extend(inside.stowed.iter().cloned());
        }
        self.gates.extend(self.stowed.iter().cloned());
    }

    /// In no time did more start than the burst and what the rate gives in that time.
    fn count_start(&mut self, gate: &str, rate: Rate) -> Result<(), String> {
        let now = self.now;
        let new = Starts { rate, at: Vec::new() };
        let starts = self.starts.entry(gate.to_owned()).or_insert_with(|| new.clone());
        if starts.rate != rate {
            *starts = new;
        }
        starts.at.push(now);
        for (number, at) in starts.at.iter().enumerate() {
            let passed = (starts.at.len() - number) as u64;
            let time = (now.as_microsecond() - at.as_microsecond()) as u64;
            if passed > u64::from(rate.burst) + time / rate.every_us() {
                return Err(format!("{passed} started at {gate:?} in {time} us, at {rate}"));
            }
        }
        Ok(())
    }

    /// Gives up the workers that have been silent for too long; their jobs have lost one more.
    pub(super) fn rescue(&mut self) {
        let silent = |beat: &Timestamp| *beat + TTL < self.now;
        let gone: Vec<_> =
            self.beats.iter().filter(|(_, beat)| silent(beat)).map(|(id, _)| *id).collect();
        for worker in gone {
            self.give_back(worker, 1);
        }
    }

    pub(super) fn give_back(&mut self, worker: WorkerId, lost: u16) {
        self.beats.remove(&worker);
        for (id, called_off) in self.held_by(worker) {
            let now = self.now;
            let job = self.job(id);
            job.lost += lost;
            job.place = if called_off {
                Place::Finished(State::Cancelled)
            } else if lost > 0 && job.lost >= LOST_MAX {
                Place::Finished(State::Dead)
            } else {
                Place::Waiting { due: now }
            };
        }
    }

    /// Gates forget what is further ahead than the rules reach.
    fn forget(&mut self, book: &RuleBook) {
        let (now, horizon) = (self.now, |gate: &str| horizon(book, gate));
        let keep = |reach: Option<Duration>, at: &mut Timestamp| {
            *at = reach.map_or(*at, |reach| (*at).min(now + reach));
            reach.is_some()
        };
        self.tats.retain(|gate, tat| keep(horizon(gate).rate, tat));
        // A rate that was taken away and comes again begins anew, also if it is the same.
        self.starts.retain(|gate, _| horizon(gate).rate.is_some());
        self.shut.retain(|gate, until| keep(horizon(gate).pause, until));
    }

    /// The other side asked for a pause at these gates.
    pub(super) fn shut(&mut self, gate: &str, delay: Duration) {
        let until = self.now + delay;
        let shut = self.shut.entry(gate.to_owned()).or_insert(until);
        *shut = until.max(*shut);
    }

    /// How many have not finished.
    pub(super) fn unfinished(&self) -> usize {
        self.jobs.values().filter(|job| !matches!(job.place, Place::Finished(_))).count()
    }
}

/// How far ahead a gate may remember anything.
pub(super) fn horizon(book: &RuleBook, gate: &str) -> Horizon {
    book.horizon(gate.split(PART).next().unwrap_or_default()).unwrap_or_default()
}
