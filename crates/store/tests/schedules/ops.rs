//! The operations that are played, and how they are drawn.

use proptest::prelude::*;
use proptest::sample::select;
use tidemill_core::schedule::{Missed, Overlap};

/// What a schedule is set to, as far as it is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) every_s: i64,
    pub(super) missed: Missed,
    pub(super) overlap: Overlap,
}

/// One operation. `process` is whose store it goes by, `name` which of two schedules is meant.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Set {
        name: usize,
        wish: Wish,
    },
    Pause {
        name: usize,
    },
    Resume {
        name: usize,
    },
    Delete {
        name: usize,
    },
    /// A process looks at a schedule, and plans what it would fire.
    Look {
        process: usize,
        name: usize,
    },
    /// It fires what it planned, however much has changed since.
    Fire {
        process: usize,
    },
    /// Both fire what they planned, at the same moment.
    FireBoth,
    RunNow {
        name: usize,
    },
    /// Fires the slots of the last so many seconds that have not fired, or all of them.
    Backfill {
        name: usize,
        back_s: i64,
        again: bool,
    },
    /// Some jobs start.
    Claim {
        jobs_max: usize,
    },
    /// One that runs ends.
    End {
        pick: u16,
    },
    Forward {
        seconds: i64,
    },
    Backward {
        seconds: i64,
    },
}

pub(super) fn games() -> impl Strategy<Value = Vec<Op>> {
    let first = (0..2_usize, wish()).prop_map(|(name, wish)| Op::Set { name, wish });
    (first, prop::collection::vec(op(), 10..80))
        .prop_map(|(first, others)| std::iter::once(first).chain(others).collect())
}

fn op() -> impl Strategy<Value = Op> {
    let name = || prop_oneof![3 => Just(0_usize), 1 => Just(1_usize)];
    prop_oneof![
        3 => (name(), wish()).prop_map(|(name, wish)| Op::Set { name, wish }),
        1 => name().prop_map(|name| Op::Pause { name }),
        2 => name().prop_map(|name| Op::Resume { name }),
        1 => name().prop_map(|name| Op::Delete { name }),
        12 => (0..2_usize, name()).prop_map(|(process, name)| Op::Look { process, name }),
        10 => (0..2_usize).prop_map(|process| Op::Fire { process }),
        4 => Just(Op::FireBoth),
        1 => name().prop_map(|name| Op::RunNow { name }),
        2 => (name(), 1..400_i64, prop::bool::weighted(0.2))
            .prop_map(|(name, back_s, again)| Op::Backfill { name, back_s, again }),
        3 => (1..4_usize).prop_map(|jobs_max| Op::Claim { jobs_max }),
        4 => any::<u16>().prop_map(|pick| Op::End { pick }),
        9 => (0..200_i64).prop_map(|seconds| Op::Forward { seconds }),
        2 => (0..200_i64).prop_map(|seconds| Op::Backward { seconds }),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let missed = select(vec![Missed::Skip, Missed::Last, Missed::All(2), Missed::All(100)]);
    (select(vec![30_i64, 45, 60]), missed, select(Overlap::ALL.to_vec()))
        .prop_map(|(every_s, missed, overlap)| Wish { every_s, missed, overlap })
}
