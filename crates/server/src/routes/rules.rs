//! Rules that replay known-recoverable dead letters by themselves.
//!
//! A rule reaches as far as its queue does: who is limited to queues sees and sets those of their own.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use tidemill::{ErrorClass, RedriveRule};
use tidemill_core::span::Span;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named};
use crate::problem::{Answer, Refusal};

const DELAY_MAX: Duration = Duration::from_hours(24 * 365);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, delete))
}

/// The rules, by name, as far as the caller reaches.
#[utoipa::path(get, path = "/v1/dead/rules", operation_id = "list_rules", tag = "dead",
    responses((status = 200, body = Vec<RedriveRule>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<RedriveRule>>> {
    caller.check_all_tenants()?;
    let mut rules = app.mill.dead().rules().await?;
    rules.retain(|rule| caller.reaches(queue(rule)));
    Ok(Json(rules))
}

fn queue(rule: &RedriveRule) -> &str {
    rule.queue.as_deref().unwrap_or("*")
}

/// Refuses a rule of this name that is out of the caller's reach.
async fn check(app: &App, caller: &Caller, name: &str) -> Answer<()> {
    caller.check_all_tenants()?;
    let rules = app.mill.dead().rules().await?;
    let is_reached = |rule: &RedriveRule| rule.name != name || caller.reaches(queue(rule));
    if rules.iter().all(is_reached) {
        return Ok(());
    }
    let detail = format!(
        "the name {name:?} is taken by a rule of queues that are not reached; choose another"
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, "queue_refused", detail))
}

/// Which dead letters a rule means, and when and how often it sends them. Every condition that is given must hold.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RuleWish {
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    queue: Option<String>,
    /// The class of the failure.
    #[serde(default)]
    class: Option<ErrorClass>,
    /// The error contains this text.
    #[serde(default)]
    error_contains: Option<String>,
    /// How long after the death, at most a year; 5m unless given.
    #[serde(default)]
    delay: Option<Span>,
    /// How often at most for one job; 1 unless given.
    #[serde(default)]
    redrives_max: Option<u16>,
}

/// Sets a rule: dead letters that it means are replayed by any worker, as often as it allows.
#[utoipa::path(put, path = "/v1/dead/rules/{name}", operation_id = "set_rule", tag = "dead",
    params(("name" = String, Path)), request_body = RuleWish,
    responses((status = 200, body = RedriveRule)))]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(wish): Body<RuleWish>,
) -> Answer<Json<RedriveRule>> {
    check(&app, &caller, &name).await?;
    let RuleWish { kind, queue: of, class, error_contains, delay, redrives_max } = wish;
    let delay = delay.map_or(Duration::from_mins(5), |Span(delay)| delay);
    if delay > DELAY_MAX {
        return Err(Refusal::request("a rule waits for a year at most"));
    }
    let (delay_ms, redrives_max) = (delay.as_millis() as u64, redrives_max.unwrap_or(1));
    let rule = RedriveRule { name, kind, queue: of, class, error_contains, delay_ms, redrives_max };
    caller.check_queue(queue(&rule))?;
    app.mill.dead().set_rule(rule.clone()).await?;
    Ok(Json(rule))
}

/// Takes a rule away; one that is not there is gone already.
#[utoipa::path(delete, path = "/v1/dead/rules/{name}", operation_id = "delete_rule", tag = "dead",
    params(("name" = String, Path)), responses((status = 204, description = "It is gone")))]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<StatusCode> {
    check(&app, &caller, &name).await?;
    app.mill.dead().delete_rule(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
