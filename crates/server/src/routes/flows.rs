//! Flows and sagas: start, look, wait for, call off, and let go on what is stuck.
//!
//! A flow is of the queues and tenants of its jobs: who is limited to some starts flows of those alone, and knows of a
//! flow if all its jobs are of those.

mod parts;
mod places;

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::{HeaderMap, HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::core::flow::FlowState;
use tidemill::{
    By, Enqueue, Flow, FlowFilter, FlowHead, FlowView, FlowWish, Limits, Output, Payload,
};
use tidemill_core::{FlowId, JobId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail};
use crate::cursor;
use crate::extract::{Body, Named, Params};
use crate::problem::{Answer, Problem, Refusal};
use crate::trace;

pub(crate) use places::Places;

const LIST: &str = "flows";
const OUTPUTS: &str = "outputs";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(show))
        .routes(routes!(cancel))
        .routes(routes!(retry))
        .routes(routes!(rerun))
        .routes(routes!(resolve))
        .routes(routes!(outputs))
        .merge(parts::routes())
}

/// A flow that was started.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct FlowStarted {
    id: FlowId,
    /// Whether it is new, or was there before.
    answer: StartAnswer,
}

/// Whether a flow is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum StartAnswer {
    Started,
    Existing,
}

/// Starts a flow: all of it is written, or nothing. Sent twice under the same `id`, it is started once.
///
/// It has a `name` and `steps`; a step has a `name`, a `kind` with a `payload` (or `payloads`, or `steps` of its own),
/// and says what it comes `after`. With `"saga": true` its steps have an `undo`. With `"building": true` it does not
/// begin yet: its steps can be given more jobs than one request carries. One that was there already is answered with
/// `existing`.
#[utoipa::path(post, path = "/v1/flows", operation_id = "start_flow", tag = "flows",
    request_body(content = FlowWish, example = json!({ "name": "order", "steps": [
        { "name": "charge", "kind": "charge" }, { "name": "ship", "kind": "ship", "after": ["charge"] },
    ] })), responses(
        (status = 201, body = FlowStarted),
        (status = 200, body = FlowStarted, description = "It was there already"),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that one of its jobs asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "Another flow has its id, or another job that of one of its jobs"),
        (status = 429, body = Problem, content_type = "application/problem+json", description = "A queue is full"),
    ))]
async fn start(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    Body(text): Body<Box<RawValue>>,
) -> Answer<(StatusCode, [(HeaderName, String); 1], Json<FlowStarted>)> {
    let mut flow = allowed(&app, &caller, text.get())?;
    flow.each_job(|job| {
        trace::follow_flow(&headers, job);
        Ok::<_, Refusal>(())
    })?;
    let (id, is_new) = app.mill.start_once(flow).await?;
    if !is_new {
        // That nobody can say whose it is does not make it another's.
        let own = find(&app, &caller, id).await.map_err(Refusal::after_write)?;
        own.ok_or(tidemill::Error::FlowTaken { id })?;
    }
    let place = [(header::LOCATION, format!("/v1/flows/{id}"))];
    let (status, answer) = if is_new {
        (StatusCode::CREATED, StartAnswer::Started)
    } else {
        (StatusCode::OK, StartAnswer::Existing)
    };
    Ok((status, place, Json(FlowStarted { id, answer })))
}

