//! Traces: attempts and steps as spans of OpenTelemetry, linked to whoever enqueued the job.
//!
//! Everything here is behind the feature `otel` and does nothing without it, nor where the program has installed no
//! layer of tracing-opentelemetry. An attempt begins a trace of its own and links to the producer's: it may run hours
//! later and many times, and a trace that never ends is of no use. Names and attributes follow the conventions for
//! messaging.

use tidemill_core::{ErrorClass, Job, Settlement};
use tracing::Span;

/// The span of an attempt.
pub(crate) fn attempt(job: &Job, attempt: u16, token: i64) -> Span {
    let span = tracing::info_span!(
        "attempt",
        id = %job.id,
        kind = job.kind,
        attempt,
        token,
        otel.name = tracing::field::Empty,
        otel.kind = tracing::field::Empty,
    );
    #[cfg(feature = "otel")]
    otel::describe_attempt(&span, job, attempt);
    span
}

/// The span of one try of a step.
pub(crate) fn step(key: &str, tries: u16) -> Span {
    let span = tracing::info_span!("step", step = key, tries, otel.name = tracing::field::Empty);
    #[cfg(feature = "otel")]
    otel::describe_step(&span, key);
    span
}

/// Says in its span what an attempt came to.
#[cfg_attr(not(feature = "otel"), expect(unused_variables, reason = "there is nobody to tell"))]
pub(crate) fn came_to(span: &Span, settlement: &Settlement) {
    #[cfg(feature = "otel")]
    otel::came_to(span, settlement);
}

/// Says in its span that an attempt failed.
#[cfg_attr(not(feature = "otel"), expect(unused_variables, reason = "there is nobody to tell"))]
pub(crate) fn failed_as(span: &Span, class: ErrorClass, message: &str) {
    #[cfg(feature = "otel")]
    otel::failed_as(span, class, message);
}

/// Says in its span that a step failed.
#[cfg_attr(not(feature = "otel"), expect(unused_variables, reason = "there is nobody to tell"))]
pub(crate) fn failed(span: &Span, why: &dyn std::fmt::Display) {
    #[cfg(feature = "otel")]
    otel::failed(span, why);
}

/// The trace context of whoever enqueues now, to travel with the job.
pub(crate) fn current() -> Option<String> {
    #[cfg(feature = "otel")]
    return otel::current();
    #[cfg(not(feature = "otel"))]
    None
}

#[cfg(feature = "otel")]
mod otel {
    use opentelemetry::trace::{
        SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
    };
    use opentelemetry::{Context, Value};
    use tidemill_core::trace::TraceParent;
    use tidemill_core::{ErrorClass, Job, Settlement};
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    pub(super) fn describe_attempt(span: &Span, job: &Job, attempt: u16) {
        // It has no parent, whoever let it start; and nobody listens who cannot be told so.
        if span.is_disabled() || span.set_parent(Context::new()).is_err() {
            return;
        }
        span.record("otel.name", format!("process {}", job.queue).as_str());
        span.record("otel.kind", "consumer");
        let attributes: [(&'static str, Value); 7] = [
            ("messaging.system", "tidemill".into()),
            ("messaging.operation.type", "process".into()),
            ("messaging.operation.name", "process".into()),
            ("messaging.destination.name", job.queue.clone().into()),
            ("messaging.message.id", job.id.to_string().into()),
            ("tidemill.kind", job.kind.clone().into()),
            ("tidemill.attempt", i64::from(attempt).into()),
        ];
        for (name, value) in attributes {
            span.set_attribute(name, value);
        }
        if let Some(producer) = job.options.trace.as_deref().and_then(|text| text.parse().ok()) {
            span.add_link(remote(producer));
        }
    }

    fn remote(TraceParent { trace, span, flags }: TraceParent) -> SpanContext {
        let (trace, span) =
            (TraceId::from_bytes(trace.to_be_bytes()), SpanId::from_bytes(span.to_be_bytes()));
        SpanContext::new(trace, span, TraceFlags::new(flags), true, TraceState::default())
    }

    pub(super) fn describe_step(span: &Span, key: &str) {
        if !span.is_disabled() {
            span.set_attribute("tidemill.step", key.to_owned());
        }
    }

    pub(super) fn came_to(span: &Span, settlement: &Settlement) {
        let failure = match settlement {
            Settlement::Again { failure, .. } => failure.as_ref(),
            Settlement::Dead { failure } => Some(failure),
            _ => None,
        };
        if let Some(failure) = failure {
            failed_as(span, failure.class, &failure.message);
        }
    }

    pub(super) fn failed_as(span: &Span, class: ErrorClass, message: &str) {
        span.set_attribute("error.type", class.word());
        span.set_status(Status::error(message.to_owned()));
    }

    pub(super) fn failed(span: &Span, why: &dyn std::fmt::Display) {
        if !span.is_disabled() {
            span.set_status(Status::error(why.to_string()));
        }
    }

    pub(super) fn current() -> Option<String> {
        let span = Span::current();
        if span.is_disabled() {
            return None;
        }
        let context = span.context();
        let context = context.span().span_context().clone();
        let parent = TraceParent {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            flags: context.trace_flags().to_u8(),
        };
        context.is_valid().then(|| parent.to_string())
    }
}
