//! Webhooks: who is told of ended jobs and parked runs, and what became of it.
//!
//! A secret is in the answer that makes it, and in no other. A caller of one tenant has that tenant's webhooks alone;
//! one that is limited to queues has those that mean no others.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tidemill::{Delivery, WebhookView};
use tidemill_core::webhook::Webhook;
use tidemill_core::webhook::target::Target;
use tidemill_core::{JobId, State as JobState};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail};
use crate::extract::{Body, Named, Params};
use crate::problem::{Answer, Problem, Refusal};

const PAGE_DEFAULT: u64 = 50;
const PAGE_MAX: u64 = 1000;
/// How long an old secret goes on signing.
const OVERLAP_S: u64 = 24 * 3600;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, set, delete))
        .routes(routes!(rotate))
        .routes(routes!(deliveries))
        .routes(routes!(redeliver))
}

/// A webhook and, once, its new secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Made {
    #[serde(flatten)]
    webhook: WebhookView,
    /// What its receiver verifies with. It is shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

fn reaches(caller: &Caller, webhook: &Webhook) -> bool {
    let of_tenant = caller.tenant().is_none() || caller.tenant() == webhook.tenant.as_deref();
    let is_of_all = webhook.queues.is_empty() || webhook.alerts;
    let of_queues = webhook.queues.iter().all(|queue| caller.reaches(queue));
    of_tenant && of_queues && (!is_of_all || caller.reaches("*"))
}

/// The webhook, if it is the caller's; else it is not there.
async fn found(app: &App, caller: &Caller, name: &str) -> Answer<WebhookView> {
    let view = app.mill.webhooks().get(name).await?;
    check_reach(caller, name, &view.webhook)?;
    Ok(view)
}

/// Refuses a webhook that is not the caller's, as one that is not there.
fn check_reach(caller: &Caller, name: &str, webhook: &Webhook) -> Answer<()> {
    if reaches(caller, webhook) {
        return Ok(());
    }
    Err(tidemill::Error::WebhookUnknown { name: name.to_owned() }.into())
}

/// All webhooks, by name, without their secrets.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "list_webhooks", tag = "webhooks",
    responses((status = 200, body = Vec<WebhookView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<WebhookView>>> {
    let mut all = app.mill.webhooks().list().await?;
    all.retain(|view| reaches(&caller, &view.webhook));
    Ok(Json(all))
}

/// One webhook, and whether its endpoint is spared because too much failed.
#[utoipa::path(get, path = "/v1/webhooks/{name}", operation_id = "show_webhook", tag = "webhooks",
    params(("name" = String, Path)), responses((status = 200, body = WebhookView)))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Json<WebhookView>> {
    Ok(Json(found(&app, &caller, &name).await?))
}

/// Makes or changes a webhook. The secret of a new one is in the answer, this once.
#[utoipa::path(put, path = "/v1/webhooks/{name}", operation_id = "set_webhook", tag = "webhooks",
    params(("name" = String, Path)), request_body = Webhook, responses(
        (status = 200, body = Made, description = "It was changed"),
        (status = 201, body = Made, description = "It was made; here is its secret"),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "The name is taken by a webhook that the credential does not reach"),
    ))]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(mut webhook): Body<Webhook>,
) -> Answer<(StatusCode, Json<Made>)> {
    caller.check_tenant(&mut webhook.tenant)?;
    if webhook.queues.is_empty() || webhook.alerts {
        caller.check_queue("*")?;
    }
    webhook.queues.iter().try_for_each(|queue| caller.check_queue(queue))?;
    let refused = |error: tidemill_core::Error| Refusal::from(tidemill::Error::from(error));
    let target = Target::parse(&webhook.url).map_err(refused)?;
    app.settings.webhooks.check_url(&target).map_err(refused)?;
    // Asked where it is written: of two tenants that make one of the same name at once, one does.
    let may = |known: &Webhook| {
        if reaches(&caller, known) {
            return Ok(());
        }
        let detail = format!(
            "the name {name:?} is taken by a webhook that this credential does not reach; choose another"
        );
        Err(Refusal::new(StatusCode::NOT_FOUND, "webhook_unknown", detail))
    };
    let (webhook, secret) =
        app.mill.webhooks().set_if(&name, webhook, may).await.map_err(Refusal::after_write)?;
    let status = if secret.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    let secret = secret.map(|secret| secret.reveal().to_owned());
    Ok((status, Json(Made { webhook, secret })))
}

