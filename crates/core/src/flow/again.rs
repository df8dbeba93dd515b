//! What it means for a flow that a step of it runs again.
//!
//! Dead jobs may be sent on their way again after their flow has gone on, or has ended, without them. Then what
//! was skipped because of them waits again. What has run stays as it is: a join fires once.
//!
//! A flow that was called off goes on behind what ended well in spite of that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::flow::board::{Board, Came, Verdict, came, count, is_judged, judge, met, unjudged};
use crate::flow::state::{FlowState, Lost, StepRow, StepState};
use crate::flow::{Edge, On};

impl Board {
    /// So many jobs of these steps, which had failed, are on their way again. The board must know the whole flow.
    pub(super) fn take_back(&mut self, again: &[(u32, u64)]) {
        for (number, jobs) in again {
            self.reopen(*number, *jobs);
        }
        // One that is being called off starts nothing behind them; one that has turned back nothing but undos.
        let is_back = self.has_turned_back();
        if again.is_empty() || self.flow.state == FlowState::Cancelling {
            return;
        }
        // One that was run again since is history: its jobs may run, but the flow goes by the copy.
        let is_current = |step: &StepRow| !step.superseded && (!is_back || step.undoes.is_some());
        let goes_on = |number: u32| self.steps.get(&number).is_some_and(is_current);
        let again: Vec<(u32, u64)> =
            again.iter().copied().filter(|(number, _)| goes_on(*number)).collect();
        if !again.is_empty() && self.flow.state.is_final() {
            self.flow.state = FlowState::Running;
        }
        let waiting = again.iter().flat_map(|(number, _)| self.revive_behind(*number)).collect();
        self.judge_waiting(waiting);
    }

    /// So many jobs of these steps, which were just sent on their way again, wait in the flow instead until there is a
    /// place for them: no more of it may be under way at once.
    pub fn hold_again(&mut self, held: &[(u32, u64)]) {
        for (number, jobs) in held {
            self.flow.jobs_open = self.flow.jobs_open.saturating_sub(*jobs);
            if let Some(step) = self.steps.get_mut(number) {
                step.state = StepState::Opening;
                self.touched.insert(*number);
            }
        }
    }

    /// Steps of which jobs may be held until there is a place for them: those that are on their way.
    pub fn under_way(&self) -> impl Iterator<Item = u32> {
        let is_open = |step: &&StepRow| matches!(step.state, StepState::Opening | StepState::Open);
        self.steps.values().filter(is_open).map(|step| step.number)
    }

    /// Goes on at the step of this name or, if that is done, behind it, where nothing but a call-off kept the flow from
    /// going on. Answers how many jobs wait again, or nothing if there is nothing to go on with. A saga that was called
    /// off has turned back, and goes nowhere else. The board must know the whole flow.
    pub fn go_on(&mut self, name: &str) -> Option<u64> {
        use FlowState::{Cancelled, Done, Failed, Running};
        let is_fit =
            !self.flow.saga && matches!(self.flow.state, Running | Done | Failed | Cancelled);
        let is_named = |step: &&StepRow| step.name == name && !step.superseded;
        let step = self.steps.values().filter(|_| is_fit).find(is_named)?;
        let at = match step.state {
            StepState::Skipped => vec![step.number],
            StepState::Done => self.leaving.get(&step.number)?.iter().map(|edge| edge.to).collect(),
            _ => return None,
        };
        let was_called_off = |number: &u32| {
            let step = self.steps.get(number).filter(|step| !step.superseded);
            step.is_some_and(|step| step.lost == Lost::CalledOff)
        };
        let at: Vec<u32> = at.into_iter().filter(was_called_off).collect();
        // What it comes after may not have run either: then nothing has changed.
        let mut tried = self.clone();
        let mut waiting = BTreeSet::new();
        for number in at {
            tried.revive(number);
            waiting.insert(number);
            waiting.extend(tried.revive_behind(number));
        }
        tried.judge_waiting(waiting);
        tried.missing();
        let revived = tried.changes.revive.iter().filter_map(|number| tried.steps.get(number));
        let revived: Vec<u64> =
            revived.filter(|step| step.state != StepState::Skipped).map(|step| step.left).collect();
        if revived.is_empty() {
            return None;
        }
        tried.flow.state = Running;
        *self = tried;
        Some(revived.iter().sum())
    }

    /// Judges these steps, which wait, by all that those have said that they come after.
    fn judge_waiting(&mut self, waiting: BTreeSet<u32>) {
        let mut arriving: BTreeMap<u32, Vec<Edge>> = BTreeMap::new();
        for edge in self.leaving.values().flatten() {
            arriving.entry(edge.to).or_default().push(edge.clone());
        }
        for number in &waiting {
            self.recount(*number, arriving.get(number).map_or(&[], Vec::as_slice));
        }
        for number in waiting {
            match self.judge_anew(number, arriving.get(&number).map_or(&[], Vec::as_slice)) {
                Some(Verdict::Skip(reason, lost)) => {
                    self.changes.revive.retain(|revived| *revived != number);
                    self.skip(number, reason, lost);
                }
                Some(Verdict::Open) => self.open(number),
                None => {}
            }
        }
    }

