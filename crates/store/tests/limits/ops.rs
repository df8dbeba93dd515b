//! The operations that are played, and how they are drawn: few of everything, so that jobs meet at gates.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use tidemill_core::gate::{Lacking, Limit, Per, Rate};
use tidemill_core::{Priority, QueueRules};

/// The queues and patterns that rules are set for.
pub(super) const RULED: [&str; 3] = ["q0", "q1", "*"];
/// Places for workers; those with an even number belong to the first process.
pub(super) const PLACES: u8 = 4;

/// A job to enqueue.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) queue: u8,
    pub(super) kind: u8,
    pub(super) tenant: Option<u8>,
    pub(super) key: Option<u8>,
    pub(super) priority: Priority,
    pub(super) delay_s: u8,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Done,
    Retry {
        delay_s: u8,
    },
    Snooze {
        delay_s: u8,
    },
    /// The other side asked for a pause.
    RateLimited {
        delay_s: u8,
    },
    Cancelled,
    Dead,
}

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Enqueue(Vec<Wish>),
    /// Sets rules, or takes them away. One of the processes may not hear of it at once.
    Set {
        ruled: u8,
        rules: Option<Box<QueueRules>>,
        is_heard: bool,
    },
    /// The same, while a worker of a process that knows the rules before claims.
    SetBeside {
        ruled: u8,
        rules: Option<Box<QueueRules>>,
        place: u8,
        jobs_max: u8,
    },
    /// Both processes look at the rules.
    Learn,
    Claim {
        place: u8,
        jobs_max: u8,
        queues: u8,
        kind: Option<u8>,
    },
    /// A worker of each process claims, at the same moment.
    ClaimBoth {
        jobs_max: u8,
        queues: u8,
    },
    /// A worker takes what it can get, as the engine does it.
    Serve {
        place: u8,
        queues: u8,
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
        ms: u16,
    },
    Beat {
        place: u8,
    },
    /// A worker joins.
    Join {
        place: u8,
    },
    /// One joins while another, of the other process, claims.
    JoinBeside {
        place: u8,
        jobs_max: u8,
    },
    Deregister {
        place: u8,
    },
    /// A worker is killed; it is given up when it has been silent for long enough.
    Kill {
        place: u8,
    },
    Rescue,
}

impl Op {
    /// For people: of rules, what this game knows.
    pub(super) fn show(&self) -> String {
        let (named, set, how) = match self {
            Self::Set { ruled, rules, is_heard } => (ruled, rules, format!("heard {is_heard}")),
            Self::SetBeside { ruled, rules, place, jobs_max } => {
                (ruled, rules, format!("beside a claim of {jobs_max} at {place}"))
            }
            other => return format!("{other:?}"),
        };
        let set = set.as_deref().map(|rules| {
            let QueueRules { paused, concurrency, rate, hold, limits, .. } = rules;
            format!("paused {paused}, {concurrency:?} {rate:?} {hold:?} {limits:?}")
        });
        let name = RULED[usize::from(*named)];
        format!("Set {name}, {how}: {}", set.unwrap_or_else(|| "nothing".into()))
    }
}

/// What is played.
#[derive(Debug, Clone)]
pub(super) struct Game {
    pub(super) ops: Vec<Op>,
    /// At the end all rules are taken away; else everybody gets through under them.
    pub(super) is_lifted: bool,
}

pub(super) fn games() -> impl Strategy<Value = Game> {
    // Without any limit there is nothing to see.
    let first = (0_u8..3, rules()).prop_map(|(ruled, rules)| Op::Set {
        ruled,
        rules: Some(Box::new(rules)),
        is_heard: true,
    });
    let others = prop::collection::vec(op(), 10..70);
    (first, others, any::<bool>()).prop_map(|(first, others, is_lifted)| {
        let ops = std::iter::once(first).chain(others).collect();
        Game { ops, is_lifted }
    })
}

