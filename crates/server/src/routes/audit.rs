//! The record of who did what, for admins.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill::audit::{AuditFilter, AuditView};
use tidemill_core::moment;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::cursor;
use crate::extract::Params;
use crate::problem::Answer;

const LIST: &str = "audit";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which acts are meant. Every condition that is given must hold.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// The name of a credential, `anonymous`, or `cli:` and a user.
    who: Option<String>,
    /// The name of an operation, or of a command.
    act: Option<String>,
    /// What it was done to.
    target: Option<String>,
    /// At this time or later.
    #[serde(default, deserialize_with = "moment::read_option")]
    since: Option<Timestamp>,
    /// Before this time.
    #[serde(default, deserialize_with = "moment::read_option")]
    until: Option<Timestamp>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of acts, newest first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct AuditPage {
    acts: Vec<AuditView>,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Who did what, newest first. Only for admins.
#[utoipa::path(get, path = "/v1/audit", operation_id = "list_audit", tag = "audit", params(Filter),
    responses((status = 200, body = AuditPage)))]
async fn list(
    State(app): State<Arc<App>>,
    Params(Filter { who, act, target, since, until, cursor, limit }): Params<Filter>,
) -> Answer<Json<AuditPage>> {
    let limit = cursor::rows(limit)?;
    let before = cursor::read_id(LIST, cursor.as_deref())?;
    let filter = AuditFilter { who, act, target, since, until, before, limit };
    let acts = app.mill.audit().list(&filter).await?;
    let last = acts.last().filter(|_| acts.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.id.to_string()));
    Ok(Json(AuditPage { acts, next }))
}
