//! The operations that are played, and how they are drawn.
//!
//! Few queues, tenants, kinds and keys, so that operations meet; picks are numbers that are folded into
//! whatever exists when their turn comes, so that a shrunk sequence still means something.

use proptest::prelude::*;
use proptest::sample::select;
use tidemill_core::{OnDead, OnDuplicate, Priority};

/// How long a key is held in the model, as [`tidemill_core::Scope`] but small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Unfinished,
    Period,
    Forever,
}

/// A job to enqueue.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) queue: u8,
    pub(super) tenant: Option<u8>,
    pub(super) kind: u8,
    pub(super) priority: Priority,
    pub(super) delay_s: u8,
    pub(super) payload: u8,
    pub(super) unique: Option<Key>,
    /// The key of its line, and what it does there when it is dead.
    pub(super) line: Option<(u8, OnDead)>,
}

/// Its unique key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub(super) number: u8,
    pub(super) held: Held,
    pub(super) policy: OnDuplicate,
    pub(super) force: bool,
}

impl Key {
    /// Whether a job may be kept for after the holder.
    fn keeps(self) -> bool {
        matches!(self.policy, OnDuplicate::Debounce | OnDuplicate::RunOnceMore)
    }
}

/// How an attempt ends.
#[derive(Debug, Clone)]
pub(super) enum End {
    Done,
    DoneWith(Wish),
    Retry { delay_s: u8 },
    Snooze { delay_s: u8 },
    Cancelled,
    Dead,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Enqueue(Vec<Wish>),
    /// Sends a job again that was written before.
    Resend {
        pick: u16,
    },
    Claim {
        slot: u8,
        jobs_max: u8,
        queues: u8,
        kind: Option<u8>,
    },
    /// Settles leases that were given out, whether they still hold or not.
    Settle {
        ends: Vec<(u16, End)>,
    },
    Cancel {
        pick: u16,
    },
    RunNow {
        pick: u16,
    },
    Advance {
        seconds: u8,
    },
    Beat {
        slot: u8,
    },
    Deregister {
        slot: u8,
    },
    Rescue,
    Replay {
        pick: u16,
    },
    Purge {
        pick: u16,
    },
    /// Abandons a dead letter.
    GiveUp {
        pick: u16,
    },
}

/// A sequence of about forty.
pub(super) fn sequences() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..60)
}

fn op() -> impl Strategy<Value = Op> {
    let settle =
        prop::collection::vec((any::<u16>(), end()), 1..4).prop_map(|ends| Op::Settle { ends });
    prop_oneof![
        5 => prop::collection::vec(wish(), 1..4).prop_map(Op::Enqueue),
        1 => any::<u16>().prop_map(|pick| Op::Resend { pick }),
        6 => claim(),
        6 => settle,
        2 => any::<u16>().prop_map(|pick| Op::Cancel { pick }),
        1 => any::<u16>().prop_map(|pick| Op::RunNow { pick }),
        3 => (0_u8..12).prop_map(|seconds| Op::Advance { seconds }),
        2 => (0_u8..3).prop_map(|slot| Op::Beat { slot }),
        1 => (0_u8..3).prop_map(|slot| Op::Deregister { slot }),
        3 => Just(Op::Rescue),
        2 => any::<u16>().prop_map(|pick| Op::Replay { pick }),
        2 => any::<u16>().prop_map(|pick| Op::Purge { pick }),
        1 => any::<u16>().prop_map(|pick| Op::GiveUp { pick }),
    ]
}

fn claim() -> impl Strategy<Value = Op> {
    let kind = prop::option::weighted(0.2, 0_u8..2);
    (0_u8..3, 1_u8..5, 1_u8..4, kind).prop_map(|(slot, jobs_max, queues, kind)| Op::Claim {
        slot,
        jobs_max,
        queues,
        kind,
    })
}

fn wish() -> impl Strategy<Value = Wish> {
    let unique = prop::option::weighted(0.7, key());
    let priority = select(vec![Priority::Normal, Priority::High]);
    let delay_s = prop_oneof![3 => Just(0), 1 => 1_u8..20];
    let line = prop::option::weighted(0.4, (0_u8..2, select(OnDead::ALL.to_vec())));
    let place = (0_u8..2, prop::option::weighted(0.4, 0_u8..2));
    (place, 0_u8..2, priority, delay_s, any::<u8>(), unique, line).prop_map(
        |((queue, tenant), kind, priority, delay_s, payload, unique, line)| Wish {
            queue,
            tenant,
            kind,
            priority,
            delay_s,
            payload,
            // When several jobs end in one call, the order in which those kept for afterwards enter
            // their lines is open: none that is kept has one.
            line: line.filter(|_| unique.is_none_or(|key: Key| !key.keeps())),
            unique,
        },
    )
}

fn key() -> impl Strategy<Value = Key> {
    let held = prop_oneof![
        4 => Just(Held::Unfinished),
        1 => Just(Held::Period),
        1 => Just(Held::Forever),
    ];
    (0_u8..2, held, select(OnDuplicate::ALL.to_vec()), prop::bool::weighted(0.1))
        .prop_map(|(number, held, policy, force)| Key { number, held, policy, force })
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        4 => Just(End::Done),
        1 => wish().prop_map(End::DoneWith),
        3 => (0_u8..20).prop_map(|delay_s| End::Retry { delay_s }),
        1 => (0_u8..20).prop_map(|delay_s| End::Snooze { delay_s }),
        1 => Just(End::Cancelled),
        2 => Just(End::Dead),
    ]
}
