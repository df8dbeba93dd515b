//! Durations as people and JSON write them: `500ms 90s 5m 2h 3d 1h30m`.
//!
//! One function reads them for the command line, JSON lines and HTTP, so that they mean the same everywhere. It refuses
//! a bare number: nobody agrees on its unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

/// A duration given by a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, example = "5m"))]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a duration; write it like 500ms, 90s, 5m, 2h or 3d");
        let mut rest = text.trim();
        let mut sum_ms = 0_u64;
        if rest.is_empty() {
            return Err(wrong());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let unit = UNITS.iter().find(|(word, _)| *word == &rest[..letters]);
            let part_ms = number.checked_mul(unit.ok_or_else(wrong)?.1).ok_or_else(wrong)?;
            sum_ms = sum_ms.checked_add(part_ms).ok_or_else(wrong)?;
            rest = &rest[letters..];
        }
        Ok(Self(Duration::from_millis(sum_ms)))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest_ms = self.0.as_millis() as u64;
        if rest_ms == 0 {
            return write!(f, "0s");
        }
        for (word, unit_ms) in UNITS.iter().rev() {
            if rest_ms >= *unit_ms {
                write!(f, "{}{word}", rest_ms / unit_ms)?;
                rest_ms %= unit_ms;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ms) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("3d", 259_200_000),
            ("1h30m", 5_400_000),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Span(Duration::from_millis(ms))), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "5", "-5s", "5 s", "s", "1.5h", "5y", "99999999999999999999d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for text in ["0s", "500ms", "1m30s", "2h", "1w3d", "1h1ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
    }
}