fn op() -> impl Strategy<Value = Op> {
    let settle =
        prop::collection::vec((any::<u16>(), end()), 1..5).prop_map(|ends| Op::Settle { ends });
    let set = (0_u8..3, prop::option::weighted(0.8, rules()), prop::bool::weighted(0.8));
    let set = set.prop_map(|(ruled, rules, is_heard)| Op::Set {
        ruled,
        rules: rules.map(Box::new),
        is_heard,
    });
    let beside = (0_u8..3, prop::option::weighted(0.8, rules()), 0..PLACES, 1_u8..5);
    let beside = beside.prop_map(|(ruled, rules, place, jobs_max)| Op::SetBeside {
        ruled,
        rules: rules.map(Box::new),
        place,
        jobs_max,
    });
    let kind = prop::option::weighted(0.2, 0_u8..2);
    let claim = (0..PLACES, 1_u8..5, 1_u8..4, kind);
    prop_oneof![
        8 => prop::collection::vec(wish(), 1..6).prop_map(Op::Enqueue),
        3 => set,
        1 => beside,
        1 => Just(Op::Learn),
        6 => claim.prop_map(|(place, jobs_max, queues, kind)| Op::Claim { place, jobs_max, queues, kind }),
        3 => (1_u8..5, 1_u8..4).prop_map(|(jobs_max, queues)| Op::ClaimBoth { jobs_max, queues }),
        5 => (0..PLACES, 1_u8..4).prop_map(|(place, queues)| Op::Serve { place, queues }),
        9 => settle,
        2 => any::<u16>().prop_map(|pick| Op::Cancel { pick }),
        1 => any::<u16>().prop_map(|pick| Op::RunNow { pick }),
        5 => (0_u16..4000).prop_map(|ms| Op::Advance { ms }),
        3 => (0..PLACES).prop_map(|place| Op::Beat { place }),
        1 => (0..PLACES).prop_map(|place| Op::Join { place }),
        2 => (0..PLACES, 1_u8..5).prop_map(|(place, jobs_max)| Op::JoinBeside { place, jobs_max }),
        2 => (0..PLACES).prop_map(|place| Op::Deregister { place }),
        1 => (0..PLACES).prop_map(|place| Op::Kill { place }),
        2 => Just(Op::Rescue),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    let one_of_two = || prop::option::weighted(0.7, 0_u8..2);
    let priority = select(vec![Priority::Normal, Priority::High]);
    let delay_s = prop_oneof![4 => Just(0), 1 => 1_u8..6];
    (0_u8..2, 0_u8..2, one_of_two(), one_of_two(), priority, delay_s).prop_map(
        |(queue, kind, tenant, key, priority, delay_s)| Wish {
            queue,
            kind,
            tenant,
            key,
            priority,
            delay_s,
        },
    )
}

fn rules() -> impl Strategy<Value = QueueRules> {
    let limits = prop::collection::btree_map("[ab]", limit(), 0..3);
    let hold = prop::option::weighted(0.3, per());
    let at_once = prop::option::weighted(0.4, most());
    (prop::bool::weighted(0.1), at_once, prop::option::weighted(0.25, rate()), hold, limits)
        .prop_map(|(paused, concurrency, rate, hold, limits): (_, _, _, _, BTreeMap<_, _>)| {
            QueueRules { paused, concurrency, rate, hold, limits, ..QueueRules::default() }
        })
}

fn limit() -> impl Strategy<Value = Limit> {
    let kind = prop::option::weighted(0.4, (0_u8..2).prop_map(|kind| format!("k{kind}")));
    let bounds = prop_oneof![
        5 => most().prop_map(|most| (Some(most), None, false)),
        2 => rate().prop_map(|rate| (None, Some(rate), false)),
        2 => (most(), rate(), any::<bool>()).prop_map(|(most, rate, hold)| (Some(most), Some(rate), hold)),
        1 => Just((None, None, true)),
    ];
    (kind, per(), bounds).prop_map(|(kind, per, (concurrency, rate, hold))| Limit {
        kind,
        per,
        lacking: Lacking::Pass,
        concurrency,
        rate,
        hold,
        breaker: None,
    })
}

/// Few; or as many as some workers together may hold, and others not.
fn most() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1_u32..3, 2 => 3_u32..14]
}

fn per() -> impl Strategy<Value = Per> {
    select(vec![Per::All, Per::Tenant, Per::Key, Per::Key])
}

fn rate() -> impl Strategy<Value = Rate> {
    (1_u32..4, 500_u64..3000, 1_u32..4).prop_map(|(jobs, per_ms, burst)| Rate {
        jobs,
        per_ms,
        burst,
    })
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        6 => Just(End::Done),
        2 => (0_u8..4).prop_map(|delay_s| End::Retry { delay_s }),
        1 => (0_u8..4).prop_map(|delay_s| End::Snooze { delay_s }),
        2 => (1_u8..6).prop_map(|delay_s| End::RateLimited { delay_s }),
        1 => Just(End::Cancelled),
        1 => Just(End::Dead),
    ]
}
