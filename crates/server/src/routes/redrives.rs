//! Rules by which dead letters are sent on their way again by themselves.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use tidemill::RedriveRule;
use tidemill_core::ErrorClass;
use tidemill_core::span::Span;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named};
use crate::problem::{Answer, Refusal};

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, delete))
}

/// A rule is of all tenants, and of one queue or of all.
fn check(caller: &Caller, queue: Option<&str>) -> Answer<()> {
    caller.check_all_tenants()?;
    caller.check_queue(queue.unwrap_or("*"))
}

/// The rules by which dead letters are sent on their way again, by name.
#[utoipa::path(get, path = "/v1/dead/rules", operation_id = "list_redrive_rules", tag = "dead",
    responses((status = 200, body = Vec<RedriveRule>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<RedriveRule>>> {
    caller.check_all_tenants()?;
    let mut rules = app.mill.dead().rules().await?;
    rules.retain(|rule| caller.reaches(rule.queue.as_deref().unwrap_or("*")));
    Ok(Json(rules))
}

/// Which dead letters a rule sends on their way again, when, and how often.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Redrive {
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those of this queue.
    queue: Option<String>,
    /// Only this class of failure.
    class: Option<ErrorClass>,
    /// Only when the error contains this text.
    error_contains: Option<String>,
    /// How long after its death, `5m` unless given.
    #[schema(value_type = Option<String>, example = "5m")]
    delay: Option<Span>,
    /// How often at most for one job, once unless given.
    #[schema(minimum = 1)]
    redrives_max: Option<u16>,
}

const DELAY: std::time::Duration = std::time::Duration::from_mins(5);

/// Sets a rule: from now on, dead letters that it means are sent on their way again by any node.
#[utoipa::path(put, path = "/v1/dead/rules/{name}", operation_id = "set_redrive_rule", tag = "dead",
    params(("name" = String, Path)), request_body = Redrive,
    responses((status = 204, description = "It holds")))]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(redrive): Body<Redrive>,
) -> Answer<StatusCode> {
    let Redrive { kind, queue, class, error_contains, delay, redrives_max } = redrive;
    check(&caller, queue.as_deref())?;
    if redrives_max == Some(0) {
        return Err(Refusal::request("redrives_max is at least 1"));
    }
    let known = app.mill.dead().rules().await?;
    if let Some(known) = known.iter().find(|rule| rule.name == name) {
        check(&caller, known.queue.as_deref())?;
    }
    let delay_ms = u64::try_from(delay.map_or(DELAY, |span| span.0).as_millis());
    let delay_ms = delay_ms.map_err(|_| Refusal::request("the delay is too long"))?;
    let redrives_max = redrives_max.unwrap_or(1);
    let rule = RedriveRule { name, kind, queue, class, error_contains, delay_ms, redrives_max };
    app.mill.dead().set_rule(rule).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a rule away; also one that is not there.
#[utoipa::path(delete, path = "/v1/dead/rules/{name}", operation_id = "delete_redrive_rule", tag = "dead",
    params(("name" = String, Path)), responses((status = 204, description = "There is none any more")))]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    let known = app.mill.dead().rules().await?;
    let known = known.iter().find(|rule| rule.name == name);
    check(&caller, known.and_then(|rule| rule.queue.as_deref()))?;
    app.mill.dead().remove_rule(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
