//! Random sagas and random histories, played against a naive oracle of the rules in `docs/sagas.md` and each store.
//!
//! The oracle keeps what became of every job, and says from that where every step, every undo and the saga must stand,
//! what is undone, in which order, and what the undo is told. A failure is shrunk, and its seed is printed:
//! `TIDEMILL_MODEL_SEED=… cargo test -p tidemill-store --test sagas` plays it again, `TIDEMILL_MODEL_CASES=…` plays
//! more.
//!
//! It refuses to judge what depends on the clock, and what flows have in common with sagas: `joins` does that.

#[path = "games/play.rs"]
mod games;

mod sagas {
    mod graph;
    mod oracle;
    mod play;
    mod run;
}
