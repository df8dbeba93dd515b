//! Jobs: enqueue one or many, look at them, wait for them, call them off, and ask why one is not running.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::store::view::AttemptView;
use tidemill::{By, CancelAnswer, Enqueue, JobFilter, JobView, Receipt, Retried, Signal};
use tidemill_core::bounded::Bounded;
use tidemill_core::job::edit::{Changes, FIXED};
use tidemill_core::span::Span;
use tidemill_core::why::{Gate, KeyHolder, Why};
use tidemill_core::{JobId, State as JobState, Wish};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail};
use crate::etag::{self, JobSeen};
use crate::extract::{Body, Named, Params};
use crate::idempotent;
use crate::prefer::{Patience, Prefer};
use crate::problem::{Answer, Problem, Refusal};
use crate::taken::{self, Print};
use crate::trace;

/// A job with its print as an entity tag.
type Tagged = (etag::Tag, Json<JobView>);

/// Jobs of one batch.
pub(crate) const BATCH_JOBS_MAX: usize = 10_000;

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(enqueue, list))
        .routes(routes!(enqueue_many))
        .routes(routes!(show, edit))
        .routes(routes!(wait))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(signal))
        .routes(routes!(why))
        .routes(routes!(attempts))
}

/// Enqueues a job. It is durable when this is answered.
///
/// With `Prefer: wait=10` the answer is the job with its result, if it finishes in that time. With an
/// `Idempotency-Key` the same request may be sent again, for a day: one job is made.
#[utoipa::path(post, path = "/v1/jobs", operation_id = "enqueue_job", tag = "jobs", request_body = Wish,
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "Makes one job of requests that are sent twice"),
        ("Prefer" = Option<String>, Header, description = "`wait=10` or `respond-async`"),
    ),
    responses(
        (status = 201, body = Receipt, description = "It is enqueued"),
        (status = 200, body = JobView, description = "It was waited for, and has finished"),
        (status = 202, body = Receipt, description = "It is enqueued, and has not finished yet"),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that it asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "It is a duplicate, or another job has its id"),
        (status = 422, body = Problem, content_type = "application/problem+json",
            description = "The Idempotency-Key was used for another job"),
        (status = 429, body = Problem, content_type = "application/problem+json", description = "The queue is full"),
    ))]
async fn enqueue(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Body(mut wish): Body<Wish>,
) -> Answer<Response> {
    caller.check_wish(&mut wish)?;
    trace::follow(&headers, &mut wish);
    let key = idempotent::key(&headers)?;
    let print = Print::of(&wish);
    let unique = key.as_ref().map(|key| idempotent::unique(&wish, key, None, caller.tenant()));
    let unique = unique.transpose()?;
    let job = Enqueue::try_from(wish)?;
    let job = unique.into_iter().fold(job, Enqueue::unique);
    let job = caller.bound_or_diverted(&app, job).await;
    let receipt = app.mill.enqueue(job).await;
    let receipt = receipt.map_err(|error| taken::refused(error, &[]))?;
    let id = receipt.id();
    taken::check_answer(&app, &caller, &print, &receipt).await?;
    match receipt {
        Receipt::Rejected { .. } => return Err(duplicate(id)),
        Receipt::Joined { .. } if key.is_some() => {
            idempotent::check(&app.mill, &print, id).await.map_err(Refusal::after_write)?;
        }
        _ => {}
    }
    let prefer = Prefer::of(&headers, app.settings.wait_max);
    let (status, applied) = match prefer {
        Prefer::Nothing => (StatusCode::CREATED, None),
        Prefer::Async => (StatusCode::ACCEPTED, Some("respond-async".to_owned())),
        Prefer::Wait(time) => {
            let applied = format!("wait={}", time.as_secs());
            match finished(&app, id, time).await {
                Ok(Some(view)) => {
                    return Ok(with_place((StatusCode::OK, Json(view)), id, Some(applied)));
                }
                // It is enqueued, whatever keeps us from seeing its end.
                Err(refusal) if !refusal.is(StatusCode::SERVICE_UNAVAILABLE) => {
                    return Err(refusal.after_write());
                }
                Ok(None) | Err(_) => (StatusCode::ACCEPTED, Some(applied)),
            }
        }
    };
    Ok(with_place((status, Json(receipt)), id, applied))
}

fn duplicate(id: JobId) -> Refusal {
    let detail = format!(
        "the job is a duplicate of {id}, which holds its unique key; with \"on_duplicate\": \"join\" that one is \
         taken instead"
    );
    Refusal::new(StatusCode::CONFLICT, "duplicate_rejected", detail).about(id)
}

