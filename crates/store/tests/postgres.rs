//! What only the Postgres backend has: its statements and their plans, answers that get lost on the
//! way, poolers, transactions that commit late, and races between its row locks.
//!
//! What both stores promise is tested in `conformance.rs`.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod postgres {
    pub mod kit;

    mod claimer;
    mod deadlock;
    mod dial;
    mod flow_lacking;
    mod flow_lock;
    mod gates;
    mod late_commit;
    mod lost_answer;
    mod moved;
    mod open_transaction;
    mod outage;
    mod parted;
    mod plan;
    mod pooler;
    mod proxy;
    mod race;
    mod rates;
    mod renewal;
    mod schema;
    mod short_claim;
    mod tls;
    mod turns;
}
