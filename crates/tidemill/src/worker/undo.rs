//! What a job gets that undoes a step of a saga.

use serde::{Deserialize, Serialize};

/// The payload of a job that undoes a step: what the step's declaration gives it, and what became of the step.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tidemill::{Job, Outcome, Undo};
///
/// #[derive(Serialize, Deserialize)]
/// struct CancelHotel(Undo<u64, String>); // a booking's number, and what the hotel answered
///
/// impl Job for CancelHotel {
///     const KIND: &'static str = "cancel_hotel";
///     type Output = ();
/// }
///
/// let told = r#"{"step":"hotel","outcome":"unknown","payload":42,"output":null}"#;
/// let CancelHotel(undo) = serde_json::from_str(told).unwrap();
/// assert_eq!((undo.payload, undo.outcome, undo.output), (42, Outcome::Unknown, None));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo<P, O = serde_json::Value> {
    /// The step that is undone.
    pub step: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What its declaration gives.
    pub payload: P,
    /// What it returned, if it is done.
    pub output: Option<O>,
}

/// What became of a step that is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It started, and nobody knows whether it took effect: its worker was lost, it ran out of time, or it was called
    /// off in its middle. Undo what is there, and do not mind if nothing is.
    Unknown,
}
