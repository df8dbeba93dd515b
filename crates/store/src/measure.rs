//! What a store measures: its way to the database in this process, and the health of the database.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidemill_core::depth::Sample;
use tidemill_core::flow::FlowState;
use tidemill_core::measure::Seen;

use crate::error::Result;

/// What this process has measured on its way to the database.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// How many operations went together in one commit, by what brought them together.
    pub batches: Vec<(&'static str, Seen)>,
    /// How long was waited, in microseconds, by what was waited for.
    pub waits: Vec<(&'static str, Seen)>,
    /// How long commits took, in microseconds, where this process makes them itself.
    pub commits: Option<Seen>,
    /// Connections of the pool by state, where there is one.
    pub connections: Vec<(&'static str, u64)>,
}

/// How many flows are kept in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowCount {
    /// The state.
    pub state: FlowState,
    /// Whether they are sagas.
    pub is_saga: bool,
    /// How many.
    pub flows: u64,
}

/// What came into a queue and went out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Passed {
    /// The queue.
    pub queue: String,
    /// Until now.
    pub now: Sample,
    /// Until about a minute ago, or as long as is known.
    pub before: Option<Sample>,
    /// Jobs that came and were dropped until now, to make room for newer ones. They are in neither of the other
    /// numbers, so what came in can be less than it was, and never this and that together.
    #[serde(default)]
    pub dropped: u64,
}

/// A figure of the database's health.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What it is: a stable word of this store, with its unit.
    pub name: &'static str,
    /// Of which table, if it is of one.
    pub table: Option<&'static str>,
    /// How much.
    pub value: f64,
}

impl Figure {
    /// A figure of the whole database.
    pub(crate) fn new(name: &'static str, value: f64) -> Self {
        Self { name, table: None, value }
    }
}

/// The part of a store that is measured.
#[async_trait]
pub trait Measured {
    /// What this process has measured so far. Costs nothing but reading it.
    fn way(&self) -> Way;

    /// The health of the database, in numbers. Its cost does not grow with the jobs.
    async fn figures(&self) -> Result<Vec<Figure>>;

    /// What came into all queues and went out of them, by their counters. Its cost grows with their number alone.
    async fn passed(&self) -> Result<Vec<Passed>>;

    /// How many flows are kept, by state. Its cost grows with them.
    async fn count_flows(&self) -> Result<Vec<FlowCount>>;
}