/// The flow of a text, if the caller may start it; of the caller's tenant.
fn allowed(app: &App, caller: &Caller, text: &str) -> Answer<Flow> {
    let mut flow = app.mill.read_flow(text)?;
    if caller.is_limited() && flow.is_building() && !flow.has_jobs() {
        let detail = "a flow that is built by a credential of some queues or of one tenant has a job from the start: \
                      by its jobs it is known whose it is";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "flow_invalid", detail));
    }
    flow.each_job(|job: &mut Enqueue| {
        caller.check_queue(job.queue_name())?;
        let mut tenant = job.tenant_name().map(str::to_owned);
        caller.check_tenant(&mut tenant)?;
        if let Some(tenant) = tenant {
            *job = job.clone().tenant(tenant);
        }
        Ok::<_, Refusal>(())
    })?;
    Ok(flow)
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    state: Option<FlowState>,
    name: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of flows, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct FlowPage {
    flows: Vec<FlowHead>,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Flows, newest first. Only for credentials that reach all queues and tenants.
#[utoipa::path(get, path = "/v1/flows", operation_id = "list_flows", tag = "flows", params(Filter),
    responses((status = 200, body = FlowPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(Filter { state, name, cursor, limit }): Params<Filter>,
) -> Answer<Json<FlowPage>> {
    caller.check_all_tenants()?;
    caller.check_queue("*")?;
    let limit = cursor::rows(limit)?;
    let before = cursor::read_id(LIST, cursor.as_deref())?;
    let flows = app.mill.flows(&FlowFilter { state, name, before, limit }).await?;
    let last = flows.last().filter(|_| flows.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.id.to_string()));
    Ok(Json(FlowPage { flows, next }))
}

/// A flow that the caller may know of.
async fn seen(app: &App, caller: &Caller, id: FlowId) -> Answer<FlowView> {
    let unknown = || Refusal::from(tidemill::Error::FlowUnknown { id });
    find(app, caller, id).await?.ok_or_else(unknown)
}

/// The same, if there is one that the caller may know of.
pub(crate) async fn find(app: &App, caller: &Caller, id: FlowId) -> Answer<Option<FlowView>> {
    let Some(view) = app.mill.flow(id).await? else { return Ok(None) };
    if caller.is_limited() {
        let places = app.flow_places.of(&app.mill, &view).await?;
        let undos = view.steps.iter().filter_map(|step| step.undo.as_ref());
        let undos = undos.map(|undo| (&undo.queue, &undo.tenant));
        let mut all = places.iter().map(|(queue, tenant)| (queue, tenant)).chain(undos);
        let is_seen = all.all(|(queue, tenant)| caller.sees_place(queue, tenant.as_deref()));
        // A flow without jobs is nobody's.
        if places.is_empty() || !is_seen {
            return Ok(None);
        }
    }
    Ok(Some(view))
}

/// Refuses a flow that the caller may not know of. Who may know of all is not asked: the flow is looked at once less.
async fn check(app: &App, caller: &Caller, id: FlowId) -> Answer<()> {
    if caller.is_limited() {
        seen(app, caller, id).await?;
    }
    Ok(())
}

/// A flow with its steps.
#[utoipa::path(get, path = "/v1/flows/{id}", operation_id = "show_flow", tag = "flows",
    params(("id" = FlowId, Path)), responses((status = 200, body = FlowView)))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
) -> Answer<Json<FlowView>> {
    seen(&app, &caller, id).await.map(Json)
}

/// What came of an act on a flow.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct FlowActed {
    /// How many jobs it came to.
    jobs: u64,
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FlowCancel {
    /// Why; kept with the flow.
    #[serde(default)]
    reason: Option<String>,
}

/// Calls a flow off: what waits never starts, what runs is told, and it ends when that has ended. Answers how many of
/// its jobs had not ended.
#[utoipa::path(post, path = "/v1/flows/{id}/cancel", operation_id = "cancel_flow", tag = "flows",
    params(("id" = FlowId, Path)), request_body = FlowCancel, responses(
        (status = 200, body = FlowActed),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has ended"),
    ))]
async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Body(FlowCancel { reason }): Body<FlowCancel>,
) -> Answer<Acted> {
    seen(&app, &caller, id).await?;
    let jobs = app.mill.cancel_flow(id, reason.as_deref().unwrap_or("cancelled")).await?;
    Ok(acted(reason.as_deref(), jobs))
}

/// An act on a flow, with what the record says of it: where, or why.
type Acted = (Extension<Detail>, Json<FlowActed>);

