//! What must be: every answer is worked out anew from what became of the jobs.
//!
//! Three things alone are remembered of a step, because they cannot be taken back: that it ran, that it was
//! shelved when its flow was called off before it did, and where it stood when it was run again.

use std::collections::BTreeMap;

use tidemill_core::flow::{FlowState, Join, Lost, Need, On, Rest, StepState};
use tidemill_core::{FlowId, JobId};

use super::graph::{From, Graph, When, name};

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet: it waits, for a slot or for its step.
    Held,
    Running {
        called_off: bool,
    },
    Done(i64),
    Dead,
    /// By itself; not because its step was skipped.
    Cancelled,
}

impl Fate {
    fn is_over(self) -> bool {
        !matches!(self, Self::Held | Self::Running { .. })
    }

    fn has_failed(self) -> bool {
        matches!(self, Self::Dead | Self::Cancelled)
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) jobs: Vec<(JobId, Fate)>,
    after: Vec<From>,
    join: Join,
    pub(super) has_run: bool,
    /// As what it counts since.
    shelved: Option<Lost>,
    is_decided: bool,
    to_call_off: bool,
    /// It was added by a job of another: it answers no failure.
    is_grown: bool,
    /// All that it wants the success of has somebody who answers its failure.
    is_guarded: bool,
    /// It was run again: where it stood then, with its counts. Its jobs may be replayed; nobody hears of that.
    pub(super) history: Option<(StepState, u64, u64)>,
}

impl Part {
    fn count(&self, is: impl Fn(Fate) -> bool) -> u64 {
        self.jobs.iter().filter(|(_, fate)| is(*fate)).count() as u64
    }

    pub(super) fn done(&self) -> u64 {
        let now = || self.count(|fate| matches!(fate, Fate::Done(_)));
        self.history.map_or_else(now, |(_, done, _)| done)
    }

    pub(super) fn failed(&self) -> u64 {
        self.history.map_or_else(|| self.count(Fate::has_failed), |(.., failed)| failed)
    }
}

/// What an edge comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    /// What it leaves was not taken, or has not ended.
    NotTaken,
    Holds,
    Refuses,
}

/// Finds those that want the success only of others whose failure has a branch of its own.
fn guard(parts: &mut [Part]) {
    let is_answered = |at: usize| {
        let mut edges = parts.iter().flat_map(|part| &part.after);
        edges.any(|(from, on, when)| *from == at && *on == On::Failure && when.is_none())
    };
    let is_guarded = |part: &Part| {
        let mut wanted = part.after.iter().filter(|edge| edge.1 == On::Success);
        wanted.all(|edge| is_answered(edge.0))
    };
    let guarded: Vec<bool> = parts.iter().map(is_guarded).collect();
    for (part, is_guarded) in parts.iter_mut().zip(guarded) {
        part.is_guarded = is_guarded;
    }
}

/// A flow.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    pub(super) id: FlowId,
    pub(super) parts: Vec<Part>,
    pub(super) at_once: Option<u32>,
    is_called_off: bool,
}

impl Oracle {
    pub(super) fn new(graph: &Graph, id: FlowId, jobs: &[Vec<JobId>]) -> Self {
        let part = |at: usize| Part {
            name: name(at),
            jobs: jobs[at].iter().map(|id| (*id, Fate::Held)).collect(),
            after: graph.edges(at),
            join: graph.join(at),
            has_run: false,
            shelved: None,
            is_decided: false,
            to_call_off: false,
            is_grown: false,
            is_guarded: false,
            history: None,
        };
        let mut parts: Vec<Part> = (0..graph.steps.len()).map(part).collect();
        guard(&mut parts);
        let mut oracle = Self { id, parts, at_once: graph.at_once, is_called_off: false };
        oracle.go_on();
        oracle
    }

    /// Where a step stands.
    pub(super) fn step(&self, at: usize) -> StepState {
        let part = &self.parts[at];
        if let Some((state, ..)) = part.history {
            return state;
        }
        if part.has_run {
            return match part {
                part if part.jobs.iter().any(|(_, fate)| !fate.is_over()) => StepState::Open,
                part if part.failed() > 0 => StepState::Failed,
                _ => StepState::Done,
            };
        }
        if part.shelved.is_some() {
            return StepState::Skipped;
        }
        self.verdict(at).0
    }

