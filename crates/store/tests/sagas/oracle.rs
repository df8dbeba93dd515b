//! The rules of `docs/sagas.md`, as plainly as they can be said.
//!
//! Remembered are what became of jobs, that a step was opened, that the saga turned back or got stuck before it could,
//! and which undos it then got; all else is said anew each time.

use tidemill_core::JobId;
use tidemill_core::flow::{FlowState, StepState};

use super::graph::{Saga, name};

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Held,
    Running { called_off: bool },
    Done(i64),
    Dead,
    Cancelled,
}

/// A step or an undo. Each has one job.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) id: Option<JobId>,
    pub(super) fate: Fate,
    /// Whether some attempt may have taken effect although it did not end well.
    pub(super) in_doubt: bool,
    /// What it comes after; `true`: after the failure.
    after: Vec<(usize, bool)>,
    has_undo: bool,
    is_pivot: bool,
    pub(super) undoes: Option<usize>,
    pub(super) has_run: bool,
    is_shelved: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Oracle {
    pub(super) parts: Vec<Part>,
    turned_back: bool,
    /// It waits for somebody, and has not turned back.
    is_stuck: bool,
    undos_planned: bool,
}

impl Oracle {
    pub(super) fn new(saga: &Saga, ids: &[JobId]) -> Self {
        let part = |at: usize| Part {
            name: name(at),
            id: Some(ids[at]),
            fate: Fate::Held,
            in_doubt: false,
            after: saga.edges(at),
            has_undo: saga.steps[at].has_undo,
            is_pivot: saga.pivot() == Some(at),
            undoes: None,
            has_run: false,
            is_shelved: false,
        };
        let parts = (0..saga.steps.len()).map(part).collect();
        let mut oracle = Self { parts, turned_back: false, is_stuck: false, undos_planned: false };
        oracle.go_on();
        oracle
    }

    fn is_past_return(&self) -> bool {
        (0..self.parts.len()).any(|at| self.parts[at].is_pivot && self.step(at) == StepState::Done)
    }

    fn is_answered(&self, at: usize) -> bool {
        self.parts.iter().any(|part| part.after.contains(&(at, true)))
    }

    /// Steps and undos that failed and that nobody answers: they hold what is behind them. When all has ended, also
    /// those whose answer never ran.
    pub(super) fn holding(&self) -> Vec<usize> {
        let is_over = (0..self.parts.len()).all(|at| self.step(at).is_final());
        let holds = |at: &usize| {
            let is_left = is_over && !self.turned_back && !self.ran_behind(*at);
            self.holds(*at) || is_left && self.step(*at) == StepState::Failed
        };
        (0..self.parts.len()).filter(holds).collect()
    }

    /// Whether something that comes after a step ran, or after one that was lost for it.
    fn ran_behind(&self, at: usize) -> bool {
        let ran = |(number, part): (usize, &Part)| {
            let comes = part.after.iter().any(|(from, _)| *from == at);
            comes && (part.has_run || self.is_lost(number) && self.ran_behind(number))
        };
        self.parts.iter().enumerate().any(ran)
    }

    /// Whether one was skipped because something failed, and counts as failed itself.
    fn is_lost(&self, at: usize) -> bool {
        let part = &self.parts[at];
        !part.has_run && !part.is_shelved && self.verdict(at).1
    }

    fn holds(&self, at: usize) -> bool {
        let is_undo = self.parts[at].undoes.is_some();
        self.step(at) == StepState::Failed && (is_undo || !self.is_answered(at))
    }

    pub(super) fn step(&self, at: usize) -> StepState {
        let part = &self.parts[at];
        if part.has_run {
            return match part.fate {
                Fate::Done(_) => StepState::Done,
                Fate::Dead | Fate::Cancelled => StepState::Failed,
                Fate::Held | Fate::Running { .. } => StepState::Open,
            };
        }
        if part.is_shelved { StepState::Skipped } else { self.verdict(at).0 }
    }

