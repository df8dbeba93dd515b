//! The seven states of a job.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Where a job stands. The last three are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum State {
    /// Waits for another job or a signal.
    Blocked,
    /// Waits for the clock.
    Scheduled,
    /// Waits for a free slot.
    Ready,
    /// A worker has it.
    Running,
    /// Finished well.
    Done,
    /// Called off.
    Cancelled,
    /// Gave up; a dead letter.
    Dead,
}

impl State {
    /// All states, in the order a job goes through them.
    pub const ALL: [Self; 7] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Ready,
        Self::Running,
        Self::Done,
        Self::Cancelled,
        Self::Dead,
    ];

    /// Whether nothing but an operator's act leaves it.
    pub fn is_final(self) -> bool {
        self >= Self::Done
    }

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The state of a number the store kept.
    pub fn of_number(number: i16) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["blocked", "scheduled", "ready", "running", "done", "cancelled", "dead"][self as usize]
    }
}

impl std::str::FromStr for State {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|s| s.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "state",
            value: word.to_owned(),
            known: "blocked, scheduled, ready, running, done, cancelled, dead",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_their_words_and_numbers() {
        for state in State::ALL {
            assert_eq!(state.word().parse(), Ok(state));
            assert_eq!(State::of_number(state.number()), Some(state));
        }
        assert_eq!(State::of_number(-1), None);
        assert_eq!(State::of_number(7), None);
    }

    #[test]
    fn three_states_are_final() {
        let finals: Vec<_> = State::ALL.into_iter().filter(|s| s.is_final()).collect();
        assert_eq!(finals, [State::Done, State::Cancelled, State::Dead]);
    }
}
