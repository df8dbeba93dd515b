//! A step of a flow and everything behind it, run again.
//!
//! What has run is not touched: its rows stay, under another name, as the history. Fresh copies take their places and
//! their names, with counters of their own; so a join fires again, and once. Steps that running jobs had added are not
//! copied: the jobs that run again add them again.
//!
//! It refuses sagas, where what was done is undone instead, and whatever has not ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::flow::board::{Board, Verdict};
use crate::flow::state::{FlowState, Lost, StepRow, StepState};
use crate::flow::{Edge, Place, STEPS_MAX, plan};
use crate::job::{Job, NewJob, Options};

/// Jobs that can be run again by one call.
pub const RERUN_JOBS_MAX: u64 = 10_000;

/// What is to be written for a rerun, before the board's own changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rerun {
    /// Steps that become history, with the names they have from now on.
    pub old: Vec<(u32, String)>,
    /// Fresh steps, by the numbers of those they are copies of.
    pub fresh: Vec<(u32, StepRow)>,
    /// The edges that lead to them.
    pub edges: Vec<Edge>,
}

impl Rerun {
    /// The edges that lead to a fresh step.
    fn arriving(&self, number: u32) -> Vec<Edge> {
        self.edges.iter().filter(|edge| edge.to == number).cloned().collect()
    }
}

/// A job of a step that is run again, for the copy of that step.
pub fn again(job: Job, step: u32) -> Option<NewJob> {
    let Job { kind, queue, priority, tenant, key, payload, options, .. } = job;
    let place = *options.flow.clone()?;
    let due = place.due.unwrap_or_default();
    // A dead letter that was sent again is not what the copy is.
    let options = Options { replayed_at: None, ..options };
    let job = NewJob { queue, priority, due, tenant, key, options, ..NewJob::new(kind, payload) };
    Some(plan::place(job, Place { step, due: None, ..place }))
}

impl Board {
    /// Lets a step and all that comes after it run again, or says why not. The board must know the whole flow.
    pub fn rerun(&mut self, root: u32) -> Result<Rerun, String> {
        let behind = self.behind(root);
        self.may_rerun(root, &behind)?;
        let mut rerun = Rerun { old: self.retire(&behind), ..Rerun::default() };
        let copied: Vec<StepRow> = behind
            .iter()
            .filter_map(|number| self.steps.get(number))
            .filter(|step| step.number == root || !step.grown)
            .cloned()
            .collect();
        let first = self.steps.keys().last().map_or(0, |last| last + 1);
        let numbers: BTreeMap<u32, u32> =
            copied.iter().zip(first..).map(|(step, fresh)| (step.number, fresh)).collect();
        rerun.edges = self.edges_anew(&behind, &numbers);
        for (old, name) in &rerun.old {
            if let Some(step) = self.steps.get_mut(old) {
                step.name.clone_from(name);
                step.superseded = true;
            }
        }
        for step in copied {
            let number = numbers[&step.number];
            let StepRow { name, jobs, join, grown, slow, early, guarded, .. } = step;
            let fresh = StepRow::new(number, name, jobs);
            let row = StepRow { join, early, guarded, grown, slow, ..fresh };
            rerun.fresh.push((step.number, row.clone()));
            self.steps.insert(number, row);
            self.leaving.entry(number).or_default();
            self.touched.insert(number);
        }
        for edge in &rerun.edges {
            self.leaving.entry(edge.from).or_default().push(edge.clone());
        }
        self.flow.state = FlowState::Running;
        self.set_off(numbers[&root], &rerun);
        Ok(rerun)
    }

    /// The first one starts; the others count what they have heard from those that are not run again.
    fn set_off(&mut self, root: u32, rerun: &Rerun) {
        for (_, row) in &rerun.fresh {
            self.recount(row.number, &rerun.arriving(row.number));
        }
        self.open(root);
        for (_, row) in rerun.fresh.iter().filter(|(_, row)| row.number != root) {
            match self.judge_anew(row.number, &rerun.arriving(row.number)) {
                Some(Verdict::Open) => self.open(row.number),
                Some(Verdict::Skip(reason, lost)) => self.skip(row.number, reason, lost),
                None => {}
            }
        }
    }

    /// A step and all that comes after it.
    fn behind(&self, root: u32) -> BTreeSet<u32> {
        let mut behind = BTreeSet::from([root]);
        let mut next = VecDeque::from([root]);
        while let Some(at) = next.pop_front() {
            for edge in self.leaving.get(&at).into_iter().flatten() {
                let is_current = self.steps.get(&edge.to).is_some_and(|step| !step.superseded);
                if is_current && behind.insert(edge.to) {
                    next.push_back(edge.to);
                }
            }
        }
        behind
    }

    fn may_rerun(&self, root: u32, behind: &BTreeSet<u32>) -> Result<(), String> {
        use FlowState::{Cancelled, Done, Failed, Running};
        if self.flow.saga {
            return Err("it is a saga: what was done in it is undone, not done again".to_owned());
        }
        if !matches!(self.flow.state, Running | Done | Failed | Cancelled) {
            return Err(format!("it is {}", self.flow.state.word()));
        }
        let steps: Vec<&StepRow> =
            behind.iter().filter_map(|number| self.steps.get(number)).collect();
        let root = self.steps.get(&root).ok_or("there is no such step")?;
        if root.superseded {
            return Err(format!("{:?} is history: it has been run again", root.name));
        }
        if root.lost == Lost::CalledOff {
            return Err(format!("{:?} was called off before it ran; retry it instead", root.name));
        }
        if root.state == StepState::Skipped && root.lost != Lost::Late {
            return Err(format!("{:?} was skipped: there is nothing to run again", root.name));
        }
        if let Some(step) = steps.iter().find(|step| !step.state.is_final()) {
            return Err(format!("{:?} has not ended: it is {}", step.name, step.state.word()));
        }
        let jobs: u64 = steps.iter().map(|step| step.jobs).sum();
        if jobs > RERUN_JOBS_MAX {
            return Err(format!("{jobs} jobs would run again, {RERUN_JOBS_MAX} at most"));
        }
        if self.steps.len() + steps.len() > STEPS_MAX {
            return Err(format!("it would have more than {STEPS_MAX} steps"));
        }
        Ok(())
    }

    /// The names that steps have when they are history.
    fn retire(&self, behind: &BTreeSet<u32>) -> Vec<(u32, String)> {
        let names: BTreeSet<&str> = self.steps.values().map(|step| step.name.as_str()).collect();
        let retired = |number: &u32| {
            let name = &self.steps.get(number)?.name;
            let runs = (1..).map(|run: u32| format!("{name} (run {run})"));
            let free = runs.into_iter().find(|old| !names.contains(old.as_str()))?;
            Some((*number, free))
        };
        behind.iter().filter_map(retired).collect()
    }

    /// The edges of the copies: from copies, and from steps that are not run again, with what those have said.
    fn edges_anew(&self, behind: &BTreeSet<u32>, numbers: &BTreeMap<u32, u32>) -> Vec<Edge> {
        let anew = |edge: &Edge| {
            let to = *numbers.get(&edge.to)?;
            match numbers.get(&edge.from) {
                Some(from) => Some(Edge { from: *from, to, held: None, ..edge.clone() }),
                None if behind.contains(&edge.from) => None,
                None => Some(Edge { to, ..edge.clone() }),
            }
        };
        let is_current =
            |edge: &&Edge| self.steps.get(&edge.from).is_some_and(|step| !step.superseded);
        self.leaving.values().flatten().filter(is_current).filter_map(anew).collect()
    }
}
