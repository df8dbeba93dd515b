//! Does what flows wait for, and holds everything the store says against the oracle.

use std::collections::{BTreeMap, BTreeSet};

use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use tidemill_core::flow::StepState;
use tidemill_core::{JobId, State};
use tidemill_store::flow::FlowView;
use tidemill_store::{JobFilter, JobView};

use super::oracle::{Fate, Oracle};
use super::play::Play;
use crate::games::{Verdict, fine};

/// Looks before a flow that never comes to rest is given up.
const LOOKS_MAX: usize = 50;

impl Play {
    /// Tends until nothing changes any more, and compares.
    pub(super) async fn look(&mut self) -> Verdict {
        let mut last = Vec::new();
        let mut is_at_rest = false;
        for look in 0..LOOKS_MAX {
            let has_more = fine(self.stores[look % 2].tend_flows().await)?;
            let views = self.views().await?;
            is_at_rest = !has_more && views == last;
            if is_at_rest {
                break;
            }
            last = views;
        }
        prop_assert!(is_at_rest, "the flows come to rest");
        self.oracles.iter_mut().for_each(Oracle::settle_down);
        let jobs = JobFilter { limit: 1000, ..JobFilter::default() };
        let jobs = fine(self.stores[0].jobs(&jobs).await)?.jobs;
        let jobs: BTreeMap<JobId, JobView> =
            jobs.into_iter().map(|view| (view.job.id, view)).collect();
        let known: usize =
            self.oracles.iter().flat_map(|o| &o.parts).map(|part| part.jobs.len()).sum();
        prop_assert_eq!(jobs.len(), known, "as many jobs as there should be");
        for (oracle, view) in self.oracles.iter().zip(&last) {
            compare_flow(oracle, view)?;
            compare_jobs(oracle, &jobs)?;
        }
        self.compare_caps(&jobs)
    }

    async fn views(&self) -> Verdict<Vec<FlowView>> {
        let mut views = Vec::new();
        for oracle in &self.oracles {
            let view = fine(self.stores[0].flow(oracle.id).await)?;
            views.push(view.ok_or_else(|| TestCaseError::fail("the flow is gone"))?);
        }
        Ok(views)
    }

    /// No more are under way than a cap allows, but for replays; and no fewer, while others wait.
    fn compare_caps(&mut self, jobs: &BTreeMap<JobId, JobView>) -> Verdict {
        for (flow, oracle) in self.oracles.iter().enumerate() {
            let Some(at_once) = oracle.at_once else { continue };
            let has_run = oracle.parts.iter().filter(|part| part.has_run);
            let ids = has_run.flat_map(|part| part.jobs.iter().map(|(id, _)| *id));
            let unfinished: Vec<JobId> = ids.filter(|id| !jobs[id].state.is_final()).collect();
            let is_let_go = |id: &JobId| jobs[id].state != State::Blocked;
            let (under_way, held): (BTreeSet<JobId>, BTreeSet<JobId>) =
                unfinished.into_iter().partition(is_let_go);
            let before = self.let_go.entry(flow).or_default();
            let has_let_go = !under_way.is_subset(before);
            let (most, now) = (at_once as usize, under_way.len());
            prop_assert!(now <= most || !has_let_go, "{now} under way, {most} may be");
            prop_assert!(held.is_empty() || now >= most, "{now} under way, and {held:?} wait");
            *before = under_way;
        }
        Ok(())
    }
}

fn compare_flow(oracle: &Oracle, view: &FlowView) -> Verdict {
    prop_assert_eq!(view.steps.len(), oracle.parts.len(), "steps");
    let mut left = 0;
    for (at, part) in oracle.parts.iter().enumerate() {
        let Some(step) = view.steps.iter().find(|step| step.name == part.name) else {
            return Err(TestCaseError::fail(format!("step {} is not there", part.name)));
        };
        let expected = oracle.step(at);
        left += u64::from(!expected.is_final());
        let is_opening = step.state == StepState::Opening && oracle.at_once.is_some();
        let state = if is_opening { StepState::Open } else { step.state };
        prop_assert_eq!(state, expected, "step {}", &part.name);
        prop_assert_eq!(
            (step.jobs, step.done, step.failed),
            (part.jobs.len() as u64, part.done(), part.failed()),
            "counts of step {}",
            &part.name
        );
        prop_assert_eq!(step.ended_at.is_some(), expected.is_final(), "end of {}", &part.name);
    }
    let head = &view.head;
    prop_assert_eq!(head.state, oracle.state(), "flow");
    prop_assert_eq!(head.steps_left, left, "steps left");
    prop_assert_eq!(head.finished_at.is_some(), head.state.is_final(), "end of the flow");
    Ok(())
}

fn compare_jobs(oracle: &Oracle, jobs: &BTreeMap<JobId, JobView>) -> Verdict {
    for (at, part) in oracle.parts.iter().enumerate() {
        let is_skipped = oracle.step(at) == StepState::Skipped;
        for (id, fate) in &part.jobs {
            let Some(view) = jobs.get(id) else {
                return Err(TestCaseError::fail(format!("{id} of {} is lost", part.name)));
            };
            let expected = match fate {
                Fate::Held if is_skipped => State::Cancelled,
                Fate::Held if !part.has_run => State::Blocked,
                Fate::Held if oracle.at_once.is_some() && view.state == State::Blocked => {
                    State::Blocked
                }
                Fate::Held => State::Ready,
                Fate::Running { .. } => State::Running,
                Fate::Done(_) => State::Done,
                Fate::Dead => State::Dead,
                Fate::Cancelled => State::Cancelled,
            };
            prop_assert_eq!(view.state, expected, "a job of {}, {:?}", &part.name, fate);
            let called_off = *fate == Fate::Running { called_off: true };
            prop_assert_eq!(view.cancel_requested, called_off, "{}", &part.name);
        }
    }
    Ok(())
}
