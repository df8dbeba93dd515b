//! Flows: written whole, and carried on in the transaction in which jobs of them end.
//!
//! Whatever ends a job notes its flow in the turn's news; before the turn is over, the flow is carried on
//! (`advance.rs`): what has ended is counted, joins are decided by the rule in `core`, and steps are opened.

mod act;
mod advance;
mod rerun;
mod rows;
mod saga;
mod tend;
mod view;
mod write;

pub(super) use act::{begin, change};
pub(super) use advance::advance;
pub(super) use tend::tend;
pub(super) use view::{flow, inputs, list, outputs};
pub(super) use write::{add, grow, start};
