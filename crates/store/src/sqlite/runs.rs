//! Runs of workflows: their journals and their mail.

mod append;
mod mail;
mod view;

pub(super) use append::{append, seal, write};
pub(super) use mail::{ended, mail, signal, wait};
pub(super) use view::{change, debts, forget, journal, list, paid};
