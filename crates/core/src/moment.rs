//! Times as people and JSON write them: `2026-01-31T12:00:00Z`.
//!
//! One function reads them for the command line, JSON lines and HTTP, so that what is no time is told in the same words
//! everywhere.

use jiff::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result};

/// Reads a time.
pub fn parse(text: &str) -> Result<Timestamp> {
    text.parse().map_err(|_| Error::TimeUnread { value: text.to_owned() })
}

/// The same for a field of JSON.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Timestamp, D::Error> {
    parse(&String::deserialize(from)?).map_err(D::Error::custom)
}

/// The same for one that may be left out.
pub fn read_option<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| parse(&text)).transpose().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_told_in_our_words() {
        for text in ["2026-01-31T12:00:00Z", "1969-12-31T23:59:59Z", "2026-01-31T12:00:00+02:00"] {
            parse(text).unwrap();
        }
        for text in ["", "someday", "2026-01-31", "2026-13-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
            let refused = parse(text).unwrap_err();
            assert_eq!(refused.code(), "time_invalid", "{text}");
            let said = format!(
                "{text:?} is not a time; write one like 2026-01-31T12:00:00Z, of a year before 9999"
            );
            assert_eq!(refused.to_string(), said);
        }
    }
}
