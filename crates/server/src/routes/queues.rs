//! Queues, and their rules: data that is changed while everything runs, and versioned.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::header::IF_MATCH;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::Value;
use tidemill::QueueRules;
use tidemill::store::{DepthView, QueueView};
use tidemill_core::depth::Overflow;
use tidemill_core::span::Span;
use tidemill_core::why::QueueWhy;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::etag::{self, Wanted};
use crate::extract::{Body, Named, Params, understood};
use crate::prefer::Patience;
use crate::problem::{Answer, Problem, Refusal};

/// Rules with their version as an entity tag.
type Tagged = (etag::Tag, Json<QueueRules>);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(rules, set_rules, delete_rules))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(why))
        .routes(routes!(depth))
        .routes(routes!(wait))
}

/// All queues that have jobs, dead letters or rules.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues",
    responses((status = 200, body = Vec<QueueView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<QueueView>>> {
    caller.check_all_tenants()?;
    let mut queues = app.mill.queues().await?;
    queues.retain(|queue| caller.reaches(&queue.name));
    Ok(Json(queues))
}

/// Queues have no tenant: who is of one has no business with them.
fn check(caller: &Caller, name: &str) -> Answer<()> {
    caller.check_all_tenants()?;
    caller.check_queue(name)
}

/// The rules that were set for a queue or pattern, or the default ones.
#[utoipa::path(get, path = "/v1/queues/{name}/rules", operation_id = "queue_rules", tag = "queues",
    params(("name" = String, Path, description = "A queue, or a pattern like mail:*")),
    responses((status = 200, body = QueueRules, headers(("ETag" = String)))))]
async fn rules(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    check(&caller, &name)?;
    tagged(&app, &name).await
}

async fn tagged(app: &App, name: &str) -> Answer<Tagged> {
    let rules = app.mill.queue_rules(name).await?;
    Ok((etag::of(&rules.version), Json(rules)))
}

/// Sets the rules of a queue or pattern, all of them. They hold everywhere within a second.
///
/// With `If-Match`, or with the `version` that was read, they are refused when somebody else has set them meanwhile.
#[utoipa::path(put, path = "/v1/queues/{name}/rules", operation_id = "set_queue_rules", tag = "queues",
    params(
        ("name" = String, Path, description = "A queue, or a pattern like mail:*"),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rules that were read"),
    ),
    request_body = QueueRules, responses(
        (status = 200, body = QueueRules, headers(("ETag" = String))),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "They have changed"),
    ))]
async fn set_rules(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    headers: HeaderMap,
    Body(given): Body<Value>,
) -> Answer<Tagged> {
    check(&caller, &name)?;
    let mut rules: QueueRules = understood("the rules", &given)?;
    // Jobs would come to where the caller cannot send any.
    if let Overflow::Divert { queue } = &rules.overflow {
        caller.check_queue(queue)?;
    }
    // Which version is meant the header says, else the body, if it has one.
    if headers.contains_key(IF_MATCH) {
        rules.version = 0;
    }
    change(&app, &name, &headers, Some(rules)).await?;
    tagged(&app, &name).await.map_err(Refusal::after_write)
}

/// Sets rules or takes them away: over those that the request is for, or whatever is there.
async fn change(
    app: &App,
    name: &str,
    headers: &HeaderMap,
    rules: Option<QueueRules>,
) -> Answer<()> {
    let change = |was: Option<u64>| {
        let rules = rules.clone();
        async move {
            match was {
                // Also "0", which says that there were none.
                Some(was) => app.mill.replace_queue(name, was, rules).await?,
                None => app.mill.set_queue(name, rules).await?,
            }
            Ok(())
        }
    };
    let changed = || tidemill_core::Error::RuleChanged { queue: name.to_owned() }.into();
    let wanted = etag::wanted(headers)?;
    // "0" may be asked for by its name; it is nothing that is there.
    let least = u64::from(wanted == Wanted::There);
    let present = || async {
        let version = app.mill.queue_rules(name).await?.version;
        Ok(Some(version).filter(|version| *version >= least))
    };
    wanted.met(present, changed, change).await
}

