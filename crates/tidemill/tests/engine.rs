//! The engine and the worker, over both stores: every promise of the library, with a test that
//! could fail.
//!
//! Each test is a function over a [`engine::kit::Kit`]; `over_both_stores!` makes one test of it for
//! SQLite and one for Postgres. What needs a server of its own is in `outage` and `bouncer`.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod engine {
    #[macro_use]
    pub mod kit;

    mod bouncer;
    mod cancel;
    mod credentials;
    mod credit;
    mod dead;
    mod deadline;
    mod depth;
    pub mod depth_kills;
    mod dropped;
    pub mod effect_kills;
    mod encryption;
    mod enqueue;
    mod flow;
    pub mod flow_kills;
    mod follow_up;
    mod handler;
    mod helpers;
    mod hidden;
    pub mod join_processes;
    mod lacking;
    pub mod limit_kills;
    mod limits;
    mod limits_lacking;
    mod looks_encrypted;
    mod middleware;
    mod ordered;
    mod outage;
    mod outcome;
    pub mod pace_kills;
    pub mod processes;
    mod read_only;
    mod refused;
    mod replay;
    mod result;
    mod retention;
    pub mod saga_kills;
    pub mod saga_worker_kills;
    mod schedule;
    pub mod schedule_kills;
    mod schedule_passes;
    mod schedule_past;
    mod settles;
    mod share;
    mod stop;
    mod streams;
    mod two_workers;
    mod webhook_passes;
    mod why;
    mod why_limits;
    mod why_queue;
    mod why_turns;
    mod work;
    mod workflow;
    mod workflow_acts;
    mod workflow_again;
    mod workflow_changes;
    mod workflow_crash;
    mod workflow_family;
    mod workflow_keys;
    pub mod workflow_kills;
    mod workflow_once;
    mod workflow_parks;
    mod workflow_scopes;
    mod workflow_signals;
    mod workflow_state;
    mod workflow_talk;
    mod workflow_together;
    mod workflow_turns;
}

/// Not a test of its own: what the processes run that `processes` starts.
#[test]
fn role() {
    engine::processes::run();
    engine::join_processes::run();
    engine::depth_kills::run();
    engine::effect_kills::run();
    engine::flow_kills::run();
    engine::limit_kills::run();
    engine::pace_kills::run();
    engine::saga_kills::run();
    engine::saga_worker_kills::run();
    engine::schedule_kills::run();
    engine::workflow_kills::run();
}