/// Takes a webhook away. What was to be delivered to it is called off.
#[utoipa::path(delete, path = "/v1/webhooks/{name}", operation_id = "delete_webhook", tag = "webhooks",
    params(("name" = String, Path)), responses((status = 204, description = "There is none any more")))]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    let may = |known: &Webhook| check_reach(&caller, &name, known);
    app.mill.webhooks().delete_if(&name, may).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a secret is changed.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Rotation {
    /// The old secret goes on signing so long, beside the new one; a day when not given, 90 days at most.
    #[serde(default)]
    overlap_s: Option<u64>,
}

/// Gives a webhook a new secret, which is in the answer, this once.
#[utoipa::path(post, path = "/v1/webhooks/{name}/rotate", operation_id = "rotate_webhook", tag = "webhooks",
    params(("name" = String, Path)), request_body = Rotation, responses((status = 200, body = Made)))]
async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(Rotation { overlap_s }): Body<Rotation>,
) -> Answer<Json<Made>> {
    let overlap_s = overlap_s.unwrap_or(OVERLAP_S);
    let (overlap, may) =
        (Duration::from_secs(overlap_s), |known: &Webhook| check_reach(&caller, &name, known));
    let rotated = app.mill.webhooks().rotate_if(&name, overlap, may).await;
    let (webhook, secret) = rotated.map_err(Refusal::after_write)?;
    Ok(Json(Made { webhook, secret: Some(secret.reveal().to_owned()) }))
}

/// Which deliveries.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Page {
    /// Only those in this state.
    state: Option<JobState>,
    /// Made before this one: `next` of the page before.
    before: Option<JobId>,
    /// At most so many; 50 when not given, 1,000 at most.
    limit: Option<u64>,
}

/// A page of deliveries.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Deliveries {
    deliveries: Vec<Delivery>,
    /// Where the next page begins, if there may be one.
    next: Option<JobId>,
}

/// The deliveries of a webhook, newest first: statuses and times, and no bodies. `/v1/jobs/{id}/attempts` has each try.
#[utoipa::path(get, path = "/v1/webhooks/{name}/deliveries", operation_id = "list_deliveries", tag = "webhooks",
    params(("name" = String, Path), Page), responses((status = 200, body = Deliveries)))]
async fn deliveries(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(page): Params<Page>,
) -> Answer<Json<Deliveries>> {
    let limit = page.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Refusal::request(format!("a page has between 1 and {PAGE_MAX} deliveries")));
    }
    found(&app, &caller, &name).await?;
    let hooks = app.mill.webhooks();
    let (mut deliveries, next) =
        hooks.deliveries(&name, page.state, page.before, limit as usize).await?;
    deliveries.retain(|delivery| sees(&caller, delivery));
    Ok(Json(Deliveries { deliveries, next }))
}

/// Whether the caller may know of what is told: the webhook may have told of others before it was theirs.
fn sees(caller: &Caller, delivery: &Delivery) -> bool {
    let queue = delivery.queue.as_deref().unwrap_or("*");
    caller.sees_place(queue, delivery.tenant.as_deref())
}

/// Which delivery.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    delivery: JobId,
}

/// Sends a message once more, now, under the id it had. Answers by which delivery.
#[utoipa::path(post, path = "/v1/webhooks/{name}/redeliver", operation_id = "redeliver_webhook", tag = "webhooks",
    params(("name" = String, Path)), request_body = Which, responses((status = 202, body = Which)))]
async fn redeliver(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(Which { delivery }): Body<Which>,
) -> Answer<(StatusCode, Extension<Detail>, Json<Which>)> {
    found(&app, &caller, &name).await?;
    let may = |delivery: &Delivery| sees(&caller, delivery);
    let sent = app.mill.webhooks().redeliver_if(&name, delivery, caller.name(), may).await?;
    let words = format!("the delivery {delivery} again, as {sent}");
    Ok((StatusCode::ACCEPTED, detail(words), Json(Which { delivery: sent })))
}
