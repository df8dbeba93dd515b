//! Encrypted values as they stand in the database, for whoever changes keys: read and replaced as they are.

use async_trait::async_trait;

use crate::error::Result;

/// A table that holds encrypted values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// What schedules make.
    Schedules,
    /// How steps of flows are undone.
    Undos,
    /// Payloads of jobs.
    Jobs,
    /// What callers decided in transactions of their own.
    Decided,
    /// Outputs of jobs.
    Outcomes,
    /// What runs show of themselves.
    Runs,
    /// Journals of runs.
    Journals,
    /// What came for runs.
    Mail,
    /// What was done to runs.
    RunActs,
    /// Objects.
    Objects,
    /// Streams.
    Streams,
}

impl Place {
    /// All of them: what a value may be moved from stands before what it may be moved to.
    pub const ALL: [Self; 11] = [
        Self::Schedules,
        Self::Undos,
        Self::Jobs,
        Self::Decided,
        Self::Outcomes,
        Self::Runs,
        Self::Journals,
        Self::Mail,
        Self::RunActs,
        Self::Objects,
        Self::Streams,
    ];
}

/// Where a row stands in its table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// Its id or name.
    pub id: String,
    /// Its number, if it has one.
    pub number: i64,
}

impl RowKey {
    /// Before all rows of a place.
    pub(crate) fn first(place: Place) -> Self {
        let id = match place {
            Place::Schedules | Place::RunActs => String::new(),
            Place::Objects => '\u{1f}'.to_string(),
            _ => uuid::Uuid::nil().to_string(),
        };
        Self { id, number: -1 }
    }
}

/// Texts of a row, encrypted as they are kept.
pub type Texts = [Option<String>; 2];

/// A row that holds encrypted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRow {
    /// Where it stands.
    pub key: RowKey,
    /// Its texts.
    pub texts: Texts,
}

/// Values as they are kept.
#[async_trait]
pub trait Values {
    /// Rows of a place that hold encrypted values, after this one, in order; at most `limit`.
    async fn values(
        &self,
        place: Place,
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<ValueRow>>;

    /// Replaces texts of rows, each only if they still are what was read. Answers how many were replaced.
    async fn replace_values(&self, place: Place, rows: Vec<(ValueRow, Texts)>) -> Result<u64>;
}

/// The statements of a place: one that reads, one that replaces.
macro_rules! statements {
    ($sql:ident, $place:expr) => {
        match $place {
            Place::Schedules => $sql!("schedules"),
            Place::Undos => $sql!("undos"),
            Place::Jobs => $sql!("jobs"),
            Place::Decided => $sql!("decided"),
            Place::Outcomes => $sql!("outcomes"),
            Place::Runs => $sql!("runs"),
            Place::Journals => $sql!("journals"),
            Place::Mail => $sql!("mail"),
            Place::RunActs => $sql!("run_acts"),
            Place::Objects => $sql!("objects"),
            Place::Streams => $sql!("streams"),
        }
    };
}
pub(crate) use statements;
