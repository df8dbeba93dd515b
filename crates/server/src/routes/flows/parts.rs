//! Flows that are built in parts: any number of jobs, and nothing starts before all are there.
//!
//! `POST /v1/flows` with `"building": true` writes the flow. It refuses a part that could be added twice: one that has
//! no key, and jobs without ids.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use tidemill_core::bounded::Bounded;
use tidemill_core::{FlowId, Wish};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{FlowActed, FlowCancel, FlowStarted, StartAnswer, check};
use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named};
use crate::idempotent;
use crate::problem::{Answer, Problem, Refusal};
use crate::routes::jobs::BATCH_JOBS_MAX;
use crate::routes::work::enqueues;
use crate::trace;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(add)).routes(routes!(begin)).routes(routes!(discard))
}

/// Jobs for a step of a flow that is being built.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FlowPart {
    /// The step; it must be there.
    step: String,
    /// At most 10,000.
    #[schema(value_type = Vec<Wish>)]
    jobs: Bounded<Wish, BATCH_JOBS_MAX>,
}

/// Gives a step of a flow that is being built more jobs, all or none.
///
/// With an `Idempotency-Key` the part is added once, however often it is sent, and answered alike; without one every
/// job needs an `id`, which does the same for the job. The key is of this flow, for as long as the flow is kept.
#[utoipa::path(post, path = "/v1/flows/{id}/jobs", operation_id = "add_to_flow", tag = "flows",
    params(
        ("id" = FlowId, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "Names the part; needed unless all jobs have ids"),
    ),
    request_body(content = FlowPart, example = json!({ "step": "mail", "jobs": [
        { "kind": "send_mail", "payload": { "to": "ada@example.com" }, "id": "019a8f6e-3c1d-7b2a-9f00-5b1c2d3e4f51" },
    ] })), responses(
        (status = 200, body = FlowActed, description = "How many jobs it has added; the same when it is sent again"),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "It is wrong"),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no such flow, or no webhook of the name that a job asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has begun"),
        (status = 422, body = Problem, content_type = "application/problem+json",
            description = "Another part has this key"),
    ))]
async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    headers: HeaderMap,
    Body(FlowPart { step, jobs }): Body<FlowPart>,
) -> Answer<Json<FlowActed>> {
    let (key, mut jobs) = (idempotent::key(&headers)?, jobs.all()?);
    if key.is_none() && jobs.iter().any(|wish| wish.id.is_none()) {
        let detail =
            "a part needs an Idempotency-Key, or all its jobs ids, so that it is never added twice";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "idempotency_key_missing", detail));
    }
    check(&app, &caller, id).await?;
    for wish in &mut jobs {
        trace::follow(&headers, wish);
    }
    let (building, jobs) = (app.mill.building(id), enqueues(&caller, jobs)?);
    let jobs = match key {
        Some(key) => building.add_once(&key, &step, jobs).await?,
        None => building.add(&step, jobs).await?,
    };
    Ok(Json(FlowActed { jobs }))
}

/// Lets a flow begin that was being built. Sent twice, it begins once.
#[utoipa::path(post, path = "/v1/flows/{id}/begin", operation_id = "begin_flow", tag = "flows",
    params(("id" = FlowId, Path)), responses(
        (status = 200, body = FlowStarted),
        (status = 400, body = Problem, content_type = "application/problem+json",
            description = "It could never work; the step is named"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It was thrown away"),
        (status = 429, body = Problem, content_type = "application/problem+json", description = "A queue is full"),
    ))]
async fn begin(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
) -> Answer<Json<FlowStarted>> {
    check(&app, &caller, id).await?;
    let id = app.mill.building(id).begin().await?;
    Ok(Json(FlowStarted { id, answer: StartAnswer::Started }))
}

/// Throws a flow away that was being built: nothing of it ever starts. One that has begun is called off by an operator.
#[utoipa::path(post, path = "/v1/flows/{id}/discard", operation_id = "discard_flow", tag = "flows",
    params(("id" = FlowId, Path)), request_body = FlowCancel, responses(
        (status = 200, body = FlowActed),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has begun"),
    ))]
async fn discard(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Body(FlowCancel { reason }): Body<FlowCancel>,
) -> Answer<Json<FlowActed>> {
    check(&app, &caller, id).await?;
    let reason = reason.as_deref().unwrap_or("thrown away before it began");
    let jobs = app.mill.building(id).discard(reason).await?;
    Ok(Json(FlowActed { jobs }))
}
