//! Encrypted values as they stand in the database, for whoever changes keys: read and replaced as they are.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use uuid::Uuid;

use crate::error::Result;

/// What there is for a place, by its word: its statements, one that reads and one that replaces.
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

    fn word(self) -> &'static str {
        macro_rules! word {
            ($place:literal) => {
                $place
            };
        }
        statements!(word, self)
    }
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
            Place::Objects => "\u{1f}\u{1f}".to_owned(),
            _ => Uuid::nil().to_string(),
        };
        Self { id, number: -1 }
    }
}

/// How far a walk over all places has come: what follows is behind this row. The default is before everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// The place.
    pub place: Place,
    /// The row.
    pub after: RowKey,
}

impl Spot {
    fn before(place: Place) -> Self {
        Self { place, after: RowKey::first(place) }
    }

    /// Before the place that follows; `None` behind the last one.
    pub fn next_place(&self) -> Option<Self> {
        let at = Place::ALL.iter().position(|place| *place == self.place)?;
        Place::ALL.get(at + 1).copied().map(Self::before)
    }
}

impl Default for Spot {
    fn default() -> Self {
        Self::before(Place::ALL[0])
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowKey { id, number } = &self.after;
        write!(f, "{}/{number}/{id}", self.place.word())
    }
}

impl FromStr for Spot {
    type Err = tidemill_core::Error;

    /// Only what a walk can have come to: a database would fail at an id that is none.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let spot = || {
            let (place, rest) = text.split_once('/')?;
            let (number, id) = rest.split_once('/')?;
            let place = Place::ALL.into_iter().find(|known| known.word() == place)?;
            let id = match place {
                Place::RunActs => id.is_empty().then(String::new),
                Place::Schedules => (!id.contains('\0')).then(|| id.to_owned()),
                // Queue, tenant and key.
                Place::Objects => {
                    let parts = id.split('\u{1f}').count();
                    (parts == 3 && !id.contains('\0')).then(|| id.to_owned())
                }
                _ => Uuid::from_str(id).ok().map(|id| id.to_string()),
            };
            Some(Self { place, after: RowKey { id: id?, number: number.parse().ok()? } })
        };
        spot().ok_or_else(|| tidemill_core::Error::WordUnknown {
            what: "spot of a walk",
            value: text.to_owned(),
            known: "PLACE/NUMBER/ID, as the walk before says it",
        })
    }
}

/// Texts of a row, encrypted as they are kept.
pub type Texts = [Option<String>; 2];

/// A row that may hold encrypted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueRow {
    /// Where it stands.
    pub key: RowKey,
    /// Its texts, if one of them is encrypted.
    pub texts: Texts,
}

impl ValueRow {
    /// Whether it holds something encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.texts.iter().any(Option::is_some)
    }
}

/// Values as they are kept.
#[async_trait]
pub trait Values {
    /// Rows of a place after this one, in order; at most `limit`, so that the time it takes has a bound, however few
    /// of them hold encrypted values.
    async fn values(
        &self,
        place: Place,
        after: Option<&RowKey>,
        limit: usize,
    ) -> Result<Vec<ValueRow>>;

    /// Replaces texts of rows, each only if they still are what was read. Answers how many were replaced.
    async fn replace_values(&self, place: Place, rows: Vec<(ValueRow, Texts)>) -> Result<u64>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_is_read_as_it_was_written_and_nothing_else_is_one() {
        let mut spot = Some(Spot::default());
        let mut places = 0;
        while let Some(before) = spot {
            assert_eq!(before.to_string().parse::<Spot>().unwrap(), before);
            (spot, places) = (before.next_place(), places + 1);
        }
        assert_eq!(places, Place::ALL.len());
        let object = RowKey { id: "cart/eu\u{1f}acme\u{1f}a/b".into(), number: 0 };
        let object = Spot { place: Place::Objects, after: object };
        assert_eq!(object.to_string().parse::<Spot>().unwrap(), object);
        // As SQLite writes ids, and as all take them.
        let short: Spot = "jobs/0/018f3a2e7c117bbb80005fd1e2a0c0de".parse().unwrap();
        assert_eq!(short.after.id, "018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de");
        for wrong in [
            "",
            "jobs",
            "jobs/0",
            "jobs/0/x",
            "jobs/x/018f3a2e7c117bbb80005fd1e2a0c0de",
            "nowhere/0/018f3a2e7c117bbb80005fd1e2a0c0de",
            "schedules/0/a\0",
            "objects/0/no key",
            "objects/0/no\u{1f}tenant",
            "run_acts/1/x",
        ] {
            assert!(wrong.parse::<Spot>().is_err(), "{wrong:?}");
        }
    }
}
