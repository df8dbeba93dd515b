//! Random changes, ticks and clocks, played against a naive oracle of the rules in `docs/schedules.md` and each store.
//!
//! A tick is two operations: a look at a schedule and, later, the firing of what came of it. So two processes tick in
//! any interleaving, with changes, pauses, runs that are asked for and jumps of the clock in between. The oracle keeps
//! slots as multiples of an interval, and says of each what must become of it. After each operation schedules and their
//! histories are held against it; no slot fires twice, and none is lost. A failure is shrunk, and its seed is printed:
//! `TIDEMILL_MODEL_SEED=… cargo test -p tidemill-store --test schedules` plays it again, `TIDEMILL_MODEL_CASES=…` plays
//! more of them.
//!
//! It refuses to judge zones and cron expressions: `core` has an oracle of its own for them.

#[path = "games/play.rs"]
mod games;

mod schedules {
    mod ops;
    mod oracle;
    mod play;
    mod run;
}