/// Takes the rules of a queue or pattern away.
///
/// With `If-Match` that is refused when somebody else has set them meanwhile.
#[utoipa::path(delete, path = "/v1/queues/{name}/rules", operation_id = "delete_queue_rules", tag = "queues",
    params(
        ("name" = String, Path),
        ("If-Match" = Option<String>, Header, description = "The ETag of the rules that were read"),
    ),
    responses(
        (status = 204, description = "There are none any more"),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "They have changed"),
    ))]
async fn delete_rules(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    check(&caller, &name)?;
    change(&app, &name, &headers, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets no job of a queue start any more; those that run go on.
#[utoipa::path(post, path = "/v1/queues/{name}/pause", operation_id = "pause_queue", tag = "queues",
    params(("name" = String, Path)), responses(
        (status = 200, body = QueueRules, headers(("ETag" = String))),
    ))]
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    check(&caller, &name)?;
    app.mill.pause(&name).await?;
    tagged(&app, &name).await.map_err(Refusal::after_write)
}

/// Lets the jobs of a queue start again.
#[utoipa::path(post, path = "/v1/queues/{name}/resume", operation_id = "resume_queue", tag = "queues",
    params(("name" = String, Path)), responses(
        (status = 200, body = QueueRules, headers(("ETag" = String))),
    ))]
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    check(&caller, &name)?;
    app.mill.resume(&name).await?;
    tagged(&app, &name).await.map_err(Refusal::after_write)
}

/// Why a queue is as deep as it is: in a sentence, and as a structure.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct QueueExplained {
    #[serde(flatten)]
    why: QueueWhy,
    sentence: String,
}

/// Says why a queue is as deep as it is, and when it will be empty.
#[utoipa::path(get, path = "/v1/queues/{name}/why", operation_id = "why_queue", tag = "queues",
    params(("name" = String, Path)), responses((status = 200, body = QueueExplained)))]
async fn why(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Json<QueueExplained>> {
    check(&caller, &name)?;
    let why = app.mill.why_queue(&name).await?;
    Ok(Json(QueueExplained { sentence: why.to_string(), why }))
}

/// How deep a queue is, and what it has counted.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct QueueDepth {
    #[serde(flatten)]
    view: DepthView,
    /// Jobs that wait in it.
    depth: u64,
    /// Whether it has reached its high watermark, and has not been down at the low one since: producers should pause.
    is_above: bool,
}

async fn depth_of(app: &App, name: &str) -> Answer<Json<QueueDepth>> {
    let view = app.mill.depth(name).await?;
    Ok(Json(QueueDepth { depth: view.depth(), is_above: view.above_since.is_some(), view }))
}

/// How deep a queue is, whose jobs wait in it, and whether producers should pause.
#[utoipa::path(get, path = "/v1/queues/{name}/depth", operation_id = "queue_depth", tag = "queues",
    params(("name" = String, Path)), responses((status = 200, body = QueueDepth)))]
async fn depth(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Json<QueueDepth>> {
    check(&caller, &name)?;
    depth_of(&app, &name).await
}

/// Waits until a queue is down at its low watermark; at once, if it is not above. Answers 200 when producers may go on,
/// and 202 when it is still above after this time.
#[utoipa::path(get, path = "/v1/queues/{name}/wait", operation_id = "wait_for_queue", tag = "queues",
    params(("name" = String, Path), Patience), responses(
        (status = 200, body = QueueDepth, description = "Producers may go on"),
        (status = 202, body = QueueDepth, description = "It is still above"),
    ))]
async fn wait(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(patience): Params<Patience>,
) -> Answer<(StatusCode, Json<QueueDepth>)> {
    check(&caller, &name)?;
    let time = Some(Span(patience.time(&app.settings)));
    let is_below = app.patiently(time, |time| app.mill.until_below(&name, time)).await?;
    let status = if is_below { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, depth_of(&app, &name).await?))
}
