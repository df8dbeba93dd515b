//! Pages of other origins that the server was told to let in: their browsers ask before they call, and are told yes.
//!
//! It refuses to say anything to others, never says "anybody", and lets no cookies along: callers show tokens.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN,
    VARY,
};
use http::{HeaderValue, Method, StatusCode};

use crate::api::App;
use crate::guard::{check_host, is_shared};

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// What routes read of a request's head.
const TAKEN: &str = "Authorization, Content-Type, Idempotency-Key, If-Match, Last-Event-ID, Prefer, \
                     Traceparent, Tracestate";
/// What answers have in their heads, besides what every page may read.
const SHOWN: &str = "ETag, Location, Preference-Applied, RateLimit, Retry-After";
/// How long a browser may remember the answer; none remembers for longer than two hours.
const REMEMBERED_S: &str = "7200";

/// Answers the question of a browser, and lets its page read what is answered.
pub(crate) async fn share(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let origin = request
        .headers()
        .get(ORIGIN)
        .filter(|origin| origin.to_str().is_ok_and(|origin| is_shared(&app, origin)));
    let Some(origin) = origin.cloned() else { return next.run(request).await };
    let asks = request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks && request.method() == Method::OPTIONS {
        match check_host(&app, &request) {
            Ok(()) => allowed(),
            Err(refusal) => return refusal.into_response(),
        }
    } else {
        let mut response = next.run(request).await;
        let shown = HeaderValue::from_static(SHOWN);
        response.headers_mut().insert(ACCESS_CONTROL_EXPOSE_HEADERS, shown);
        response
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(VARY, HeaderValue::from_static("Origin"));
    response
}

fn allowed() -> Response {
    let headers = [
        (ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (ACCESS_CONTROL_ALLOW_HEADERS, TAKEN),
        (ACCESS_CONTROL_MAX_AGE, REMEMBERED_S),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}
