//! The trace that a request is part of, to travel with the jobs it makes.

use http::HeaderMap;
use tidemill::Enqueue;
use tidemill_core::Wish;
use tidemill_core::trace::TraceParent;

/// Gives a job the trace of the request that makes it, unless it names one.
pub(crate) fn follow(headers: &HeaderMap, wish: &mut Wish) {
    if wish.trace.is_none() {
        wish.trace = of(headers);
    }
}

/// The same for a job of a flow.
pub(crate) fn follow_flow(headers: &HeaderMap, job: &mut Enqueue) {
    if job.trace_context().is_none()
        && let Some(trace) = of(headers)
    {
        *job = job.clone().trace(trace);
    }
}

/// A header that is no trace context is passed over, as the standard says.
fn of(headers: &HeaderMap) -> Option<String> {
    let header = headers.get("traceparent").and_then(|value| value.to_str().ok());
    header.and_then(|text| text.parse::<TraceParent>().ok()).map(|parent| parent.to_string())
}
