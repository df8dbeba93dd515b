//! The trace that a request is part of, to travel with the jobs it makes.

use http::HeaderMap;
use tidemill_core::Wish;
use tidemill_core::trace::TraceParent;

/// Gives a job the trace of the request that makes it, unless it names one. A header that is no trace context is passed
/// over, as the standard says.
pub(crate) fn follow(headers: &HeaderMap, wish: &mut Wish) {
    if wish.trace.is_none() {
        let header = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let parent = header.and_then(|text| text.parse::<TraceParent>().ok());
        wish.trace = parent.map(|parent| parent.to_string());
    }
}
