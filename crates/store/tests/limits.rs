//! Random rules and random histories, played against a naive oracle of the limits in `docs/limits.md` and each store.
//!
//! The oracle counts what runs, by the gates of the rules under which it was claimed, and keeps when it started. After
//! each operation it is held against the store: nobody started who had to wait, no permit is leaked, no rate exceeded;
//! and whenever a worker is served as the engine serves it, whoever may start is found. At the end everybody gets
//! through, under the limits or once they are lifted. A failure is shrunk, and its seed is printed:
//! `TIDEMILL_MODEL_SEED=… cargo test -p tidemill-store --test limits` plays it again, `TIDEMILL_MODEL_CASES=…` plays
//! more of them.
//!
//! Two stores on one database take turns, sometimes claim at the same moment, and sometimes one of them does not know
//! the latest rules. It refuses to judge breakers and retry budgets, which have tests of their own, and who of several
//! that may start comes first.

#[path = "games/play.rs"]
mod games;

mod limits {
    mod compare;
    mod ops;
    mod oracle;
    mod play;
    mod run;
    mod serve;
}