    /// Where one stands that has not run, by what it comes after; and whether it is lost.
    fn verdict(&self, at: usize) -> (StepState, bool) {
        let part = &self.parts[at];
        if part.after.is_empty() {
            return (StepState::Open, false);
        }
        let wanted = || part.after.iter().filter(|(_, on_failure)| !on_failure);
        let is_guarded = wanted().all(|(from, _)| self.is_answered(*from));
        let has_failed = |from: usize| self.step(from) == StepState::Failed || self.is_lost(from);
        if wanted().any(|(from, _)| !self.holds(*from) && has_failed(*from)) {
            return (StepState::Skipped, !is_guarded);
        }
        if part.after.iter().any(|(from, _)| !self.step(*from).is_final() || self.holds(*from)) {
            return (StepState::Waiting, false);
        }
        let mut alarms = part.after.iter().filter(|(_, on_failure)| *on_failure).peekable();
        let may_run = match alarms.peek() {
            Some(_) => alarms.any(|(from, _)| has_failed(*from)),
            None => wanted().any(|(from, _)| self.step(*from) == StepState::Done),
        };
        (if may_run { StepState::Open } else { StepState::Skipped }, false)
    }

    pub(super) fn state(&self) -> FlowState {
        let held = self.holding();
        let is_over = (0..self.parts.len()).all(|at| self.step(at).is_final());
        if self.turned_back {
            let is_stuck = held.iter().any(|at| self.parts[*at].undoes.is_some());
            return match (is_stuck, is_over && self.undos_planned) {
                (true, _) => FlowState::Stuck,
                (false, true) => FlowState::Undone,
                (false, false) => FlowState::Undoing,
            };
        }
        match (self.is_stuck, is_over) {
            (true, _) => FlowState::Stuck,
            (false, true) => FlowState::Done,
            (false, false) => FlowState::Running,
        }
    }

    /// The point of no return, while it is under way.
    fn pivot_under_way(&self) -> Option<usize> {
        (0..self.parts.len())
            .find(|at| self.parts[*at].is_pivot && self.step(*at) == StepState::Open)
    }

    /// Whether nobody knows if the point of no return was passed, and nothing undoes it.
    fn doubts_pivot(&self) -> bool {
        let doubted = |at: usize| {
            let part = &self.parts[at];
            let is_kept = part.is_pivot && part.in_doubt && !part.has_undo;
            is_kept && self.step(at) == StepState::Failed
        };
        (0..self.parts.len()).any(doubted)
    }

    /// Calls a job off that is on its way; `false` when it was told before.
    fn stop(&mut self, at: usize) -> bool {
        let before = self.parts[at].fate;
        let part = &mut self.parts[at];
        part.fate = match before {
            Fate::Running { .. } => Fate::Running { called_off: true },
            _ => Fate::Cancelled,
        };
        part.fate != before
    }

    /// What a failure means that nobody answers; `true` when something was changed by it.
    fn fail(&mut self, is_failed: bool) -> bool {
        if self.turned_back || !is_failed {
            return std::mem::take(&mut self.is_stuck);
        }
        if self.is_stuck {
            return false;
        }
        if self.is_past_return() {
            self.is_stuck = true;
        } else if let Some(pivot) = self.pivot_under_way() {
            return self.stop(pivot);
        } else if self.doubts_pivot() {
            self.is_stuck = true;
        } else {
            self.turn_back();
        }
        true
    }

    /// Lets run what may run, turns back when that is due, and plans the undos.
    pub(super) fn go_on(&mut self) {
        loop {
            let opens = |at: &usize| !self.parts[*at].has_run && self.step(*at) == StepState::Open;
            if let Some(next) = (0..self.parts.len()).find(opens) {
                self.parts[next].has_run = true;
                continue;
            }
            let fails = self.holding().iter().any(|at| self.parts[*at].undoes.is_none());
            if self.fail(fails) {
                continue;
            }
            let is_quiet = (0..self.parts.len()).all(|at| self.step(at).is_final());
            if self.turned_back && !self.undos_planned && is_quiet {
                self.plan_undos();
                continue;
            }
            return self.bury();
        }
    }

