//! Crash tests: real processes, killed, frozen, asked to leave and started again, on both stores.
//!
//! The test binary starts itself again as workers and producers (`role`). A nemesis, seeded, kills
//! them, and on Postgres the server as well, while all of them write down what they did in
//! append-only files. After the last fault healthy workers drain what is left, and what the store
//! says is held against the files: nothing lost, nothing unknown, every job one outcome. That the
//! rules it is held against can be broken, and are then named, is shown by `planted`.
//!
//! `TIDEMILL_SEED=N` repeats a run's faults; `TIDEMILL_TORTURE_MINUTES=N` runs that long per store.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod crash {
    pub mod check;
    pub mod field;
    pub mod history;
    pub mod nemesis;
    mod planted;
    pub mod poison;
    pub mod producer;
    pub mod role;
    pub mod transaction;
    pub mod verdict;
    pub mod voyage;
    pub mod voyages;
    pub mod work;
    pub mod worker;
    pub mod zombie;
}

use crash::field::Database;
use crash::{nemesis, poison, role, voyages};

/// Not a test of its own: what the processes run that the others start.
#[test]
fn role() {
    role::run();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_lost_on_sqlite() {
    nemesis::torture(Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_is_lost_on_postgres() {
    nemesis::torture(Database::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_that_kills_three_workers_is_dead_on_sqlite() {
    poison::kills_three_workers(Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_that_kills_three_workers_is_dead_on_postgres() {
    poison::kills_three_workers(Database::postgres()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn workflows_survive_kills_and_freezes_on_sqlite() {
    voyages::sail(Database::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn workflows_survive_kills_and_freezes_on_postgres() {
    voyages::sail(Database::postgres()).await;
}
