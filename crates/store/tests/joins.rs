//! Random flows and random histories, played against a naive oracle and against each store.
//!
//! The oracle keeps what became of every job, and from that alone says anew, each time it is asked, where every
//! step and every flow must stand. After every look it is held against the store: states, counts, who may start,
//! and at the end that nothing is forgotten. A failure is shrunk, and its seed is printed:
//! `TIDEMILL_MODEL_SEED=… cargo test -p tidemill-store --test joins` plays it again, `TIDEMILL_MODEL_CASES=…`
//! plays more of them.
//!
//! Two stores on one database take turns, and sometimes settle at the same moment. It refuses to judge what
//! depends on the clock: late joins and late flows have tests of their own.

#[path = "games/play.rs"]
mod games;

mod joins {
    mod compare;
    mod graph;
    mod ops;
    mod oracle;
    mod play;
    mod run;
}
