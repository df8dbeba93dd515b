//! Flows: written whole, and carried on in the transaction in which jobs of them end.
//!
//! Whatever ends a job notes its flow in the turn's news; before the turn is over, the flow is carried on: what has
//! ended is counted, joins are decided and steps are opened, where it is plain by a few statements (`plain.rs`), else
//! by the rule in `core` (`advance.rs`).

mod act;
mod advance;
mod again;
mod forget;
mod grow;
mod part;
mod plain;
mod rerun;
mod rows;
mod saga;
mod tend;
mod verbs;
mod view;
mod write;

pub(super) use act::{begin_if_room, change};
pub(super) use grow::Growth;
pub(super) use part::add;
pub(super) use plain::carry_on;
pub(super) use tend::tend;
pub(super) use view::{flow, inputs, list, outputs, places};
pub(super) use write::start;
