//! The local queue: every promise of `docs/local.md`, with a test that could fail.
//!
//! Time is tokio's paused clock and tasks end when a test lets them, so nothing here depends on how
//! fast the machine is. `stress` alone runs on real threads, and asserts only what holds at any speed.

#![expect(clippy::unwrap_used, reason = "a test has no use for the error")]

mod local {
    pub mod kit;

    mod cancel;
    mod failure;
    mod limits;
    mod model;
    mod order;
    mod room;
    mod stop;
    mod stress;
}