    /// Whether a step was skipped because something failed, or when its flow was called off, and counts as failed
    /// itself.
    fn is_lost(&self, at: usize) -> bool {
        self.lost(at) != Lost::No
    }

    fn lost(&self, at: usize) -> Lost {
        let part = &self.parts[at];
        let is_behind = || self.verdict(at).1;
        match part.shelved {
            _ if part.history.is_some() || part.has_run => Lost::No,
            Some(lost) => lost,
            None if is_behind() => Lost::Behind,
            None => Lost::No,
        }
    }

    /// Where a step that has not run stands by what it comes after, `Open` when it is to run; and whether it is lost.
    fn verdict(&self, at: usize) -> (StepState, bool) {
        let part = &self.parts[at];
        if part.after.is_empty() {
            return (StepState::Open, false);
        }
        let is_complete = part.after.iter().all(|edge| self.step(edge.0).is_final());
        let missed: u64 = part.after.iter().map(|edge| self.missed(edge)).sum();
        let met: u64 = part.after.iter().map(|edge| self.met(edge)).sum();
        match part.join.need {
            Need::All { failures_max } if missed > failures_max.into() => {
                (StepState::Skipped, !part.is_guarded)
            }
            Need::Quorum { jobs } if met >= jobs.into() => (StepState::Open, false),
            _ if !is_complete => (StepState::Waiting, false),
            Need::Quorum { .. } => (StepState::Skipped, missed > 0 && !part.is_guarded),
            Need::All { .. } | Need::Finished if self.may_run(part) => (StepState::Open, false),
            Need::All { .. } | Need::Finished => (StepState::Skipped, false),
        }
    }

    /// Whether no edge but those of failures came to nothing, one of those did not if there are any, and one came.
    fn may_run(&self, part: &Part) -> bool {
        let came: Vec<(On, Came)> =
            part.after.iter().map(|edge| (edge.1, self.came(edge))).collect();
        let (alarms, others): (Vec<_>, Vec<_>) =
            came.iter().partition(|(on, _)| *on == On::Failure);
        let holds = |of: &[(On, Came)]| of.iter().any(|(_, came)| *came == Came::Holds);
        let is_refused = others.iter().any(|(_, came)| *came == Came::Refuses);
        !is_refused && (alarms.is_empty() || holds(&alarms)) && holds(&came)
    }

    /// Jobs of a step that failed; those of one that is lost all did, and it is one at least.
    fn failures(&self, at: usize) -> u64 {
        let part = &self.parts[at];
        if self.is_lost(at) { part.jobs.len().max(1) as u64 } else { part.failed() }
    }

    fn missed(&self, (from, on, _): &From) -> u64 {
        if *on == On::Success { self.failures(*from) } else { 0 }
    }

    fn met(&self, edge: &From) -> u64 {
        let (from, on, when) = edge;
        if when.is_some() && self.came(edge) != Came::Holds {
            return 0;
        }
        let done = self.parts[*from].done();
        match on {
            On::Success => done,
            On::Failure => self.failures(*from),
            On::Either => done + self.failures(*from),
        }
    }

    /// What an edge comes to once the step that it leaves has ended. A failure where success is wished is no wrong
    /// turn: the join counts it.
    fn came(&self, (from, on, when): &From) -> Came {
        let (part, end) = (&self.parts[*from], self.step(*from));
        let has_failed = end == StepState::Failed || self.is_lost(*from);
        if !end.is_final() || end == StepState::Skipped && !has_failed {
            return Came::NotTaken;
        }
        let (is_wished, is_asked) = match on {
            On::Success => (true, !has_failed),
            On::Failure => (has_failed, has_failed),
            On::Either => (true, true),
        };
        let holds = match when.filter(|_| is_asked) {
            Some(When::OutputAbove(n)) => match part.jobs.as_slice() {
                [(_, Fate::Done(output))] => *output > n,
                _ => false,
            },
            Some(When::FailedBelow(n)) => self.failures(*from) < n,
            None => true,
        };
        if is_wished && holds { Came::Holds } else { Came::Refuses }
    }