    /// What was called off is dead where the saga is stuck.
    fn bury(&mut self) {
        for at in self.holding() {
            let is_at_rest = self.turned_back || self.is_stuck;
            let part = &mut self.parts[at];
            if is_at_rest
                && part.fate == Fate::Cancelled
                && part.undoes.is_some() == self.turned_back
            {
                part.fate = Fate::Dead;
            }
        }
    }

    fn turn_back(&mut self) {
        (self.turned_back, self.is_stuck) = (true, false);
        for part in &mut self.parts {
            part.is_shelved = !part.has_run;
            match part.fate {
                Fate::Held if part.has_run => part.fate = Fate::Cancelled,
                Fate::Running { .. } => part.fate = Fate::Running { called_off: true },
                _ => {}
            }
        }
    }

    fn plan_undos(&mut self) {
        self.undos_planned = true;
        let steps = self.parts.len();
        let undone: Vec<usize> = (0..steps)
            .filter(|at| {
                let part = &self.parts[*at];
                let is_done = matches!(part.fate, Fate::Done(_));
                part.has_run && part.has_undo && (is_done || part.in_doubt)
            })
            .collect();
        let number = |step: usize| undone.iter().position(|at| *at == step).map(|at| steps + at);
        for step in &undone {
            let later = self.nearest_behind(*step, &undone);
            let after = later.into_iter().filter_map(|step| Some((number(step)?, false))).collect();
            self.parts.push(Part {
                name: format!("undo {}", name(*step)),
                id: None,
                fate: Fate::Held,
                in_doubt: false,
                after,
                has_undo: false,
                is_pivot: false,
                undoes: Some(*step),
                has_run: false,
                is_shelved: false,
            });
        }
    }

    /// The first steps behind one, on every way, that are undone too.
    fn nearest_behind(&self, step: usize, undone: &[usize]) -> Vec<usize> {
        let mut found = Vec::new();
        let mut next = vec![step];
        let mut seen = vec![step];
        while let Some(from) = next.pop() {
            for at in 0..self.parts.len() {
                let comes = self.parts[at].after.iter().any(|edge| edge.0 == from);
                if !comes || seen.contains(&at) || self.parts[at].undoes.is_some() {
                    continue;
                }
                seen.push(at);
                if undone.contains(&at) { found.push(at) } else { next.push(at) }
            }
        }
        found
    }

    /// What an undo is told of its step.
    pub(super) fn told(&self, undo: usize) -> Option<(&'static str, Option<i64>)> {
        let step = &self.parts[self.parts[undo].undoes?];
        Some(match step.fate {
            Fate::Done(output) => ("done", Some(output)),
            _ => ("unknown", None),
        })
    }

    /// Calls it off; `false` when that cannot be done any more.
    pub(super) fn call_off(&mut self) -> bool {
        if self.turned_back || self.state().is_final() || self.is_past_return() {
            return false;
        }
        if let Some(pivot) = self.pivot_under_way() {
            self.stop(pivot);
            self.go_on();
            if self.turned_back || self.is_stuck || self.pivot_under_way().is_some() {
                return self.turned_back;
            }
        }
        self.turn_back();
        self.go_on();
        true
    }

    /// Dead jobs that may be sent again: once it has turned back, only undos.
    pub(super) fn replayable(&self) -> Vec<usize> {
        let may = |at: &usize| {
            let part = &self.parts[*at];
            part.fate == Fate::Dead && (!self.turned_back || part.undoes.is_some())
        };
        (0..self.parts.len()).filter(may).collect()
    }

    pub(super) fn replay(&mut self, again: &[usize]) {
        for at in again {
            self.parts[*at].fate = Fate::Held;
        }
        self.go_on();
    }

    pub(super) fn find(&self, id: JobId) -> Option<usize> {
        self.parts.iter().position(|part| part.id == Some(id))
    }
}
