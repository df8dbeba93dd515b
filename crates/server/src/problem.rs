//! Errors as problem documents (RFC 9457): a status, a stable code, and a sentence that says what to do.
//!
//! It refuses to show what went wrong inside: that is logged under an id, and the answer has the id.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use tidemill_core::JobId;
use uuid::Uuid;

/// How long to wait before the store is asked again, if nothing better is known.
const AGAIN_S: u64 = 1;

pub use tidemill_core::problem::Problem;

/// The code of a refusal, beside its answer, for those who record it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code(pub &'static str);

/// What a route answers.
pub(crate) type Answer<T> = Result<T, Refusal>;

/// Why a request was not done.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    detail: String,
    job: Option<JobId>,
    index: Option<usize>,
    /// Whether it may have been done all the same.
    unknown: bool,
    trace: Option<Uuid>,
    /// When to try again, in seconds.
    retry_after_s: Option<u64>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let unknown = status == StatusCode::INTERNAL_SERVER_ERROR;
        let (detail, job, index, trace, retry_after_s) = (detail.into(), None, None, None, None);
        Self { status, code, detail, job, index, unknown, trace, retry_after_s }
    }

    /// The request cannot be understood.
    pub(crate) fn request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "request_invalid", detail)
    }

    /// Whether this is its status.
    pub(crate) fn is(&self, status: StatusCode) -> bool {
        self.status == status
    }

    /// Its code, and what it says.
    pub(crate) fn told(&self) -> (&'static str, &str) {
        (self.code, &self.detail)
    }

    /// Whether nothing else of the caller will be done either, as long as it shows what it has shown.
    pub(crate) fn is_final(&self) -> bool {
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND]
            .contains(&self.status)
    }

    /// It is about this job.
    pub(crate) fn about(self, job: JobId) -> Self {
        Self { job: Some(job), ..self }
    }

    /// It is about this one of a batch.
    pub(crate) fn at(self, index: usize) -> Self {
        let detail = format!("job {index}: {}", self.detail);
        Self { detail, index: Some(index), ..self }
    }

    /// It is about this one of a batch, as it says itself.
    pub(crate) fn of(self, index: Option<usize>) -> Self {
        Self { index, ..self }
    }

    /// It may be done all the same.
    pub(crate) fn may_be_done(self) -> Self {
        Self { unknown: true, ..self }
    }

    /// It came after what was asked for was written: if it is no fault of the caller's, that is done.
    pub(crate) fn after_write(self) -> Self {
        if self.status.is_server_error() { self.may_be_done() } else { self }
    }

    /// It is about this part.
    pub(crate) fn within(self, part: &str) -> Self {
        let detail = format!("{part}: {}", self.detail);
        Self { detail, ..self }
    }

    /// It may work in so many seconds.
    pub(crate) fn again_in(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(seconds), ..self }
    }

    /// Something that is nobody's fault who asked: logged, and told by its id alone.
    pub(crate) fn internal(error: &dyn std::fmt::Display) -> Self {
        let trace = Uuid::now_v7();
        tracing::error!(%trace, %error, "a request failed");
        let detail = format!("the server failed; its log has more under {trace}");
        let refusal = Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail);
        Self { trace: Some(trace), ..refusal }
    }

    /// The document that tells it.
    pub(crate) fn problem(self) -> Problem {
        let trace = self.traced();
        let Self { status, code, detail, job, index, unknown, .. } = self;
        Problem {
            uri: format!("urn:tidemill:{code}"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail,
            code: code.to_owned(),
            job,
            index,
            unknown,
            trace,
        }
    }

    /// The id under which the log has more. Whatever is not the caller's fault has one, however it came to be told.
    fn traced(&self) -> Option<Uuid> {
        if self.trace.is_some() || !self.status.is_server_error() {
            return self.trace;
        }
        let (trace, Self { status, code, detail, .. }) = (Uuid::now_v7(), self);
        if *status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%trace, code, detail, "a request failed");
        } else {
            // Probes and those who wait ask often: that they are told to come again is nothing to be woken for.
            tracing::info!(%trace, code, detail, "a request could not be done now");
        }
        Some(trace)
    }
}

impl From<tidemill_core::Error> for Refusal {
    fn from(error: tidemill_core::Error) -> Self {
        tidemill::Error::from(error).into()
    }
}

impl From<tidemill::Error> for Refusal {
    fn from(error: tidemill::Error) -> Self {
        let error = match error {
            tidemill::Error::InBatch { index, error } => return Self::from(*error).at(index),
            error => error,
        };
        let Some(status) = status_of(error.code()) else { return Self::internal(&error) };
        let refusal = Self::new(status, error.code(), error.to_string());
        let retry_after_s = match &error {
            tidemill::Error::Store(tidemill::store::Error::QueueFull(full)) => {
                full.retry_after().map(|after| after.as_secs().max(AGAIN_S))
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE => {
                let trace = Uuid::now_v7();
                tracing::warn!(%trace, %error, "the store could not be asked");
                let unknown = matches!(&error, tidemill::Error::Store(error) if error.is_unknown());
                let (trace, retry_after_s) = (Some(trace), Some(AGAIN_S));
                // Where the database is, is for whoever reads the log.
                let detail = away(error.code()).to_owned();
                return Self { detail, unknown, trace, retry_after_s, ..refusal };
            }
            _ => None,
        };
        Self { retry_after_s, ..refusal }
    }
}

/// Why the store cannot be asked, as callers are told it.
fn away(code: &str) -> &'static str {
    match code {
        "store_busy" => "the database stayed locked by others; try again",
        "store_disk_full" => "the disk of the database is full",
        "store_disk_failed" => "the disk of the database failed",
        "store_read_only" => "the database is read-only",
        _ => "the database cannot be reached now; try again later",
    }
}

