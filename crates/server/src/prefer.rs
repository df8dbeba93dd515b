//! Whether a client waits for a result, and how long: as it prefers (RFC 7240), or by a parameter.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use tidemill_core::span::Span;

use crate::settings::Settings;

const PREFER: HeaderName = HeaderName::from_static("prefer");
const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// How long to wait, where waiting is what is asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Patience {
    /// How long to wait, `30s` unless given.
    #[param(value_type = Option<String>, example = "10s")]
    pub(crate) timeout: Option<Span>,
}

impl Patience {
    /// At most the longest time that is allowed.
    pub(crate) fn time(&self, settings: &Settings) -> Duration {
        self.timeout.map_or(WAIT_DEFAULT, |span| span.0).min(settings.wait_max)
    }
}

/// Whether, and how long, a client wants to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prefer {
    /// It said nothing.
    Nothing,
    /// To be answered at once, and to ask later.
    Async,
    /// To wait so long for the result.
    Wait(Duration),
}

impl Prefer {
    /// Reads the headers; preferences that are not known are ignored, as they must be. The first of each counts.
    pub(crate) fn of(headers: &HeaderMap, wait_max: Duration) -> Self {
        let texts = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
        let mut wishes = texts.flat_map(|text| text.split([',', ';'])).map(str::trim);
        let read = |wish: &str| {
            if wish.eq_ignore_ascii_case("respond-async") {
                return Some(Self::Async);
            }
            let (name, value) = wish.split_once('=')?;
            let seconds: u64 = value.trim().trim_matches('"').parse().ok()?;
            let is_wait = name.trim().eq_ignore_ascii_case("wait");
            is_wait.then(|| Self::Wait(Duration::from_secs(seconds).min(wait_max)))
        };
        // With both, `wait` says how long to try before it is answered as if asynchronous.
        let read: Vec<_> = wishes.by_ref().filter_map(read).collect();
        let wait = read.iter().find(|prefer| matches!(prefer, Self::Wait(_)));
        wait.or(read.first()).copied().unwrap_or(Self::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_read_and_unknown_ones_ignored() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, http::HeaderValue::from_static(text));
            Prefer::of(&headers, Duration::from_mins(1))
        };
        let wait = |seconds| Prefer::Wait(Duration::from_secs(seconds));
        for (text, prefer) in [
            ("wait=10", wait(10)),
            ("respond-async", Prefer::Async),
            ("respond-async, wait=10", wait(10)),
            ("Wait = 5", wait(5)),
            ("wait=9999", wait(60)),
            ("wait=soon", Prefer::Nothing),
            ("return=minimal", Prefer::Nothing),
            ("", Prefer::Nothing),
        ] {
            assert_eq!(of(text), prefer, "{text}");
        }
    }
}
