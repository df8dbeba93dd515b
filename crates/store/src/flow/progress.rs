//! How far a flow is: what of it has ended, how much is left, and when it is expected to end.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill_core::flow::{FlowState, StepState};

use crate::flow::{FlowHead, FlowView, StepView};

/// How far a flow is. Steps that were run again count as they run now, not as they ran before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FlowProgress {
    /// How many jobs it has.
    pub jobs: u64,
    /// How many of them are done.
    pub done: u64,
    /// How many are dead or were called off.
    pub failed: u64,
    /// How many will not run.
    pub skipped: u64,
    /// How many are still to end.
    pub remaining: u64,
    /// When it ends, if it goes on as it went so far; of one that runs, once a job of it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_at: Option<Timestamp>,
}

impl FlowProgress {
    /// Of a flow and its steps, without saying when it ends.
    pub(crate) fn of(head: &FlowHead, steps: &[StepView]) -> Self {
        let skipped = current(steps).filter(|step| step.state == StepState::Skipped);
        let skipped =
            skipped.map(|step| step.jobs - (step.done + step.failed).min(step.jobs)).sum();
        let FlowHead { jobs, done, failed, .. } = *head;
        let remaining = jobs.saturating_sub(done + failed + skipped);
        Self { jobs, done, failed, skipped, remaining, expected_end_at: None }
    }
}

fn current(steps: &[StepView]) -> impl Iterator<Item = &StepView> {
    steps.iter().filter(|step| !step.superseded)
}

impl FlowView {
    /// A flow with its steps.
    pub fn new(head: FlowHead, steps: Vec<StepView>) -> Self {
        Self { progress: FlowProgress::of(&head, &steps), head, steps }
    }

    /// The same, with the end that is expected now.
    #[must_use]
    pub fn expected(mut self, now: Timestamp) -> Self {
        let FlowProgress { jobs, remaining, .. } = self.progress;
        let ended = jobs - remaining.min(jobs);
        let is_asked = self.head.state == FlowState::Running && ended > 0 && remaining > 0;
        let rest = self.worked(now).as_secs_f64() * remaining as f64 / ended as f64;
        let rest = Duration::try_from_secs_f64(rest).ok().filter(|_| is_asked);
        self.progress.expected_end_at = rest.and_then(|rest| now.checked_add(rest).ok());
        self
    }

    /// How long steps of it were under way so far. It may have rested in between: it had ended, and went on.
    fn worked(&self, now: Timestamp) -> Duration {
        let span = |step: &StepView| Some((step.started_at?, step.ended_at.unwrap_or(now)));
        let mut spans: Vec<_> = current(&self.steps).filter_map(span).collect();
        spans.sort_unstable();
        let (mut worked, mut until) = (Duration::ZERO, Timestamp::MIN);
        for (from, to) in spans {
            worked += Duration::try_from(to.duration_since(from.max(until))).unwrap_or_default();
            until = until.max(to);
        }
        worked
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use tidemill_core::FlowId;
    use tidemill_core::flow::Join;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn step(state: StepState, jobs: u64, done: u64, span: (i64, Option<i64>)) -> StepView {
        StepView {
            number: 0,
            name: "step".into(),
            kind: None,
            first: None,
            state,
            jobs,
            done,
            failed: 0,
            join: Join::default(),
            after: Vec::new(),
            started_at: Some(at(span.0)),
            ended_at: span.1.map(at),
            reason: None,
            undo: None,
            undoes: None,
            pivot: false,
            superseded: false,
        }
    }

    fn flow(steps: Vec<StepView>) -> FlowView {
        let sum = |of: fn(&StepView) -> u64| current(&steps).map(of).sum();
        let head = FlowHead {
            id: FlowId::new(),
            name: "flow".into(),
            state: FlowState::Running,
            created_at: at(0),
            finished_at: None,
            reason: None,
            steps_all: 0,
            steps_left: 0,
            jobs: sum(|step| step.jobs),
            done: sum(|step| step.done),
            failed: sum(|step| step.failed),
            at_once: None,
            since: None,
        };
        FlowView::new(head, steps)
    }

    #[test]
    fn it_ends_when_the_rest_has_gone_on_as_the_first_did() {
        use StepState::{Done, Open, Waiting};
        let first = step(Done, 1, 1, (0, Some(10)));
        let view = flow(vec![
            first.clone(),
            step(Open, 8, 4, (10, None)),
            StepView { started_at: None, ..step(Waiting, 1, 0, (0, None)) },
        ]);
        let FlowProgress { jobs, done, remaining, expected_end_at, .. } =
            view.expected(at(50)).progress;
        assert_eq!((jobs, done, remaining), (10, 5, 5));
        assert_eq!(expected_end_at, Some(at(100)));
        assert_eq!(flow(vec![first]).expected(at(50)).progress.expected_end_at, None);
    }

    #[test]
    fn what_was_run_again_counts_as_it_runs_now_and_the_rest_between_counts_for_nothing() {
        use StepState::{Done, Open, Skipped};
        let old = |step: StepView| StepView { superseded: true, ..step };
        let day = SignedDuration::from_hours(24).as_secs();
        let view = flow(vec![
            step(Done, 1, 1, (0, Some(10))),
            old(step(Done, 1, 1, (10, Some(20)))),
            old(step(Skipped, 1, 0, (0, None))),
            step(Open, 1, 0, (day, None)),
        ]);
        let FlowProgress { jobs, done, skipped, remaining, expected_end_at, .. } =
            view.expected(at(day + 10)).progress;
        assert_eq!((jobs, done, skipped, remaining), (2, 1, 0, 1));
        assert_eq!(expected_end_at, Some(at(day + 30)));
    }
}
