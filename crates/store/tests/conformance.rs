//! One suite over both stores: every claim of the `Store` trait, with a test that could fail.
//!
//! Each test is a function over a [`conformance::kit::Kit`], which holds an `Arc<dyn Store>` and a
//! clock that moves only when told; `over_both_stores!` makes a test of it for SQLite and one for
//! Postgres. What only one backend has (its plans, its files, its SQL) is tested beside it in
//! `sqlite.rs` and `postgres.rs`, not here.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod conformance {
    #[macro_use]
    pub mod kit;

    mod aside;
    mod audit;
    mod bad_input;
    mod bounds;
    mod cancel;
    mod claim;
    mod credentials;
    mod dead;
    mod dead_filter;
    mod dead_replay;
    mod deadlines;
    mod depth;
    mod duty;
    mod edit;
    mod enqueue;
    mod examine;
    mod flows;
    mod flows_capped;
    mod flows_forgotten;
    mod flows_late;
    mod flows_parts;
    mod flows_race;
    mod flows_rerun;
    mod flows_resume;
    mod flows_spoiled;
    mod flows_taken;
    mod flows_whole;
    mod lane;
    mod limits;
    mod limits_breaker;
    mod limits_budget;
    mod limits_change;
    mod limits_memory;
    mod limits_race;
    mod limits_reach;
    mod limits_shared;
    mod limits_turns;
    mod mailbox;
    mod measure;
    mod migrate;
    mod ordered;
    mod ordered_ends;
    mod ordered_many;
    mod ordered_tenants;
    mod ordered_unique;
    mod plain_sql;
    mod plans;
    mod query;
    mod queues;
    mod rescue;
    mod retention;
    mod run_acts;
    mod run_beside;
    mod run_family;
    mod runs;
    mod sagas;
    mod sagas_back;
    mod schedules;
    mod schedules_written;
    mod settle;
    mod settle_stale;
    mod share;
    mod streams;
    mod survive;
    mod unique;
    mod unique_kept;
    mod unique_many;
    mod unique_within;
    mod watermarks;
    mod webhooks;
}