fn acted(words: Option<&str>, jobs: u64) -> Acted {
    let number = format!("{jobs} {}", if jobs == 1 { "job" } else { "jobs" });
    let words = words.map_or(number.clone(), |words| format!("{words}; {number}"));
    (detail(words), Json(FlowActed { jobs }))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FlowRetry {
    /// Those of this step only, and with them those that were called off. If it has none and the flow was called off,
    /// it goes on at this step, or behind it if it is done.
    #[serde(default)]
    step: Option<String>,
    /// Why; noted on the dead letters. Asked for if the flow is a saga that is stuck.
    #[serde(default)]
    why: Option<String>,
}

/// Sends the dead jobs of a flow on their way again; what was skipped because of them waits again.
#[utoipa::path(post, path = "/v1/flows/{id}/retry", operation_id = "retry_flow", tag = "flows",
    params(("id" = FlowId, Path)), request_body = FlowRetry, responses(
        (status = 200, body = FlowActed),
        (status = 400, body = Problem, content_type = "application/problem+json",
            description = "The request cannot be, or it is stuck and nobody said why it is to go on"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It cannot now"),
    ))]
async fn retry(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Body(FlowRetry { step, why }): Body<FlowRetry>,
) -> Answer<Acted> {
    seen(&app, &caller, id).await?;
    let by = By::from(caller.name()).because(why.as_deref());
    let jobs = app.mill.retry_flow(id, step.as_deref(), by).await?;
    let words = [step.map(|step| format!("step {step:?}")), why];
    let words: Vec<String> = words.into_iter().flatten().collect();
    Ok(acted((!words.is_empty()).then(|| words.join(": ")).as_deref(), jobs))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FlowRerun {
    /// From this step on.
    step: String,
}

/// Lets a step and everything that comes after it run again, as fresh jobs; what has run stays, as history.
#[utoipa::path(post, path = "/v1/flows/{id}/rerun", operation_id = "rerun_flow", tag = "flows",
    params(("id" = FlowId, Path)), request_body = FlowRerun, responses(
        (status = 200, body = FlowActed),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It cannot now"),
    ))]
async fn rerun(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Body(FlowRerun { step }): Body<FlowRerun>,
) -> Answer<Acted> {
    seen(&app, &caller, id).await?;
    let jobs = app.mill.rerun_flow(id, &step).await?;
    Ok(acted(Some(&format!("from step {step:?}")), jobs))
}

#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Resolve {
    /// Which step has a dead job.
    step: String,
    /// What it is to have returned.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    output: Option<Box<RawValue>>,
    /// Why; noted on the dead letter.
    why: String,
}

/// Lets the dead job of a step count as done: somebody has seen to it, or it is to be left out.
#[utoipa::path(post, path = "/v1/flows/{id}/resolve", operation_id = "resolve_step", tag = "flows",
    params(("id" = FlowId, Path)), request_body = Resolve, responses(
        (status = 200, body = FlowActed),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It cannot now"),
    ))]
async fn resolve(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Body(Resolve { step, output, why }): Body<Resolve>,
) -> Answer<Acted> {
    seen(&app, &caller, id).await?;
    let output = output.map(|raw| Payload::parse(raw.get(), &Limits::default())).transpose()?;
    let jobs = app.mill.resolve_step(id, &step, output, caller.name(), &why).await?;
    Ok(acted(Some(&format!("step {step:?}: {why}")), jobs))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OfStep {
    /// The step.
    step: String,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of what jobs returned, by id.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct OutputPage {
    outputs: Vec<Output>,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// What the jobs of a step returned, by id; nothing of those that are dead or were called off.
#[utoipa::path(get, path = "/v1/flows/{id}/outputs", operation_id = "flow_outputs", tag = "flows",
    params(("id" = FlowId, Path), OfStep), responses((status = 200, body = OutputPage)))]
async fn outputs(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<FlowId>,
    Params(OfStep { step, cursor, limit }): Params<OfStep>,
) -> Answer<Json<OutputPage>> {
    let limit = cursor::rows(limit)?;
    let after: Option<JobId> = cursor::read_id(OUTPUTS, cursor.as_deref())?;
    seen(&app, &caller, id).await?;
    let outputs = app.mill.flow_outputs(id, &step, after, limit).await?;
    let last = outputs.last().filter(|_| outputs.len() == limit);
    let next = last.map(|last| cursor::write(OUTPUTS, &last.id.to_string()));
    Ok(Json(OutputPage { outputs, next }))
}
