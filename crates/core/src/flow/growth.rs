//! Steps that running jobs add to their flow.
//!
//! They obey the bounds of flows that are sent whole: a flow is looked at as a whole when it grows, and one that adds
//! to itself for ever would take ever longer for it.

use crate::error::{Error, Result};
use crate::flow::board::{Board, HAPPENED};
use crate::flow::state::{StepRow, StepState};
use crate::flow::{EDGES_MAX, Edge, On, Place, SAGA_STEPS_MAX, STEPS_MAX};
use crate::id::FlowId;
use crate::job::NewJob;

/// The steps that these jobs are to be added as: jobs of one place that stand beside each other are one step.
pub fn steps_of(jobs: &[NewJob]) -> impl Iterator<Item = (&Place, &[NewJob])> {
    let of_step = jobs.chunk_by(|a, b| a.options.flow == b.options.flow);
    of_step.filter_map(|jobs| Some((jobs.first()?.options.flow.as_deref()?, jobs)))
}

/// What of flows is to be added, by the steps behind which it stands.
#[derive(Debug, Clone, Default)]
pub struct Wanted(Vec<(FlowId, u32)>);

impl Wanted {
    /// Adds what these jobs ask for, if the flows may have all of it; else nothing. A flow that takes no jobs any more
    /// has nothing added, and one that is not among the boards is gone.
    pub fn add(&mut self, boards: &[Board], jobs: &[NewJob]) -> Result<()> {
        let mut all = self.0.clone();
        all.extend(steps_of(jobs).map(|(place, _)| (place.id, place.step)));
        for board in boards.iter().filter(|board| board.takes_jobs()) {
            let of_flow = all.iter().filter(|(flow, _)| *flow == board.flow.id);
            board.check_growth(of_flow.map(|(_, behind)| *behind))?;
        }
        self.0 = all;
        Ok(())
    }
}

impl Board {
    /// A running job of a step adds a step of so many jobs, which starts at once (`slow`: its jobs have to wait);
    /// what comes after the one comes after the other too, unless it is decided. The board must know the edges that
    /// leave the step. Answers the edges.
    pub fn grow(
        &mut self,
        behind: u32,
        number: u32,
        name: &str,
        jobs: u64,
        slow: bool,
    ) -> Vec<Edge> {
        let mut edges =
            vec![Edge { from: behind, to: number, on: On::Either, when: None, held: None }];
        for edge in self.leaving.get(&behind).into_iter().flatten() {
            let to = self.steps.get_mut(&edge.to).filter(|step| !step.superseded);
            let Some(to) = to else { continue };
            match to.state {
                StepState::Waiting => {
                    to.parents_left += 1;
                    if edge.on == On::Failure && to.alarms != Some(HAPPENED) {
                        to.alarms = to.alarms.map(|left| left + 1);
                    }
                    self.touched.insert(edge.to);
                }
                // It may wait again.
                StepState::Skipped => {}
                _ => continue,
            }
            // What was asked of an output is asked of the step that has one.
            let (from, to, on) = (number, edge.to, edge.on);
            edges.push(Edge { from, to, on, when: None, held: None });
        }
        let row = StepRow { grown: true, slow, ..StepRow::new(number, name, jobs) };
        self.steps.insert(number, row);
        self.open(number);
        edges
    }

    /// Whether a step may be added behind each of these. The board must know the whole flow.
    fn check_growth(&self, behind: impl Iterator<Item = u32>) -> Result<()> {
        let (mut steps, mut edges) = (0, 0);
        for step in behind {
            steps += 1;
            edges += 1 + self.leaving.get(&step).map_or(0, |edges| self.inherited(edges));
        }
        if steps == 0 {
            return Ok(());
        }
        let number = self.steps.len() + steps;
        let (what, max) =
            if self.flow.saga { ("steps of a saga", SAGA_STEPS_MAX) } else { ("steps", STEPS_MAX) };
        if number > max {
            return Err(Error::FlowTooLarge { what, number, max });
        }
        let number = self.leaving.values().map(Vec::len).sum::<usize>() + edges;
        if number > EDGES_MAX {
            return Err(Error::FlowTooLarge { what: "edges", number, max: EDGES_MAX });
        }
        Ok(())
    }

    /// How many of these edges a step has too that is added behind the one which they leave.
    fn inherited(&self, edges: &[Edge]) -> usize {
        let is_open = |edge: &&Edge| {
            let to = self.steps.get(&edge.to).filter(|step| !step.superseded);
            to.is_some_and(|to| matches!(to.state, StepState::Waiting | StepState::Skipped))
        };
        edges.iter().filter(is_open).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::plan::tests::{plan, step};
    use crate::flow::plan::{Growth, grow};
    use crate::payload::Payload;
    use jiff::Timestamp;

    #[test]
    fn growth_is_bounded_and_counts_what_is_wanted_together() {
        let waiting: Vec<String> = (1..STEPS_MAX - 2).map(|n| format!("s{n}")).collect();
        let steps = waiting.iter().map(|name| step(name, &["a"]));
        let plan = plan(std::iter::once(step("a", &[])).chain(steps).collect());
        let mut board = Board::of_plan(&plan, Timestamp::UNIX_EPOCH);
        board.begin();
        let place = plan.jobs[0].job.options.flow.clone().unwrap();
        let more = |name: &str| {
            let job = NewJob::new("k", Payload::null());
            grow(job, Growth::new(&place, name)).unwrap()
        };
        let boards = [board];
        let mut wanted = Wanted::default();
        assert!(wanted.add(&boards, &[more("b"), more("b")]).is_ok(), "one step of two jobs");
        let refused = wanted.add(&boards, &[more("c"), more("d")]).unwrap_err();
        assert_eq!(refused.code(), "flow_too_large");
        assert!(wanted.add(&boards, &[more("c")]).is_ok(), "what was refused is not counted");
        assert!(wanted.add(&boards, &[more("d")]).is_err());
        let [mut board] = boards;
        board.call_off("enough");
        assert!(wanted.add(&[board], &[more("d")]).is_ok(), "it takes none anyway");
    }
}
