//! Why a run is parked: a code for programs, a sentence for people, and the difference if there is one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::job::outcome::clean;
use crate::workflow::talk::Diff;

/// Why a run does not go on before somebody has seen to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Parked {
    /// What is wrong, for programs.
    pub code: ParkCode,
    /// The same in words.
    pub why: String,
    /// How its code differs from its journal, if that is why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<Diff>,
}

/// What parks a run. Its word is a stable code; `docs/errors/` has a page for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ParkCode {
    /// Its code differs from its journal.
    #[serde(rename = "parked_differs")]
    Differs,
    /// Its journal has more entries than it may have.
    #[serde(rename = "parked_journal_full")]
    JournalFull,
    /// An entry of its journal cannot be read, or what stood beside one is gone.
    #[serde(rename = "parked_journal_unreadable")]
    JournalUnreadable,
    /// What is kept of it is encrypted with a key that its worker does not have.
    #[serde(rename = "parked_key_missing")]
    KeyMissing,
    /// Something durable was asked for in the body of a step, or in another task.
    #[serde(rename = "parked_misplaced")]
    Misplaced,
    /// It cannot continue anew as it asked to.
    #[serde(rename = "parked_renewal_refused")]
    RenewalRefused,
    /// A signal that it took is not of the type that its code expects.
    #[serde(rename = "parked_signal_unreadable")]
    SignalUnreadable,
    /// A name, an input or an undo cannot be.
    #[serde(rename = "parked_step_invalid")]
    StepInvalid,
    /// It has more steps to undo than one saga can have.
    #[serde(rename = "parked_undos_too_many")]
    UndosTooMany,
    /// What a step, a scope or the run returned, shows, answers, keeps or gives to a child cannot be kept.
    #[serde(rename = "parked_value_refused")]
    ValueRefused,
    /// What its journal has is not of the type that its code expects.
    #[serde(rename = "parked_value_unreadable")]
    ValueUnreadable,
    /// Its worker says why in words alone, or by a code that is not known here.
    #[serde(rename = "parked_by_worker", other)]
    ByWorker,
}

impl ParkCode {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Differs,
        Self::JournalFull,
        Self::JournalUnreadable,
        Self::KeyMissing,
        Self::Misplaced,
        Self::RenewalRefused,
        Self::SignalUnreadable,
        Self::StepInvalid,
        Self::UndosTooMany,
        Self::ValueRefused,
        Self::ValueUnreadable,
        Self::ByWorker,
    ];

    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Differs => "parked_differs",
            Self::JournalFull => "parked_journal_full",
            Self::JournalUnreadable => "parked_journal_unreadable",
            Self::KeyMissing => "parked_key_missing",
            Self::Misplaced => "parked_misplaced",
            Self::RenewalRefused => "parked_renewal_refused",
            Self::SignalUnreadable => "parked_signal_unreadable",
            Self::StepInvalid => "parked_step_invalid",
            Self::UndosTooMany => "parked_undos_too_many",
            Self::ValueRefused => "parked_value_refused",
            Self::ValueUnreadable => "parked_value_unreadable",
            Self::ByWorker => "parked_by_worker",
        }
    }

    /// Parked for this, which is so.
    pub fn because(self, why: impl Into<String>) -> Parked {
        Parked { code: self, why: clean(why.into()), diff: None }
    }
}

impl Parked {
    /// What a worker elsewhere says of it, if it does.
    pub fn told(code: Option<ParkCode>, why: Option<String>, diff: Option<Diff>) -> Option<Self> {
        match (diff, why) {
            (Some(diff), _) => Some(diff.into()),
            (None, Some(why)) => Some(code.unwrap_or(ParkCode::ByWorker).because(why)),
            (None, None) => None,
        }
    }
}

impl From<Diff> for Parked {
    fn from(Diff { journal, code }: Diff) -> Self {
        let diff = Diff { journal: clean(journal), code: clean(code) };
        Self { diff: Some(diff.clone()), ..ParkCode::Differs.because(diff.to_string()) }
    }
}

/// The sentence alone: whoever shows it shows the code beside it.
impl fmt::Display for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_in_a_sentence_and_kept_as_it_is() {
        let diff = Diff { journal: "a step under \"x\"".into(), code: "ends".into() };
        let parked = Parked::from(diff.clone());
        assert_eq!(parked.to_string(), r#"the journal has a step under "x", but the code ends"#);
        assert_eq!((parked.code, parked.diff.as_ref()), (ParkCode::Differs, Some(&diff)));
        let text = serde_json::to_string(&parked).unwrap();
        assert!(text.starts_with(r#"{"code":"parked_differs","why":"#), "{text}");
        assert_eq!(serde_json::from_str::<Parked>(&text).unwrap(), parked);
    }

    #[test]
    fn codes_are_written_as_they_are_said_and_unknown_ones_are_read() {
        for code in ParkCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.code());
            assert_eq!(serde_json::from_value::<ParkCode>(code.code().into()).unwrap(), code);
        }
        let newer: ParkCode = serde_json::from_str("\"parked_otherwise\"").unwrap();
        assert_eq!(newer, ParkCode::ByWorker);
    }
}
