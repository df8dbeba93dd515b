//! JSON text that was checked once, at the edge, and is passed on as it is.
//!
//! Tidemill never parses a payload to rebuild it: integers above 2^53, the order of keys and the
//! spelling of numbers arrive at the handler exactly as they were sent.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::limit::Limits;

/// A JSON document: valid, within the limits, free of what a database would refuse.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
pub struct Payload(String);

impl Payload {
    /// Checks a text that should be JSON.
    pub fn parse(text: &str, limits: &Limits) -> Result<Self> {
        Self::check_size(text, limits)?;
        scan(text, limits.payload_depth_max)?;
        serde_json::from_str::<&RawValue>(text)
            .map_err(|e| Error::PayloadNotJson { reason: e.to_string() })?;
        Ok(Self(text.trim().to_owned()))
    }

    /// Writes a value as JSON and checks it.
    pub fn of<T: Serialize + ?Sized>(value: &T, limits: &Limits) -> Result<Self> {
        let text = serde_json::to_string(value)
            .map_err(|e| Error::PayloadNotJson { reason: e.to_string() })?;
        Self::written(text, limits)
    }

    /// Takes a text that a JSON writer made: it is JSON, but may be too large or too deep.
    pub fn written(text: String, limits: &Limits) -> Result<Self> {
        Self::check_size(&text, limits)?;
        scan(&text, limits.payload_depth_max)?;
        Ok(Self(text))
    }

    /// Refuses a text of JSON with more objects and lists within each other than this.
    pub fn check_depth(text: &str, depth_max: usize) -> Result<()> {
        let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
        for byte in text.bytes() {
            match (in_string, byte) {
                (true, _) if is_escaped => is_escaped = false,
                (true, b'\\') => is_escaped = true,
                (_, b'"') => in_string = !in_string,
                (false, b'{' | b'[') => depth += 1,
                (false, b'}' | b']') => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > depth_max {
                return Err(Error::PayloadTooDeep { depth_max });
            }
        }
        Ok(())
    }

    /// Takes a text that the store kept: it was checked when it came in.
    pub fn trusted(text: String) -> Self {
        Self(text)
    }

    /// The JSON `null`.
    pub fn null() -> Self {
        Self("null".to_owned())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text is the same JSON, however it is written: a database may have written it another way.
    pub fn is_same(&self, text: &str) -> bool {
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        self.0 == text || read(&self.0) == read(text)
    }

    /// The JSON text, given away.
    pub fn into_string(self) -> String {
        self.0
    }

    /// Reads it as a typed value.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(&self.0)
    }

    fn check_size(text: &str, limits: &Limits) -> Result<()> {
        let (bytes, bytes_max) = (text.len(), limits.payload_bytes_max);
        if bytes > bytes_max {
            return Err(Error::PayloadTooLarge { bytes, bytes_max });
        }
        Ok(())
    }
}

/// One pass over the text for what a JSON parser would let through and a database would not.
fn scan(text: &str, depth_max: usize) -> Result<()> {
    let bytes = text.as_bytes();
    let (mut depth, mut in_string, mut at) = (0_usize, false, 0);
    while at < bytes.len() {
        match (in_string, bytes[at]) {
            (false, b'"') => in_string = true,
            (true, b'"') => in_string = false,
            (false, b'{' | b'[') => {
                depth += 1;
                if depth > depth_max {
                    return Err(Error::PayloadTooDeep { depth_max });
                }
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (_, 0) => return Err(Error::PayloadNul { at }),
            (true, b'\\') => {
                at += escape(bytes, at)?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// Checks the escape at `at`; says how many bytes it takes.
fn escape(bytes: &[u8], at: usize) -> Result<usize> {
    let Some(unit) = utf16_unit(bytes, at) else { return Ok(2) };
    match unit {
        0 => Err(Error::PayloadNul { at }),
        0xD800..=0xDBFF => match utf16_unit(bytes, at + 6) {
            Some(0xDC00..=0xDFFF) => Ok(12),
            _ => Err(Error::PayloadSurrogate { at }),
        },
        0xDC00..=0xDFFF => Err(Error::PayloadSurrogate { at }),
        _ => Ok(6),
    }
}

fn utf16_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let hex = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    u16::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()
}

impl fmt::Debug for Payload {
    /// Never shows the contents: a payload must not reach a log by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(&self.0)
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|raw| Self(raw.get().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<&'static str> {
        let limits = Limits { payload_bytes_max: 200, payload_depth_max: 3, ..Limits::default() };
        Payload::parse(text, &limits).err().map(|e| e.code())
    }

    #[test]
    fn bad_payloads_are_named() {
        for (text, expected) in [
            (r#"{"a":[1]}"#, None),
            ("  7 ", None),
            (r#""\ud83d\ude00 \\u0000 \" [[[[""#, None),
            ("", Some("payload_not_json")),
            ("{", Some("payload_not_json")),
            ("[1] [2]", Some("payload_not_json")),
            ("[[[[]]]]", Some("payload_too_deep")),
            (r#""a\u0000""#, Some("payload_nul")),
            ("\"a\0\"", Some("payload_nul")),
            (r#""\ud83d""#, Some("payload_surrogate")),
            (r#""\ude00\ud83d""#, Some("payload_surrogate")),
        ] {
            assert_eq!(code(text), expected, "{text:?}");
        }
        assert_eq!(code(&format!("\"{}\"", "x".repeat(200))), Some("payload_too_large"));
    }

    #[test]
    fn depth_is_counted_outside_of_strings() {
        for (text, depth) in [("7", 0), (r#"{"a":[[]],"b":[]}"#, 3), (r#"["\"[[\\","[{"]"#, 1)] {
            assert!(Payload::check_depth(text, depth).is_ok(), "{text}");
            assert!(depth == 0 || Payload::check_depth(text, depth - 1).is_err(), "{text}");
        }
    }

    #[test]
    fn large_integers_stay_exact() {
        let text = r#"{"n":9007199254740993,"m":123456789012345678901234567890}"#;
        let payload = Payload::parse(text, &Limits::default()).unwrap();
        assert_eq!(serde_json::to_string(&payload).unwrap(), text);
    }

    #[test]
    fn debug_hides_the_contents() {
        let payload = Payload::of("secret", &Limits::default()).unwrap();
        assert_eq!(format!("{payload:?}"), "Payload(8 bytes)");
    }
}
