//! Workflows: jobs that keep a journal.
//!
//! A handler that uses its context durably is run from its beginning at every attempt. What it did before is in its
//! journal: a step that ended is not run again, it returns what it returned. [`entry`] says what a journal holds,
//! [`replay`] leads the code through it and decides what may happen next. They know nothing of tasks, clocks or SQL,
//! so every language can speak the same protocol.

pub mod amend;
pub mod entry;
pub mod fork;
pub mod key;
pub mod mail;
pub mod object;
pub mod park;
pub mod replay;
mod scope;
pub mod talk;
pub mod undo;

use jiff::Timestamp;

pub use amend::{ActWord, Amend, Amendment};
pub use entry::{Began, ChildEnd, Ending, Entry, Outputs, StepUndo, put_outputs_back};
pub use fork::{Forked, Origin, drawn_from, fork};
pub use key::{Keys, draw, hash, whole_key};
pub use mail::{Content, Mail, Mailbox};
pub use object::ObjectKey;
pub use park::{ParkCode, Parked};
pub use replay::{Left, Replay, Writes};
pub use talk::{Answer, Ask, Diff, Rest, Waits};
pub use undo::{Undoing, orphans, undos};

/// When a run is due that waits for nothing the clock could bring: in the year 9999, on the second day.
pub const NEVER: Timestamp = Timestamp::constant(253_370_851_200, 0);

/// Whether this stands for never. A database that counts on from now may miss it by a few microseconds.
pub fn is_never(due: Timestamp) -> bool {
    due.as_second() >= NEVER.as_second() - 86_400
}

/// Entries of one journal, at most. What a scope has ended with stands for all that was in it.
pub const JOURNAL_ENTRIES_MAX: u32 = 100_000;
/// What an operator may let the journal of one run have, at most: all of it is read at every attempt.
pub const JOURNAL_ENTRIES_LAST: u32 = 1_000_000;
/// Bytes of one entry, at most.
pub const ENTRY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a step returned stands beside its entry from so many bytes on, so that a journal is read quickly.
pub const ASIDE_BYTES_MIN: usize = 64 * 1024;
/// What children returned is written with the ends of so many of them as make so many bytes; one at least.
pub const JOINED_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a step may return.
pub const VALUE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Steps of one run that can be undone, at most, unless it has come past its pivot: they are the steps of one saga.
pub const UNDOS_MAX: usize = crate::flow::SAGA_STEPS_MAX - 1;
/// Children that one call starts, at most.
pub const CHILDREN_MAX: usize = 10_000;
/// The longest name of a step, a signal or a scope.
pub const STEP_NAME_BYTES_MAX: usize = 200;
