//! A backoff as people write it: `fixed:5s`, `exponential:1s..1h`, `decorrelated:1s..1h`,
//! `custom:1s,10s,1m`, or a bare duration, which means the same delay every time.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Backoff, Jitter};
use crate::span::Span;

/// A backoff given by a person.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, example = "exponential:1s..1h"))]
pub struct BackoffText(pub Backoff);

const FORMS: &str = "write 5s, fixed:5s, exponential:1s..1h, exponential:1s..1h:equal (or :none, \
                     :full), decorrelated:1s..1h or custom:1s,10s,1m";

impl FromStr for BackoffText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (word, rest) = text.split_once(':').unwrap_or(("fixed", text));
        let backoff = match word {
            "fixed" => Some(Backoff::Fixed { delay_ms: ms(rest)? }),
            "custom" => {
                let delays_ms = rest.split(',').map(ms).collect::<Result<_, _>>()?;
                Some(Backoff::Custom { delays_ms })
            }
            "exponential" => exponential(rest)?,
            "decorrelated" => {
                range(rest)?.map(|(base_ms, cap_ms)| Backoff::Decorrelated { base_ms, cap_ms })
            }
            _ => None,
        };
        backoff.map(Self).ok_or_else(|| format!("{text:?} is not a backoff; {FORMS}"))
    }
}

impl<'de> Deserialize<'de> for BackoffText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for BackoffText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |ms: u64| Span(Duration::from_millis(ms));
        match &self.0 {
            Backoff::Fixed { delay_ms } => write!(f, "fixed:{}", span(*delay_ms)),
            Backoff::Exponential { base_ms, cap_ms, jitter } => {
                let jitter = match jitter {
                    Jitter::Full => "full",
                    Jitter::Equal => "equal",
                    Jitter::None => "none",
                };
                write!(f, "exponential:{}..{}:{jitter}", span(*base_ms), span(*cap_ms))
            }
            Backoff::Decorrelated { base_ms, cap_ms } => {
                write!(f, "decorrelated:{}..{}", span(*base_ms), span(*cap_ms))
            }
            Backoff::Custom { delays_ms } => {
                let delays: Vec<_> = delays_ms.iter().map(|ms| span(*ms).to_string()).collect();
                write!(f, "custom:{}", delays.join(","))
            }
        }
    }
}

impl Serialize for BackoffText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn exponential(text: &str) -> Result<Option<Backoff>, String> {
    let (text, jitter) = text.split_once(':').unwrap_or((text, "full"));
    let jitter = match jitter {
        "full" => Jitter::Full,
        "equal" => Jitter::Equal,
        "none" => Jitter::None,
        _ => return Ok(None),
    };
    Ok(range(text)?.map(|(base_ms, cap_ms)| Backoff::Exponential { base_ms, cap_ms, jitter }))
}

fn range(text: &str) -> Result<Option<(u64, u64)>, String> {
    let Some((base, cap)) = text.split_once("..") else { return Ok(None) };
    Ok(Some((ms(base)?, ms(cap)?)))
}

fn ms(text: &str) -> Result<u64, String> {
    text.parse::<Span>().map(|span| span.0.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoffs_are_read_as_people_write_them() {
        let exponential =
            |jitter| Backoff::Exponential { base_ms: 1000, cap_ms: 3_600_000, jitter };
        for (text, backoff) in [
            ("5s", Backoff::Fixed { delay_ms: 5000 }),
            ("fixed:0s", Backoff::Fixed { delay_ms: 0 }),
            ("exponential:1s..1h", exponential(Jitter::Full)),
            ("exponential:1s..1h:equal", exponential(Jitter::Equal)),
            ("decorrelated:1s..1m", Backoff::Decorrelated { base_ms: 1000, cap_ms: 60_000 }),
            ("custom:1s,10s", Backoff::Custom { delays_ms: vec![1000, 10_000] }),
        ] {
            let backoff = BackoffText(backoff);
            assert_eq!(backoff.to_string().parse(), Ok(backoff.clone()), "{text}");
            assert_eq!(text.parse(), Ok(backoff), "{text}");
        }
        for text in ["", "fast", "exponential:1s", "exponential:1s..1h:odd", "custom:", "5"] {
            assert!(text.parse::<BackoffText>().is_err(), "{text}");
        }
    }
}
