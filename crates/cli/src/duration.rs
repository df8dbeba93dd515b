//! Durations and moments for people: how they are shown, and moments as they are written, a time or a duration ago.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
pub use tidemill::core::span::Span;

/// A moment given by a person: `2026-01-31T12:00:00Z`, or `2h` for two hours ago.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// A time.
    At(Timestamp),
    /// A duration ago.
    Ago(Duration),
}

impl Moment {
    /// The time, given the present.
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.parse().map(Self::At).ok();
        at.or_else(|| text.parse::<Span>().ok().map(|span| Self::Ago(span.0))).ok_or_else(|| {
            format!("{text:?} is not a moment; write 2026-01-31T12:00:00Z, or 2h for two hours ago")
        })
    }
}

/// A duration for people, in at most two units: `850µs`, `12ms`, `3.2s`, `5m 10s`, `2d 3h`.
pub fn short(duration: Duration) -> impl fmt::Display {
    let (us, s) = (duration.as_micros(), duration.as_secs());
    let two = |major: u64, a: &str, minor: u64, b: &str| match minor {
        0 => format!("{major}{a}"),
        _ => format!("{major}{a} {minor}{b}"),
    };
    match s {
        _ if us == 0 => "0s".to_owned(),
        _ if us < 1000 => format!("{us}µs"),
        _ if us < 10_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ if s == 0 => format!("{}ms", us / 1000),
        ..60 if duration.subsec_millis() >= 50 && s < 10 => {
            format!("{:.1}s", duration.as_secs_f64())
        }
        ..60 => format!("{s}s"),
        60..3600 => two(s / 60, "m", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "m"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

/// How long ago something was, or how soon it will be.
pub fn relative(at: Timestamp, now: Timestamp) -> String {
    let distance = now.duration_since(at);
    let size = distance.unsigned_abs();
    let size = if size.as_secs() > 0 { Duration::from_secs(size.as_secs()) } else { size };
    if size < Duration::from_secs(1) {
        return "now".to_owned();
    }
    if distance > SignedDuration::ZERO {
        format!("{} ago", short(size))
    } else {
        format!("in {}", short(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_at_most_two_units() {
        for (ms, shown) in [
            (0, "0s"),
            (3, "3.0ms"),
            (42, "42ms"),
            (3200, "3.2s"),
            (42_900, "42s"),
            (310_000, "5m 10s"),
            (7_200_000, "2h"),
            (183_600_000, "2d 3h"),
        ] {
            assert_eq!(short(Duration::from_millis(ms)).to_string(), shown);
        }
        assert_eq!(short(Duration::from_micros(850)).to_string(), "850µs");
    }

    #[test]
    fn moments_are_times_or_durations_ago() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        let at = |text: &str| text.parse::<Moment>().unwrap().resolve(now).to_string();
        assert_eq!(at("2h"), "2026-01-31T10:00:00Z");
        assert_eq!(at("2026-01-30T00:00:00Z"), "2026-01-30T00:00:00Z");
        assert!("yesterday".parse::<Moment>().is_err());
        assert_eq!(relative(now - SignedDuration::from_secs(90), now), "1m 30s ago");
        assert_eq!(relative(now + SignedDuration::from_secs(5), now), "in 5s");
    }
}
