//! Runs of workflows: their journals and their mail.
//!
//! A write to a journal is one statement that proves its lease; calls that come while one is under way share the
//! next. Locks are taken in this order: flows, runs, unique keys, lines, sheaves and leases.

mod act;
mod append;
mod beside;
mod debt;
mod family;
mod fork;
mod mail;
mod verbs;
mod view;

pub(crate) use act::{acts, change};
pub(crate) use append::{Appends, append, seal};
pub(crate) use beside::{Beside, write_with};
pub(crate) use debt::{children, debts, pay, undo};
pub(crate) use family::keep_for_after;
pub(crate) use mail::{Locked, News, ends, locked, mail, reply, signal, wait};
pub(crate) use view::{journal, list, object, value};
