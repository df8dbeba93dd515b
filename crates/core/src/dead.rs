//! Dead letters: how they are grouped, found, triaged and sent on their way again.

pub mod plan;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::id::JobId;
use crate::job::outcome::ErrorClass;

/// What an operator has made of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Triage {
    /// Nobody has looked. The default.
    #[default]
    New,
    /// Somebody has looked.
    Investigated,
    /// It was sent on its way again.
    Retrying,
    /// It will not be retried.
    Abandoned,
}

impl Triage {
    /// All states of triage.
    pub const ALL: [Self; 4] = [Self::New, Self::Investigated, Self::Retrying, Self::Abandoned];

    /// The number the store keeps.
    pub fn number(self) -> i16 {
        self as i16
    }

    /// The triage of a number the store kept.
    pub fn of_number(number: i16) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or_default()
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        ["new", "investigated", "retrying", "abandoned"][self as usize]
    }
}

impl std::str::FromStr for Triage {
    type Err = Error;
    fn from_str(word: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|t| t.word() == word).ok_or_else(|| Error::WordUnknown {
            what: "state of triage",
            value: word.to_owned(),
            known: "new, investigated, retrying, abandoned",
        })
    }
}

/// Which dead letters are meant. Every condition given must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DeadFilter {
    /// These ids, whatever became of them since; empty means any that are dead now.
    pub ids: Vec<JobId>,
    /// This kind.
    pub kind: Option<String>,
    /// This queue.
    pub queue: Option<String>,
    /// This tenant.
    pub tenant: Option<String>,
    /// This fingerprint.
    pub fingerprint: Option<String>,
    /// This state of triage. Those that are `retrying` are found while they are on their way, and after they have
    /// recovered.
    pub triage: Option<Triage>,
    /// Bears this tag.
    pub tag: Option<String>,
    /// Died at this moment or later.
    pub died_from: Option<Timestamp>,
    /// Died before this moment.
    pub died_until: Option<Timestamp>,
    /// The error message contains this text.
    pub error_contains: Option<String>,
    /// The payload has this value at this path (`user.id` = `42`), compared as text.
    pub payload_field: Option<(String, String)>,
    /// Those that were archived, whatever became of them since, instead of those that were not. With ids, both are
    /// meant. Defaults to false.
    pub archived: bool,
}

/// Where a dead letter stands among all, latest death first: a page goes on after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadPlace {
    /// When it died.
    pub died_at: Timestamp,
    /// Its id.
    pub id: JobId,
}

impl std::fmt::Display for DeadPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.died_at, self.id)
    }
}

impl std::str::FromStr for DeadPlace {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let place = text.split_once('/').and_then(|(died_at, id)| {
            Some(Self { died_at: died_at.parse().ok()?, id: id.parse().ok()? })
        });
        place.ok_or_else(|| Error::WordUnknown {
            what: "place of a dead letter",
            value: text.to_owned(),
            known: "MOMENT/ID, as the page before says it",
        })
    }
}

/// A rule that sends known-recoverable dead letters on their way again by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RedriveRule {
    /// Names it.
    pub name: String,
    /// Only dead letters of this kind.
    pub kind: Option<String>,
    /// Only dead letters of this queue.
    pub queue: Option<String>,
    /// Only this class of failure.
    pub class: Option<ErrorClass>,
    /// Only when the error message contains this text.
    pub error_contains: Option<String>,
    /// How long after its death.
    pub delay_ms: u64,
    /// How often at most for one job.
    pub redrives_max: u16,
}

/// The text of an error without what differs between two occurrences of the same trouble:
/// numbers, hexadecimal ids and what stands in quotes become one sign each.
pub fn normalise(message: &str) -> String {
    let first_line = message.lines().next().unwrap_or_default();
    let mut out = String::with_capacity(first_line.len().min(256));
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        let digits = word.chars().any(|c| c.is_ascii_digit());
        out.push_str(if digits { "#" } else { word });
        word.clear();
    };
    let mut chars = first_line.chars();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' || (c == '-' && !word.is_empty()) {
            word.push(c);
            continue;
        }
        flush(&mut word, &mut out);
        out.push(c);
        if matches!(c, '"' | '`') && chars.clone().any(|d| d == c) {
            chars.by_ref().find(|d| *d == c);
            out.push('…');
            out.push(c);
        }
    }
    flush(&mut word, &mut out);
    out
}

/// What groups failures: kind, class and the normalised message, as sixteen hexadecimal digits.
pub fn fingerprint(kind: &str, class: ErrorClass, message: &str) -> String {
    let text = format!("{kind}\n{}\n{}", class.word(), normalise(message));
    blake3::hash(text.as_bytes()).to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_between_occurrences_is_taken_out() {
        for (message, expected) in [
            ("timeout after 30s", "timeout after #"),
            ("user 42 not found", "user # not found"),
            ("no row 018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de\n at line 5", "no row #"),
            (r#"cannot send to "a@example.com": refused"#, r#"cannot send to "…": refused"#),
            (r#"an odd " stays"#, r#"an odd " stays"#),
            ("plain words", "plain words"),
            ("", ""),
        ] {
            assert_eq!(normalise(message), expected, "{message:?}");
        }
    }

    #[test]
    fn fingerprints_tell_kinds_and_classes_apart() {
        let print = |kind, class| fingerprint(kind, class, "user 1 not found");
        let one = print("mail", ErrorClass::Transient);
        assert_eq!(one, fingerprint("mail", ErrorClass::Transient, "user 2 not found"));
        assert_ne!(one, print("sms", ErrorClass::Transient));
        assert_ne!(one, print("mail", ErrorClass::Permanent));
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn a_place_survives_its_text() {
        let died_at = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        let place = DeadPlace { died_at, id: JobId::new() };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "/", "2026-01-01T00:00:00Z", "now/018f3a2e-7c11-7bbb-8000-5fd1e2a0c0de"] {
            assert!(wrong.parse::<DeadPlace>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn triage_survives_its_words_and_numbers() {
        for triage in Triage::ALL {
            assert_eq!(triage.word().parse(), Ok(triage));
            assert_eq!(Triage::of_number(triage.number()), triage);
        }
    }
}