/// Says where the job is, and what was done of what was preferred.
fn with_place(answer: impl IntoResponse, id: JobId, applied: Option<String>) -> Response {
    let mut response = answer.into_response();
    let headers = response.headers_mut();
    if let Ok(place) = HeaderValue::from_str(&format!("/v1/jobs/{id}")) {
        headers.insert(header::LOCATION, place);
    }
    if let Some(applied) = applied.and_then(|applied| HeaderValue::from_str(&applied).ok()) {
        headers.insert(PREFERENCE_APPLIED, applied);
    }
    response
}

/// The job, once it has finished; `None` when it has not in this time.
async fn finished(app: &App, id: JobId, time: Duration) -> Answer<Option<JobView>> {
    match app.patiently(Some(Span(time)), |time| app.mill.wait(id, time)).await {
        Ok(view) => Ok(Some(view)),
        Err(tidemill::Error::WaitTimeout { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Jobs that are enqueued together.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Many {
    /// At most 10,000.
    #[schema(value_type = Vec<Wish>)]
    jobs: Bounded<Wish, BATCH_JOBS_MAX>,
}

/// What became of them, in their order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Receipts {
    receipts: Vec<Receipt>,
}

/// Enqueues many jobs, all of them or none. Duplicates are told in the receipts.
#[utoipa::path(post, path = "/v1/jobs/batch", operation_id = "enqueue_jobs", tag = "jobs", request_body = Many,
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes one job of each of them")),
    responses(
        (status = 201, body = Receipts),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that one of them asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "Another job has the id of one of them"),
        (status = 422, body = Problem, content_type = "application/problem+json",
            description = "The Idempotency-Key was used for another job"),
        (status = 429, body = Problem, content_type = "application/problem+json", description = "The queue is full"),
    ))]
async fn enqueue_many(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Body(Many { jobs }): Body<Many>,
) -> Answer<(StatusCode, Json<Receipts>)> {
    let (key, jobs) = (idempotent::key(&headers)?, jobs.all()?);
    let mut prints = Vec::with_capacity(jobs.len());
    let mut checked = Vec::with_capacity(jobs.len());
    let mut ids = Vec::with_capacity(jobs.len());
    for (index, mut wish) in jobs.into_iter().enumerate() {
        let at = |refusal: Refusal| refusal.at(index);
        caller.check_wish(&mut wish).map_err(at)?;
        trace::follow(&headers, &mut wish);
        prints.push(Print::of(&wish));
        let unique =
            key.as_ref().map(|key| idempotent::unique(&wish, key, Some(index), caller.tenant()));
        let unique = unique.transpose().map_err(at)?;
        let job = Enqueue::try_from(wish).map_err(Refusal::from).map_err(at)?;
        let job = unique.into_iter().fold(job, Enqueue::unique);
        app.mill.check(&job).map_err(Refusal::from).map_err(at)?;
        ids.push(job.job_id());
        checked.push(caller.bound_or_diverted(&app, job).await);
    }
    // With a key all of them are new, or all were there, which the store judges before it commits: so what is refused
    // here afterwards has written nothing, and of two that come at once under one key and differ, one is.
    let receipts = if key.is_some() {
        app.mill.enqueue_together(checked).await
    } else {
        app.mill.enqueue_many(checked).await
    };
    let written = receipts.map_err(|error| taken::refused(error, &ids))?;
    let mut receipts = Vec::with_capacity(written.len());
    for (index, (receipt, sent)) in written.into_iter().zip(prints.iter().zip(ids)).enumerate() {
        let at = |refusal: Refusal| refusal.after_write().at(index);
        let receipt = if key.is_none() || receipt.is_new() {
            taken::told(&app, &caller, sent, receipt).await.map_err(at)?
        } else {
            taken::check_answer(&app, &caller, sent.0, &receipt).await.map_err(at)?;
            receipt
        };
        if let Receipt::Joined { id } = receipt
            && key.is_some()
        {
            idempotent::check(&app.mill, sent.0, id).await.map_err(at)?;
        }
        receipts.push(receipt);
    }
    Ok((StatusCode::CREATED, Json(Receipts { receipts })))
}

/// Which jobs to list. Every condition that is given must hold.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    state: Option<JobState>,
    kind: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    key: Option<String>,
    tag: Option<String>,
    /// The `next` of the page before.
    cursor: Option<JobId>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of jobs, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Page {
    jobs: Vec<JobView>,
    /// What to give as `cursor` for what follows, also where this page is not full; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<JobId>,
}

