//! What is done to flows while they run.

use proptest::prelude::*;

use super::graph::{Graph, graphs};

/// One thing that is done. Picks are taken modulo what there is; `store` is one of two.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Claims up to so many.
    Take { store: bool, jobs_max: usize },
    /// Settles some of what runs, in one call.
    End { store: bool, ends: Vec<(u16, End)> },
    /// Settles in the same moment by both stores.
    EndTogether { one: Vec<(u16, End)>, two: Vec<(u16, End)> },
    /// Settles again what was settled or lost before.
    Again { pick: u16, end: End },
    /// All workers are silent for too long, and given up.
    Lose,
    /// Calls a job off, wherever it stands.
    Cancel { store: bool, pick: u16 },
    /// Sends a job on its way again, if it is dead.
    Replay { store: bool, pick: u16 },
    /// The same for all dead ones of a flow.
    Retry { store: bool, flow: bool },
    /// Lets a step and all behind it run again, if it may.
    Rerun { store: bool, flow: bool, pick: u16 },
    /// Calls a flow off.
    CallOff { store: bool, flow: bool },
    /// Does what flows wait for, and looks at everything.
    Look,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Done, with this output.
    Done(i64),
    /// Done, and adds a step of so many jobs.
    Grow(usize),
    /// Fails, and runs again.
    Retry,
    /// Was told to end.
    Cancelled,
    /// Fails for good.
    Dead,
}

/// One or two flows, and what is done to them.
#[derive(Debug, Clone)]
pub(super) struct Game {
    pub(super) flows: Vec<Graph>,
    pub(super) ops: Vec<Op>,
}

pub(super) fn games() -> impl Strategy<Value = Game> {
    let flows = prop::collection::vec(graphs(), 1..3);
    (flows, prop::collection::vec(op(), 1..50)).prop_map(|(flows, ops)| Game { flows, ops })
}

fn op() -> impl Strategy<Value = Op> {
    let pick = any::<u16>;
    prop_oneof![
        8 => (any::<bool>(), 1_usize..7).prop_map(|(store, jobs_max)| Op::Take { store, jobs_max }),
        8 => (any::<bool>(), ends()).prop_map(|(store, ends)| Op::End { store, ends }),
        3 => (ends(), ends()).prop_map(|(one, two)| Op::EndTogether { one, two }),
        1 => (pick(), end()).prop_map(|(pick, end)| Op::Again { pick, end }),
        1 => Just(Op::Lose),
        2 => (any::<bool>(), pick()).prop_map(|(store, pick)| Op::Cancel { store, pick }),
        3 => (any::<bool>(), pick()).prop_map(|(store, pick)| Op::Replay { store, pick }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(store, flow)| Op::Retry { store, flow }),
        2 => (any::<bool>(), any::<bool>(), pick())
            .prop_map(|(store, flow, pick)| Op::Rerun { store, flow, pick }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(store, flow)| Op::CallOff { store, flow }),
        6 => Just(Op::Look),
    ]
}

fn ends() -> impl Strategy<Value = Vec<(u16, End)>> {
    prop::collection::vec((any::<u16>(), end()), 1..5)
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        10 => (0_i64..12).prop_map(End::Done),
        1 => (1_usize..4).prop_map(End::Grow),
        2 => Just(End::Retry),
        1 => Just(End::Cancelled),
        5 => Just(End::Dead),
    ]
}