    /// Lets run what may run, until nothing else may.
    pub(super) fn go_on(&mut self) {
        while let Some(next) = (0..self.parts.len())
            .find(|at| !self.parts[*at].has_run && self.step(*at) == StepState::Open)
        {
            self.parts[next].has_run = true;
        }
        for at in 0..self.parts.len() {
            let is_decided = self.step(at) != StepState::Waiting;
            let is_news = is_decided && !self.parts[at].is_decided;
            self.parts[at].is_decided = is_decided;
            if is_news && self.parts[at].join.rest == Rest::Cancel {
                for (from, ..) in self.parts[at].after.clone() {
                    self.parts[from].to_call_off = true;
                }
            }
        }
        for at in 0..self.parts.len() {
            self.parts[at].to_call_off &= !self.step(at).is_final();
        }
    }

    /// Where the flow stands.
    pub(super) fn state(&self) -> FlowState {
        let all = || 0..self.parts.len();
        if !all().all(|at| self.step(at).is_final()) {
            return if self.is_called_off { FlowState::Cancelling } else { FlowState::Running };
        }
        if self.is_called_off {
            return FlowState::Cancelled;
        }
        let has_failed = all().any(|at| {
            let is_current = self.parts[at].history.is_none();
            is_current && self.step(at) == StepState::Failed && !self.is_answered(at)
        });
        if has_failed { FlowState::Failed } else { FlowState::Done }
    }

    /// Whether something that comes after a step ran, or was lost for it and is answered.
    fn is_answered(&self, at: usize) -> bool {
        let answers = |(number, part): (usize, &Part)| {
            let comes = part.after.iter().any(|edge| edge.0 == at);
            comes
                && part.history.is_none()
                && (part.has_run && !part.is_grown
                    || self.lost(number) == Lost::Behind && self.is_answered(number))
        };
        self.parts.iter().enumerate().any(answers)
    }

    pub(super) fn find(&self, id: JobId) -> Option<(usize, usize)> {
        let at = |part: &Part| part.jobs.iter().position(|(job, _)| *job == id);
        self.parts.iter().enumerate().find_map(|(step, part)| Some((step, at(part)?)))
    }

    /// What became of a job of it, and whether it may start.
    pub(super) fn job(&self, id: JobId) -> Option<(Fate, bool)> {
        let (step, at) = self.find(id)?;
        let fate = self.parts[step].jobs[at].1;
        Some((fate, fate == Fate::Held && self.parts[step].has_run))
    }

    pub(super) fn set(&mut self, id: JobId, fate: Fate) {
        if let Some((step, at)) = self.find(id) {
            self.parts[step].jobs[at].1 = fate;
        }
    }

    /// Calls one off that has not ended.
    pub(super) fn cancel(&mut self, id: JobId) {
        match self.job(id) {
            Some((Fate::Held, _)) => self.set(id, Fate::Cancelled),
            Some((Fate::Running { .. }, _)) => self.set(id, Fate::Running { called_off: true }),
            _ => {}
        }
    }

    /// A running job adds a step behind its own, unless the flow is called off.
    pub(super) fn grow(&mut self, by: JobId, name: &str, jobs: &[JobId]) {
        let Some((behind, _)) = self.find(by).filter(|_| self.state() == FlowState::Running) else {
            return;
        };
        let number = self.parts.len();
        let waits = |part: &&mut Part| !part.has_run && part.history.is_none();
        for part in self.parts.iter_mut().filter(waits) {
            let on = part.after.iter().find(|edge| edge.0 == behind).map(|edge| edge.1);
            part.after.extend(on.map(|on| (number, on, None)));
        }
        self.parts.push(Part {
            name: name.to_owned(),
            jobs: jobs.iter().map(|id| (*id, Fate::Held)).collect(),
            after: vec![(behind, On::Either, None)],
            join: Join::default(),
            has_run: true,
            shelved: None,
            is_decided: true,
            to_call_off: false,
            is_grown: true,
            is_guarded: false,
            history: None,
        });
    }

    /// A step and all that comes after it, without history.
    fn behind(&self, root: usize) -> Vec<usize> {
        let mut behind = vec![root];
        let mut looked = 0;
        while let Some(from) = behind.get(looked).copied() {
            looked += 1;
            for (at, part) in self.parts.iter().enumerate() {
                let comes = part.after.iter().any(|edge| edge.0 == from);
                if comes && part.history.is_none() && !behind.contains(&at) {
                    behind.push(at);
                }
            }
        }
        behind.sort_unstable();
        behind
    }

    /// Whether a step can be run again.
    pub(super) fn may_rerun(&self, root: usize) -> bool {
        self.state() != FlowState::Cancelling
            && self.parts[root].history.is_none()
            && self.step(root) != StepState::Skipped
            && self.behind(root).iter().all(|at| self.step(*at).is_final())
    }

