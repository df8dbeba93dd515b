//! Plans: what is to be done to many dead letters, written down before it is done.
//!
//! A plan is made of a filter and an act. It names its letters one by one, as they are when it is made; what is applied
//! later is that and nothing else. It refuses to be larger than [`LETTERS_MAX`], and to be applied after its time.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dead::Triage;
use crate::error::{Error, Result};

/// The most letters of one plan.
pub const LETTERS_MAX: usize = 100_000;

/// So many letters are acted on in one transaction.
pub const BATCH_LETTERS: usize = 500;

/// How long a plan may be applied after it was made.
pub const APPLY_WITHIN: Duration = Duration::from_hours(1);

/// How long a plan is kept after its time, if nobody applied it: so long it tells that it is too late.
pub const EXPIRED_KEPT: Duration = Duration::from_hours(24);

/// How long a plan is kept after it was applied: so long it tells what it did, and can be undone.
pub const KEPT_DAYS: u32 = 30;

/// The most plans that are kept; the oldest go first.
pub const PLANS_MAX: usize = 1000;

/// What a plan does to each of its letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlanAct))]
pub enum Act {
    /// Sends it on its way again, with all attempts unspent.
    Replay,
    /// Sets its triage.
    Triage(Triage),
    /// Puts it aside: kept, but out of the way.
    Archive,
    /// Forgets it, with its job, attempts and notes.
    Delete,
}

impl Act {
    /// Refuses an act that no plan can do: a letter is `retrying` because it was replayed, and for nothing else.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Triage(Triage::Retrying) => Err(Error::WordUnknown {
                what: "triage that a plan sets",
                value: Triage::Retrying.word().to_owned(),
                known: "new, investigated, abandoned; `replay` sends letters on their way again",
            }),
            _ => Ok(()),
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::Triage(_) => "triage",
            Self::Archive => "archive",
            Self::Delete => "delete",
        }
    }

    /// Whether what it did can be taken back. A replay only of jobs that have not started since.
    pub fn is_undoable(self) -> bool {
        self != Self::Delete
    }
}

/// Where a plan stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PlanStage))]
pub enum Stage {
    /// It was made, and nothing was done.
    Made,
    /// It is being applied, or was until something stopped it: applying it again goes on.
    Applying,
    /// All of it was done.
    Applied,
    /// It is being undone, or was until something stopped it: undoing it again goes on.
    Undoing,
    /// What could be taken back was.
    Undone,
}

impl Stage {
    /// All stages.
    pub const ALL: [Self; 5] =
        [Self::Made, Self::Applying, Self::Applied, Self::Undoing, Self::Undone];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The stage of a number the store kept.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Undone)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["made", "applying", "applied", "undoing", "undone"][self as usize]
    }
}

/// What became of one letter of a plan, as the store keeps it.
pub mod fate {
    /// Nothing yet.
    pub const WAITS: i16 = 0;
    /// The act was done to it.
    pub const DONE: i16 = 1;
    /// It was left as it is: it had changed since the plan was made, or the act does not fit it.
    pub const PASSED: i16 = 2;
    /// The act was taken back.
    pub const UNDONE: i16 = 3;
    /// The act could not be taken back.
    pub const STAYS: i16 = 4;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_survive_their_numbers() {
        for stage in Stage::ALL {
            assert_eq!(Stage::of_number(stage.number()), stage);
        }
    }

    #[test]
    fn acts_are_written_as_people_write_them() {
        for (act, text) in [
            (Act::Replay, r#""replay""#),
            (Act::Triage(Triage::Abandoned), r#"{"triage":"abandoned"}"#),
            (Act::Archive, r#""archive""#),
            (Act::Delete, r#""delete""#),
        ] {
            assert_eq!(serde_json::to_string(&act).unwrap(), text);
            assert_eq!(serde_json::from_str::<Act>(text).unwrap(), act);
        }
        assert!(Act::Triage(Triage::Retrying).check().is_err());
    }
}