/// The status of an error's code; `None` for what is no caller's business.
fn status_of(code: &str) -> Option<StatusCode> {
    Some(match code {
        "payload_too_large" | "batch_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        "queue_full" | "mailbox_full" => StatusCode::TOO_MANY_REQUESTS,
        "idempotency_key_reused" => StatusCode::UNPROCESSABLE_ENTITY,
        "rule_changed" | "job_changed" | "schedule_changed" => StatusCode::PRECONDITION_FAILED,
        "store_unavailable" | "store_busy" | "store_disk_full" | "store_disk_failed"
        | "store_read_only" => StatusCode::SERVICE_UNAVAILABLE,
        "store_refused" | "schema_newer" | "schema_older" | "sqlite_too_old"
        | "store_url_unknown" | "store_tls_refused" | "keys_invalid" => return None,
        // The caller can do nothing about it, and whoever runs the server is told which key it is.
        "encryption_key_missing" | "ciphertext_invalid" => StatusCode::INTERNAL_SERVER_ERROR,
        // What is named in a request and not known makes it wrong; what it is about and is not known is not there.
        "word_unknown" | "kind_unknown" | "schedule_zone_unknown" => StatusCode::BAD_REQUEST,
        code if code.ends_with("_unknown") => StatusCode::NOT_FOUND,
        "lease_lost" | "worker_lost" | "run_finished" | "schedule_overlap" | "plan_expired"
        | "encryption_off" | "id_taken" | "duplicate_rejected" | "schedule_owned" => {
            StatusCode::CONFLICT
        }
        code if code.ends_with("_not_now") => StatusCode::CONFLICT,
        code if code.ends_with("_timeout") => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_REQUEST,
    })
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, retry_after_s: after, .. } = self;
        let mut response = (status, Json(self.problem())).into_response();
        response.extensions_mut().insert(Code(code));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(after) = after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after));
            if status == StatusCode::TOO_MANY_REQUESTS {
                let limit = format!("\"depth\";r=0;t={after}");
                if let Ok(limit) = HeaderValue::from_str(&limit) {
                    headers.insert(HeaderName::from_static("ratelimit"), limit);
                }
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_status_that_clients_act_on() {
        for (code, status) in [
            ("job_unknown", 404),
            ("word_unknown", 400),
            ("kind_unknown", 400),
            ("schedule_zone_unknown", 400),
            ("schedule_changed", 412),
            ("queue_full", 429),
            ("mailbox_full", 429),
            ("payload_too_large", 413),
            ("store_unavailable", 503),
            ("rule_changed", 412),
            ("run_finished", 409),
            ("lease_lost", 409),
            ("worker_lost", 409),
            ("flow_not_now", 409),
            ("plan_expired", 409),
            ("id_taken", 409),
            ("idempotency_key_reused", 422),
            ("name_empty", 400),
        ] {
            assert_eq!(status_of(code).map(|status| status.as_u16()), Some(status), "{code}");
        }
        assert_eq!(status_of("store_refused"), None);
    }

    #[tokio::test]
    async fn every_fault_of_the_server_has_an_id_and_no_other_has() {
        for (status, code, is_traced) in [
            (StatusCode::INTERNAL_SERVER_ERROR, "encryption_key_missing", true),
            (StatusCode::INTERNAL_SERVER_ERROR, "ciphertext_invalid", true),
            (StatusCode::SERVICE_UNAVAILABLE, "not_ready", true),
            (StatusCode::SERVICE_UNAVAILABLE, "streams_too_many", true),
            (StatusCode::GATEWAY_TIMEOUT, "wait_timeout", true),
            (StatusCode::TOO_MANY_REQUESTS, "queue_full", false),
            (StatusCode::NOT_FOUND, "job_unknown", false),
        ] {
            let response = Refusal::new(status, code, "it is so").into_response();
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let problem: Problem = serde_json::from_slice(&body).unwrap();
            assert_eq!(problem.trace.is_some(), is_traced, "{code}");
        }
    }

    #[test]
    fn what_may_have_been_done_is_told_so() {
        use tidemill::store::Error;
        let lost = |unknown| Error::Unavailable { reason: String::new(), unknown };
        for (error, unknown) in [
            (lost(true), true),
            (lost(false), false),
            (Error::Busy { reason: String::new() }, false),
            (Error::Database { reason: String::new() }, true),
            (Error::PayloadReserved, false),
        ] {
            let refusal = Refusal::from(tidemill::Error::from(error.clone()));
            assert_eq!(refusal.unknown, unknown, "{error:?}");
        }
    }
}
