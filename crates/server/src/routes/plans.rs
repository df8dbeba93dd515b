//! Plans for dead letters: preview what is to be done to many, apply exactly that, take it back where that can be.
//!
//! A plan reaches as far as its filter does, and is there for those callers alone who reach as far.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use tidemill::{DeadFilter, PlanAct, PlanView};
use tidemill_core::PlanId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail, letters};
use crate::cursor;
use crate::extract::{Body, Named, Params};
use crate::problem::{Answer, Problem};

const LIST: &str = "plans";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(make, list))
        .routes(routes!(show))
        .routes(routes!(apply))
        .routes(routes!(undo))
}

/// What is to be done, and to which dead letters.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct PlanWish {
    /// `"replay"`, `{"triage": "abandoned"}`, `"archive"` or `"delete"`.
    act: PlanAct,
    /// Which letters; every condition that is given must hold, and none means all that the caller reaches.
    #[serde(default)]
    filter: DeadFilter,
    /// Why; noted on each letter.
    #[serde(default = "no_reason")]
    why: String,
}

fn no_reason() -> String {
    "no reason given".to_owned()
}

/// Makes a plan: which letters match now, by group, and what would be done. Nothing is done yet.
///
/// A credential that is limited to queues names one of them. At most 100,000 letters.
#[utoipa::path(post, path = "/v1/dead/plans", operation_id = "plan_dead", tag = "dead", request_body = PlanWish,
    responses((status = 201, body = PlanView, headers(("Location" = String)))))]
async fn make(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(PlanWish { act, mut filter, why }): Body<PlanWish>,
) -> Answer<(StatusCode, [(HeaderName, String); 1], Extension<Detail>, Json<PlanView>)> {
    caller.check_queue(filter.queue.as_deref().unwrap_or("*"))?;
    caller.check_tenant(&mut filter.tenant)?;
    let view = app.mill.dead().plan(filter, act, caller.name(), &why).await?;
    let place = [(header::LOCATION, format!("/v1/dead/plans/{}", view.id))];
    let words = detail(told(&view, view.letters));
    Ok((StatusCode::CREATED, place, words, Json(view)))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Part {
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of plans, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct PlanPage {
    plans: Vec<PlanView>,
    /// What to give as `cursor` for what follows, also where this page is not full; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Plans that are kept, newest first.
#[utoipa::path(get, path = "/v1/dead/plans", operation_id = "list_plans", tag = "dead", params(Part),
    responses((status = 200, body = PlanPage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(Part { cursor, limit }): Params<Part>,
) -> Answer<Json<PlanPage>> {
    let limit = cursor::rows(limit)?;
    let before = cursor::read_id(LIST, cursor.as_deref())?;
    let mut plans = app.mill.dead().plans(before, limit).await?;
    let last = plans.last().filter(|_| plans.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.id.to_string()));
    plans.retain(|plan| sees(&caller, plan));
    Ok(Json(PlanPage { plans, next }))
}

/// Whether the caller reaches as far as a plan does.
fn sees(caller: &Caller, plan: &PlanView) -> bool {
    let mut tenant = plan.filter.tenant.clone();
    caller.reaches(plan.filter.queue.as_deref().unwrap_or("*"))
        && caller.check_tenant(&mut tenant).is_ok()
        && tenant == plan.filter.tenant
}

async fn seen(app: &App, caller: &Caller, id: PlanId) -> Answer<PlanView> {
    let view = app.mill.dead().find_plan(id).await?;
    if sees(caller, &view) { Ok(view) } else { Err(tidemill::Error::PlanUnknown { id }.into()) }
}

/// A plan, and how far it has come.
#[utoipa::path(get, path = "/v1/dead/plans/{id}", operation_id = "show_plan", tag = "dead",
    params(("id" = PlanId, Path)), responses(
        (status = 200, body = PlanView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such plan"),
    ))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<PlanId>,
) -> Answer<Json<PlanView>> {
    Ok(Json(seen(&app, &caller, id).await?))
}

/// Does what a plan says, to exactly those letters that it named; one that has changed since is passed.
///
/// Applied again, it goes on where it was stopped, or answers as before: nothing is done twice.
#[utoipa::path(post, path = "/v1/dead/plans/{id}/apply", operation_id = "apply_plan", tag = "dead",
    params(("id" = PlanId, Path)), responses(
        (status = 200, body = PlanView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such plan"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "Its time is over, or it was undone"),
    ))]
async fn apply(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<PlanId>,
) -> Answer<(Extension<Detail>, Json<PlanView>)> {
    seen(&app, &caller, id).await?;
    let view = app.mill.dead().apply(id, caller.name()).await?;
    Ok((detail(told(&view, view.done)), Json(view)))
}

/// What the trail says of so many letters of a plan.
fn told(plan: &PlanView, number: u64) -> String {
    format!("{} {}", plan.act.word(), letters(number, &[]))
}

/// Takes back what a plan did, of letters that are as it left them; a replay of jobs that have not started since.
#[utoipa::path(post, path = "/v1/dead/plans/{id}/undo", operation_id = "undo_plan", tag = "dead",
    params(("id" = PlanId, Path)), responses(
        (status = 200, body = PlanView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "No such plan"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "Nothing of it was applied, or what was deleted cannot be brought back"),
    ))]
async fn undo(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(id): Named<PlanId>,
) -> Answer<(Extension<Detail>, Json<PlanView>)> {
    seen(&app, &caller, id).await?;
    let view = app.mill.dead().undo(id, caller.name()).await?;
    Ok((detail(told(&view, view.undone)), Json(view)))
}