    /// The step of this name, if jobs of it may have been called off that can be sent again. Not of a saga: where one
    /// is stuck they are dead, and where it has turned back they stay as they are. The board must know the whole flow.
    pub fn called_off_at(&self, name: &str) -> Option<u32> {
        let is_fit = !self.flow.saga && self.flow.state != FlowState::Cancelling;
        let has_failed = |step: &&StepRow| {
            step.name == name && !step.superseded && step.failed > 0 && self.takes_again(step)
        };
        self.steps.values().filter(|_| is_fit).find(has_failed).map(|step| step.number)
    }

    /// Whether a job of a step that was called off may be sent again by itself. One that the step has not let go would
    /// go twice: now, and with the others; unless it waits for its place with them.
    fn takes_again(&self, step: &StepRow) -> bool {
        match step.state {
            StepState::Waiting | StepState::Skipped => false,
            StepState::Opening => self.flow.at_once.is_some() && !step.slow,
            StepState::Open | StepState::Done | StepState::Failed => true,
        }
    }

    /// Whether a step that waits may run, or never will, by all that it has heard by these edges.
    pub(super) fn judge_anew(&self, number: u32, arriving: &[Edge]) -> Option<Verdict> {
        let step = self.steps.get(&number).filter(|step| step.state == StepState::Waiting)?;
        let parents = arriving.iter().filter(|edge| edge.on == On::Success);
        let mut parents = parents.filter_map(|edge| self.steps.get(&edge.from));
        judge(step, parents.find(|from| from.failures() > 0))
    }

    fn reopen(&mut self, number: u32, jobs: u64) {
        self.flow.jobs_open += jobs;
        let Some(step) = self.steps.get_mut(&number).filter(|step| !step.superseded) else {
            return;
        };
        step.failed = step.failed.saturating_sub(jobs);
        step.left += jobs;
        self.touched.insert(number);
        if step.state == StepState::Failed {
            step.state = StepState::Open;
        }
    }

    /// Lets all wait again that were skipped behind a step; answers who waits behind it now.
    fn revive_behind(&mut self, number: u32) -> BTreeSet<u32> {
        let mut waiting = BTreeSet::new();
        let mut behind = VecDeque::from([number]);
        while let Some(from) = behind.pop_front() {
            for edge in self.leaving.get(&from).cloned().unwrap_or_default() {
                let step = self.steps.get(&edge.to).filter(|step| !step.superseded);
                match step.map(|step| step.state) {
                    Some(StepState::Skipped) => {
                        self.revive(edge.to);
                        behind.push_back(edge.to);
                    }
                    Some(StepState::Waiting) => {}
                    _ => continue,
                }
                self.touched.insert(edge.to);
                waiting.insert(edge.to);
            }
        }
        waiting
    }

    /// Lets a step wait again that was skipped.
    fn revive(&mut self, number: u32) {
        let Some(step) = self.steps.get_mut(&number) else { return };
        step.state = StepState::Waiting;
        step.lost = Lost::No;
        step.reason = None;
        self.touched.insert(number);
        self.changes.skip.retain(|skipped| *skipped != number);
        self.changes.revive.push(number);
    }

    /// Counts anew what a step that waits has heard by these edges. A step that holds it has told it nothing.
    pub(super) fn recount(&mut self, number: u32, arriving: &[Edge]) {
        let heard: Vec<(&Edge, StepRow, bool)> = arriving
            .iter()
            .filter_map(|edge| Some((edge, self.steps.get(&edge.from)?.clone())))
            .map(|(edge, from)| {
                let is_skipped = from.state == StepState::Skipped;
                let holds_it = from.failed > 0 && !is_skipped && self.holds_behind(&from);
                (edge, from, holds_it)
            })
            .collect();
        let alarms = arriving.iter().filter(|edge| edge.on == On::Failure).count();
        let Some(step) = self.steps.get_mut(&number) else { return };
        (step.parents_left, step.came, step.met, step.missed) = (0, 0, 0, 0);
        step.refused = false;
        let reason = step.reason.take();
        step.alarms = (alarms > 0).then_some(alarms as u32);
        for (edge, from, holds_it) in heard {
            let is_over = from.state.is_final() && !holds_it;
            step.parents_left += u32::from(!is_over);
            if holds_it {
                continue;
            }
            let came = is_over.then(|| came_anew(edge, &from));
            if edge.on == On::Success {
                step.missed += from.failures();
            }
            if edge.when.is_none() || came == Some(Came::Holds) {
                step.met += met(edge.on, from.ok, from.failures());
            }
            if let Some(came) = came {
                count(step, edge.on, came);
                if is_judged(edge, &from) && edge.held.is_none() {
                    // What kept it from being judged is known only if it was said before.
                    let says = unjudged(&from.name);
                    let said = reason.clone().filter(|reason| reason.starts_with(&says));
                    step.reason = said.or(Some(says));
                }
            }
        }
    }
}

/// What an edge came to, by what is kept of it.
fn came_anew(edge: &Edge, from: &StepRow) -> Came {
    came(edge.on, from, !is_judged(edge, from) || edge.held == Some(true))
}