    /// Lets a step and all behind it run again, as copies with the jobs that are given by their names; what jobs of
    /// them had added is not copied. Answers how many jobs run again.
    pub(super) fn rerun(&mut self, root: usize, fresh: &BTreeMap<String, Vec<JobId>>) -> u64 {
        let behind = self.behind(root);
        let is_copied = |at: &usize| *at == root || !self.parts[*at].is_grown;
        let copied: Vec<usize> = behind.iter().copied().filter(is_copied).collect();
        let first = self.parts.len();
        let anew = |from: usize| match copied.iter().position(|at| *at == from) {
            Some(copy) => Some(first + copy),
            None if behind.contains(&from) => None,
            None => Some(from),
        };
        let copy = |at: &usize| {
            let part = &self.parts[*at];
            let jobs = fresh.get(&part.name).into_iter().flatten();
            let after = part.after.iter();
            Part {
                jobs: jobs.map(|id| (*id, Fate::Held)).collect(),
                after: after.filter_map(|(f, on, when)| Some((anew(*f)?, *on, *when))).collect(),
                has_run: *at == root,
                shelved: None,
                is_decided: false,
                to_call_off: false,
                ..part.clone()
            }
        };
        let fresh_parts: Vec<Part> = copied.iter().map(copy).collect();
        for at in behind {
            let part = &self.parts[at];
            let history = (self.step(at), part.done(), part.failed());
            let taken = |name: &String| self.parts.iter().any(|part| part.name == *name);
            let mut names = (1..).map(|run| format!("{} (run {run})", part.name));
            let name = names.find(|name| !taken(name)).expect("some number is free");
            self.parts[at].history = Some(history);
            self.parts[at].name = name;
        }
        let jobs = fresh_parts.iter().map(|part| part.jobs.len() as u64).sum();
        self.parts.extend(fresh_parts);
        self.is_called_off = false;
        self.go_on();
        jobs
    }

    /// Dead ones are on their way again. What was skipped behind them waits again, unless the flow is just being
    /// called off.
    pub(super) fn replay(&mut self, ids: &[JobId]) {
        let is_calling_off = self.state() == FlowState::Cancelling;
        let mut behind: Vec<usize> = ids.iter().filter_map(|id| Some(self.find(*id)?.0)).collect();
        behind.retain(|at| self.parts[*at].history.is_none());
        if !is_calling_off && !behind.is_empty() {
            let mut again = Vec::new();
            while let Some(from) = behind.pop() {
                for at in 0..self.parts.len() {
                    let comes = self.parts[at].after.iter().any(|edge| edge.0 == from);
                    let may = comes && self.parts[at].history.is_none();
                    if may && self.step(at) == StepState::Skipped && !again.contains(&at) {
                        again.push(at);
                        behind.push(at);
                    }
                }
            }
            for at in again {
                self.parts[at].shelved = None;
                self.parts[at].is_decided = false;
            }
            self.is_called_off = false;
        }
        for id in ids {
            self.set(*id, Fate::Held);
        }
    }

    /// Calls it off; `false` when it has ended.
    pub(super) fn call_off(&mut self) -> bool {
        if self.state().is_final() {
            return false;
        }
        self.is_called_off = true;
        let lost = |at: usize| match self.step(at) {
            StepState::Waiting => Lost::CalledOff,
            _ => self.lost(at),
        };
        let lost: Vec<Lost> = (0..self.parts.len()).map(lost).collect();
        for (part, lost) in self.parts.iter_mut().zip(lost) {
            if part.history.is_none() {
                part.shelved = (!part.has_run).then_some(lost);
                part.to_call_off = true;
            }
        }
        self.go_on();
        true
    }

    /// Calls off what is to be, and what follows from that, until nothing is left to do.
    pub(super) fn settle_down(&mut self) {
        self.go_on();
        loop {
            let meant: Vec<usize> =
                (0..self.parts.len()).filter(|at| self.parts[*at].to_call_off).collect();
            if meant.is_empty() {
                return;
            }
            for at in meant {
                self.parts[at].to_call_off = false;
                let jobs = self.parts[at].jobs.clone();
                for (id, _) in jobs {
                    self.cancel(id);
                }
            }
            self.go_on();
        }
    }
}
