//! Random sagas, and what is done to them.

use proptest::prelude::*;
use tidemill_core::flow::{After, Flow, FlowOptions, On, Step, UndoRule, Work};
use tidemill_core::{FlowId, NewJob, Payload};

/// A saga as it is wished for, and what is done to it.
#[derive(Debug, Clone)]
pub(super) struct Game {
    pub(super) saga: Saga,
    pub(super) ops: Vec<Op>,
}

#[derive(Debug, Clone)]
pub(super) struct Saga {
    pub(super) steps: Vec<Wish>,
    /// The point of no return, if there is one; taken modulo the steps.
    pivot: Option<u8>,
}

/// A step as it is wished for. It comes only after steps before it.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    after: Vec<(u8, bool)>,
    pub(super) has_undo: bool,
}

/// One thing that is done. Picks are taken modulo what there is; `store` is one of two.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Take {
        store: bool,
        jobs_max: usize,
    },
    End {
        pick: u16,
        end: End,
    },
    /// All workers are silent for too long, and given up.
    Lose,
    /// Calls off a job that waits for a slot or runs, of a step that is no undo.
    Cancel {
        pick: u16,
    },
    /// Sends a dead job on its way again.
    Replay {
        pick: u16,
    },
    /// The same for all dead ones.
    Retry,
    /// Lets a dead job that holds up a saga count as done.
    Resolve {
        pick: u16,
    },
    CallOff,
    Look,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done(i64),
    /// Fails and runs again; `in_doubt`: nobody knows whether it took effect.
    Retry {
        in_doubt: bool,
    },
    Dead {
        in_doubt: bool,
    },
    /// Is put off by its handler, or given back by a worker that stops: how far it came is not known.
    PutOff,
    /// Its handler says so, or was told to.
    Cancelled,
}

impl Saga {
    /// The edges that lead to a step: none twice. `true`: after the failure.
    pub(super) fn edges(&self, at: usize) -> Vec<(usize, bool)> {
        let mut edges: Vec<(usize, bool)> = Vec::new();
        for (pick, on_failure) in &self.steps[at].after {
            let Some(from) = usize::from(*pick).checked_rem(at) else { continue };
            if edges.iter().all(|edge| edge.0 != from) {
                edges.push((from, *on_failure));
            }
        }
        edges
    }

    pub(super) fn pivot(&self) -> Option<usize> {
        self.pivot.map(|pick| usize::from(pick) % self.steps.len())
    }

    /// The flow, as a caller would start it.
    pub(super) fn flow(&self) -> Flow {
        let after = |(from, on_failure): (usize, bool)| {
            let on = if on_failure { On::Failure } else { On::Success };
            After { step: name(from), on, when: None }
        };
        let undo = |at: usize| {
            if !self.steps[at].has_undo {
                return UndoRule::Nothing;
            }
            UndoRule::Job(Box::new(job(&format!("undo {}", name(at))).into()))
        };
        let step = |at: usize| Step {
            after: self.edges(at).into_iter().map(after).collect(),
            undo: undo(at),
            pivot: self.pivot() == Some(at),
            ..Step::new(name(at), Work::Jobs(vec![job(&name(at))]))
        };
        let options = FlowOptions { saga: true, ..FlowOptions::default() };
        let steps = (0..self.steps.len()).map(step).collect();
        Flow { id: FlowId::new(), name: "model".to_owned(), steps, options }
    }
}

pub(super) fn name(at: usize) -> String {
    format!("s{at}")
}

fn job(kind: &str) -> NewJob {
    NewJob::new(kind, Payload::null())
}

pub(super) fn games() -> impl Strategy<Value = Game> {
    let edge = (any::<u8>(), prop::bool::weighted(0.25));
    let wish = (prop::collection::vec(edge, 0..3), prop::bool::weighted(0.75))
        .prop_map(|(after, has_undo)| Wish { after, has_undo });
    let pivot = prop::option::weighted(0.4, any::<u8>());
    let saga =
        (prop::collection::vec(wish, 1..8), pivot).prop_map(|(steps, pivot)| Saga { steps, pivot });
    (saga, prop::collection::vec(op(), 1..50)).prop_map(|(saga, ops)| Game { saga, ops })
}

fn op() -> impl Strategy<Value = Op> {
    let pick = any::<u16>;
    prop_oneof![
        10 => (any::<bool>(), 1_usize..4).prop_map(|(store, jobs_max)| Op::Take { store, jobs_max }),
        14 => (pick(), end()).prop_map(|(pick, end)| Op::End { pick, end }),
        1 => Just(Op::Lose),
        1 => pick().prop_map(|pick| Op::Cancel { pick }),
        2 => pick().prop_map(|pick| Op::Replay { pick }),
        1 => Just(Op::Retry),
        2 => pick().prop_map(|pick| Op::Resolve { pick }),
        1 => Just(Op::CallOff),
        3 => Just(Op::Look),
    ]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        10 => (0_i64..99).prop_map(End::Done),
        2 => any::<bool>().prop_map(|in_doubt| End::Retry { in_doubt }),
        3 => any::<bool>().prop_map(|in_doubt| End::Dead { in_doubt }),
        1 => Just(End::PutOff),
        1 => Just(End::Cancelled),
    ]
}
