//! Limits with a name: what they let pass, and how they stand. They are kept with the rules of a queue or pattern.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tidemill::{Limit, LimitState};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::extract::{Body, Named, Params, understood};
use crate::problem::{Answer, Problem};

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(set, delete))
}

/// All limits that have a name, and how they stand: who is inside, who is held, whether one is shut.
#[utoipa::path(get, path = "/v1/limits", operation_id = "list_limits", tag = "limits",
    responses((status = 200, body = Vec<LimitState>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<LimitState>>> {
    caller.check_all_tenants()?;
    let mut limits = app.mill.limit_states().await?;
    limits.retain(|state| caller.reaches(&state.limit.queue));
    Ok(Json(limits))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct On {
    /// The queue or pattern whose jobs it means, `*` unless given.
    queue: Option<String>,
}

impl On {
    fn queue(self, caller: &Caller) -> Answer<String> {
        caller.check_all_tenants()?;
        let queue = self.queue.unwrap_or_else(|| "*".to_owned());
        caller.check_queue(&queue)?;
        Ok(queue)
    }
}

/// Sets a limit on the jobs of a queue or pattern. It holds everywhere from the moment this is answered.
#[utoipa::path(put, path = "/v1/limits/{name}", operation_id = "set_limit", tag = "limits",
    params(("name" = String, Path), On),
    request_body(content = Limit, example = json!({ "concurrency": 5 })),
    responses((status = 204, description = "It holds")))]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(on): Params<On>,
    Body(given): Body<Value>,
) -> Answer<StatusCode> {
    let queue = on.queue(&caller)?;
    app.mill.set_limit(&queue, &name, Some(understood("the limit", &given)?)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Takes a limit away.
#[utoipa::path(delete, path = "/v1/limits/{name}", operation_id = "delete_limit", tag = "limits",
    params(("name" = String, Path), On), responses(
        (status = 204, description = "It limits nothing any more"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(on): Params<On>,
) -> Answer<StatusCode> {
    let queue = on.queue(&caller)?;
    app.mill.delete_limit(&queue, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
