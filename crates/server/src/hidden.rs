//! Hides fields of payloads in whatever is answered, whichever route answers it; those who run jobs get them whole.

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use tidemill_core::access::Act;

use crate::access::{Caller, Need};
use crate::api::App;
use crate::problem::Refusal;

/// What a worker reads besides what it claims.
const OF_WORKERS: [&str; 6] = [
    "/v1/jobs/{id}/journal",
    "/v1/jobs/{id}/journal/{number}",
    "/v1/jobs/{id}/mail",
    "/v1/jobs/{id}/inputs",
    "/v1/jobs/{id}/inputs/{step}",
    "/v1/objects/{name}",
];

/// Goes with an answer that a route gives whole: it has seen to it that its caller runs jobs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole;

/// The answer as it may be seen.
pub(crate) async fn shown(
    app: &App,
    caller: &Caller,
    (path, need): (&str, Option<Need>),
    response: Response,
) -> Response {
    let hidden = app.mill.hidden();
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|is| is == "application/json");
    let is_of_workers = OF_WORKERS.contains(&path);
    let is_works = response.extensions().get::<Whole>().is_some()
        || matches!(need, Some(Need::Act(Act::Work)))
        || is_of_workers && caller.check_act(Act::Work).is_ok();
    if hidden.is_empty() || !is_json || is_works {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = to_bytes(body, usize::MAX).await.map(|bytes| String::from_utf8(bytes.to_vec()));
    let Ok(Ok(text)) = text else {
        return Refusal::internal(&"an answer that is no text").into_response();
    };
    parts.headers.remove(CONTENT_LENGTH);
    let shown = if is_of_workers { hidden.json(&text) } else { hidden.document(&text) };
    Response::from_parts(parts, Body::from(shown.into_owned()))
}