/// Lists jobs, newest first.
#[utoipa::path(get, path = "/v1/jobs", operation_id = "list_jobs", tag = "jobs", params(Filter), responses(
    (status = 200, body = Page),
))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Answer<Json<Page>> {
    let Filter { state, kind, queue, mut tenant, key, tag, cursor, limit } = filter;
    queue.as_deref().map_or(Ok(()), |queue| caller.check_queue(queue))?;
    caller.check_tenant(&mut tenant)?;
    if limit.is_some_and(|limit| !(1..=1000).contains(&limit)) {
        return Err(Refusal::request("a page has between 1 and 1000 jobs"));
    }
    let limit = limit.unwrap_or(0) as usize;
    let before = cursor;
    let filter = JobFilter { state, kind, queue, tenant, key, tag, before, limit, look_max: 0 };
    let mut page = app.mill.jobs_page(&filter).await?;
    page.jobs.retain(|view| caller.sees(view));
    Ok(Json(Page { jobs: page.jobs, next: page.next }))
}

/// A job, and where it stands.
#[utoipa::path(get, path = "/v1/jobs/{id}", operation_id = "show_job", tag = "jobs",
    params(("id" = JobId, Path)), responses(
        (status = 200, body = JobView, headers(("ETag" = String))),
    ))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Tagged> {
    let view = app.mill.job(id).await?.filter(|view| caller.sees(view));
    let view = view.ok_or(tidemill::Error::JobUnknown { id })?;
    Ok((etag::of(&JobSeen::of(&app, &view)?), Json(view)))
}

/// The names that a change may have.
type Fields = BTreeMap<String, Box<RawValue>>;

/// Changes a job that waits: its band, its payload, its wishes. What is not said stays; `null` takes a wish back.
///
/// With `If-Match` it is refused when somebody else has changed it meanwhile. What makes a job what it is, or says
/// where it stands (its kind, queue, tenant, keys, due time), is not changed.
#[utoipa::path(patch, path = "/v1/jobs/{id}", operation_id = "edit_job", tag = "jobs",
    params(
        ("id" = JobId, Path),
        ("If-Match" = Option<String>, Header, description = "The ETag of the job that was read"),
    ),
    request_body = Changes, responses(
        (status = 200, body = JobView, headers(("ETag" = String))),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It does not wait"),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "It has changed"),
    ))]
async fn edit(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    headers: HeaderMap,
    Body(fields): Body<Fields>,
) -> Answer<(Extension<Detail>, Tagged)> {
    caller.check_job(&app, id).await?;
    if let Some(fixed) = FIXED.iter().find(|name| fields.contains_key(**name)) {
        let detail = format!(
            "{fixed} cannot be changed; cancel the job, and enqueue another (payload, priority and wishes like \
             attempts can be changed)"
        );
        return Err(Refusal::request(detail).about(id));
    }
    let wrong = |error| Refusal::request(format!("the body is not as it should be: {error}"));
    let read = serde_json::to_string(&fields).and_then(|text| serde_json::from_str(&text));
    let changes: Changes = read.map_err(wrong)?;
    let about = |error: tidemill::Error| Refusal::from(error).about(id);
    let edit = |seen: Option<JobSeen>| {
        let edited = app.mill.edit(id, changes.clone(), seen.map(|seen| seen.print));
        async move { edited.await.map_err(about) }
    };
    let differs = || about(tidemill::Error::JobChanged { id });
    let present = || async {
        let view = app.mill.job(id).await.map_err(about)?;
        view.map(|view| JobSeen::of(&app, &view)).transpose()
    };
    etag::wanted(&headers)?.met_by_look(present, differs, edit).await?;
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let shown = show(State(app), caller, Named(id)).await.map_err(Refusal::after_write)?;
    Ok((detail(names.join(" ")), shown))
}

/// Waits until a job has finished. Answers 200 when it has, and 202 when it has not in this time.
#[utoipa::path(get, path = "/v1/jobs/{id}/wait", operation_id = "wait_for_job", tag = "jobs",
    params(("id" = JobId, Path), Patience), responses(
        (status = 200, body = JobView, description = "It has finished"),
        (status = 202, body = JobView, description = "It has not finished yet"),
    ))]
async fn wait(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Params(patience): Params<Patience>,
) -> Answer<(StatusCode, Json<JobView>)> {
    caller.check_job(&app, id).await?;
    let time = patience.time(&app.settings);
    if let Some(view) = finished(&app, id, time).await? {
        return Ok((StatusCode::OK, Json(view)));
    }
    let view = app.mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    let status = if view.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(view)))
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    /// Why; kept with the job.
    #[serde(default)]
    reason: Option<String>,
}

/// What became of a cancel.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Cancelled {
    answer: CancelAnswer,
}

