//! Random flows: acyclic graphs of a few steps with every kind of edge and join.

use proptest::prelude::*;
use proptest::sample::select;
use tidemill_core::flow::{After, Flow, FlowOptions, Join, Need, On, Rest, Step, UndoRule, Work};
use tidemill_core::{FlowId, NewJob, Payload};

/// A flow as it is wished for.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub(super) steps: Vec<Wish>,
    pub(super) at_once: Option<u32>,
}

/// A step as it is wished for. It comes only after steps before it.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) jobs: usize,
    pub(super) after: Vec<(u8, On, Option<When>)>,
    pub(super) need: Need,
    pub(super) rest: Rest,
}

/// An expression on an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// `output > n`: cannot be judged unless the step has one job, and that is done.
    OutputAbove(i64),
    /// `failed < n`.
    FailedBelow(u64),
}

impl When {
    fn text(self) -> String {
        match self {
            Self::OutputAbove(n) => format!("output > {n}"),
            Self::FailedBelow(n) => format!("failed < {n}"),
        }
    }
}

/// An edge that is there: where from, and how.
pub(super) type From = (usize, On, Option<When>);

impl Graph {
    /// The edges that lead to a step: none twice.
    pub(super) fn edges(&self, at: usize) -> Vec<From> {
        let mut edges: Vec<From> = Vec::new();
        for (pick, on, when) in &self.steps[at].after {
            let Some(from) = usize::from(*pick).checked_rem(at) else { continue };
            if edges.iter().all(|edge| edge.0 != from) {
                edges.push((from, *on, *when));
            }
        }
        edges
    }

    /// The join of a step: one that can be met.
    pub(super) fn join(&self, at: usize) -> Join {
        let edges = self.edges(at);
        if edges.is_empty() {
            return Join::default();
        }
        let there: usize = edges.iter().map(|edge| self.steps[edge.0].jobs).sum();
        let Wish { need, rest, .. } = self.steps[at];
        let need = match need {
            Need::Quorum { .. } if there == 0 => Need::Finished,
            Need::Quorum { jobs } => Need::Quorum { jobs: (jobs - 1) % (there as u32) + 1 },
            Need::All { failures_max } => {
                // A step of no jobs that is lost is a failure, too.
                let there: usize = edges.iter().map(|edge| self.steps[edge.0].jobs.max(1)).sum();
                Need::All { failures_max: failures_max.min(there as u32) }
            }
            Need::Finished => Need::Finished,
        };
        Join { need, within_ms: None, rest }
    }

    /// The flow, as a caller would start it.
    pub(super) fn flow(&self) -> Flow {
        let step = |at: usize| Step {
            name: name(at),
            work: Work::Jobs((0..self.steps[at].jobs).map(|_| job(&name(at))).collect()),
            after: self.edges(at).into_iter().map(after).collect(),
            join: self.join(at),
            undo: UndoRule::Missing,
            pivot: false,
        };
        Flow {
            id: FlowId::new(),
            name: "model".to_owned(),
            steps: (0..self.steps.len()).map(step).collect(),
            options: FlowOptions { at_once: self.at_once, ..FlowOptions::default() },
        }
    }
}

fn after((from, on, when): From) -> After {
    After { step: name(from), on, when: when.map(When::text) }
}

/// The name of a step that was there from the start.
pub(super) fn name(at: usize) -> String {
    format!("s{at}")
}

pub(super) fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::null())
}

/// Up to eight steps of up to four jobs.
pub(super) fn graphs() -> impl Strategy<Value = Graph> {
    let at_once = prop::option::weighted(0.25, 1_u32..4);
    (prop::collection::vec(wish(), 1..9), at_once)
        .prop_map(|(steps, at_once)| Graph { steps, at_once })
}

fn wish() -> impl Strategy<Value = Wish> {
    let on = prop_oneof![4 => Just(On::Success), 2 => Just(On::Failure), 2 => Just(On::Either)];
    let when = prop_oneof![
        (0_i64..10).prop_map(When::OutputAbove),
        (0_u64..3).prop_map(When::FailedBelow),
    ];
    let edge = (any::<u8>(), on, prop::option::weighted(0.25, when));
    let need = prop_oneof![
        3 => (0_u32..3).prop_map(|failures_max| Need::All { failures_max }),
        2 => Just(Need::Finished),
        2 => (1_u32..6).prop_map(|jobs| Need::Quorum { jobs }),
    ];
    let jobs = prop_oneof![1 => Just(0_usize), 4 => Just(1), 6 => 2_usize..5];
    let rest = select(vec![Rest::GoOn, Rest::GoOn, Rest::Cancel]);
    (jobs, prop::collection::vec(edge, 0..4), need, rest)
        .prop_map(|(jobs, after, need, rest)| Wish { jobs, after, need, rest })
}
