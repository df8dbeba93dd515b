//! Runs of workflows: their journals and their mail.

mod act;
mod append;
mod debt;
mod fork;
mod mail;
mod verbs;
mod view;

pub(super) use act::{acts, change};
pub(super) use append::{append, keep_object, seal, write};
pub(super) use debt::{children, debts, pay, undo};
pub(super) use mail::{ended, mail, reply, signal, wait};
pub(super) use view::{forget, is_undone, journal, list, object, value};