/// Calls a job off. One that runs is told; no attempt starts after this is answered.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", operation_id = "cancel_job", tag = "jobs",
    params(("id" = JobId, Path)), request_body = Cancel, responses(
        (status = 200, body = Cancelled),
    ))]
async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Body(Cancel { reason }): Body<Cancel>,
) -> Answer<Json<Cancelled>> {
    caller.check_job(&app, id).await?;
    let answer = app.mill.cancel(id, reason.as_deref().unwrap_or("cancelled")).await?;
    if answer == CancelAnswer::Unknown {
        return Err(tidemill::Error::JobUnknown { id }.into());
    }
    Ok(Json(Cancelled { answer }))
}

#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RetryBody {
    /// The payload of a dead one may be changed.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// Why; noted on the dead letter. Asked for if it holds up a saga.
    #[serde(default)]
    why: Option<String>,
}

/// A job that was let go, and what that took.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct LetGo {
    #[serde(flatten)]
    job: JobView,
    retried: Retried,
}

/// Lets a job start now: a dead one again, one that waits for the clock without waiting.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", operation_id = "retry_job", tag = "jobs",
    params(("id" = JobId, Path)), request_body = RetryBody, responses(
        (status = 200, body = LetGo, headers(("ETag" = String))),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is neither"),
    ))]
async fn retry(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
    Body(RetryBody { payload, why }): Body<RetryBody>,
) -> Answer<(etag::Tag, Json<LetGo>)> {
    caller.check_job(&app, id).await?;
    let payload = payload.as_ref().map(|raw| raw.get());
    let by = By::from(caller.name()).because(why.as_deref());
    let retried = app.mill.retry(id, by, payload).await;
    let retried = retried.map_err(|error| Refusal::from(error).about(id))?;
    let shown = show(State(app), caller, Named(id)).await.map_err(Refusal::after_write);
    let (tag, Json(job)) = shown?;
    Ok((tag, Json(LetGo { job, retried })))
}

/// A message to a run of a workflow.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Message {
    /// What the run asks for.
    name: String,
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// Sent again under the same id, it is heard once.
    #[serde(default)]
    id: Option<String>,
}

/// Sends a signal to a run. It is kept until the run asks for it.
#[utoipa::path(post, path = "/v1/jobs/{id}/signal", operation_id = "signal_job", tag = "jobs",
    params(("id" = JobId, Path)), request_body = Message, responses(
        (status = 202, description = "It is kept for the run"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has finished"),
        (status = 429, body = Problem, content_type = "application/problem+json",
            description = "It has not taken those it was sent before"),
    ))]
async fn signal(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(run): Named<JobId>,
    Body(Message { name, payload, id }): Body<Message>,
) -> Answer<StatusCode> {
    caller.check_job(&app, run).await?;
    let signal = Signal::new(name, &payload);
    app.mill.signal(run, id.into_iter().fold(signal, Signal::id)).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Why it is not running: in sentences, and as a structure.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Explained {
    #[serde(flatten)]
    why: Why,
    /// One for each gate.
    sentences: Vec<String>,
}

/// Says why a job is not running.
#[utoipa::path(get, path = "/v1/jobs/{id}/why", operation_id = "why_job", tag = "jobs",
    params(("id" = JobId, Path)), responses(
        (status = 200, body = Explained),
    ))]
async fn why(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Explained>> {
    caller.check_job(&app, id).await?;
    let mut why = app.mill.why(id).await?;
    for gate in &mut why.gates {
        // A unique key may be held by a job of a queue that is not this caller's to know. Who leads a line is of the
        // same queue and tenant; it is looked at all the same.
        match gate {
            Gate::Blocked { holder } => {
                if let Some(KeyHolder { id, .. }) = *holder
                    && caller.check_job(&app, id).await.is_err()
                {
                    *holder = None;
                }
            }
            Gate::Line { head, .. } => {
                if let Some(id) = *head
                    && caller.check_job(&app, id).await.is_err()
                {
                    *head = None;
                }
            }
            _ => {}
        }
    }
    let sentences = why.gates.iter().map(ToString::to_string).collect();
    Ok(Json(Explained { why, sentences }))
}

/// The attempts of a job that did not finish it, oldest first.
#[utoipa::path(get, path = "/v1/jobs/{id}/attempts", operation_id = "list_attempts", tag = "jobs",
    params(("id" = JobId, Path)), responses(
        (status = 200, body = Vec<AttemptView>),
    ))]
async fn attempts(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<JobId>,
) -> Answer<Json<Vec<AttemptView>>> {
    caller.check_job(&app, id).await?;
    app.mill.job(id).await?.ok_or(tidemill::Error::JobUnknown { id })?;
    Ok(Json(app.mill.attempts(id).await?))
}
