//! Random sequences of operations, played against a plain in-memory model and against each store.
//!
//! After every operation the answers are compared; at the end every job, every key and a drain of
//! what is left. A failure is shrunk to the shortest sequence that still fails, and its seed is
//! printed: `TIDEMILL_MODEL_SEED=… cargo test -p tidemill-store --test model` plays it again,
//! `TIDEMILL_MODEL_CASES=…` plays more of them.
//!
//! It refuses to test concurrency: one operation at a time, so that there is one right answer.

#[path = "games/play.rs"]
mod games;

mod model {
    mod apply;
    mod compare;
    mod keys;
    mod lines;
    mod memory;
    mod ops;
    mod play;
    mod run;
}
