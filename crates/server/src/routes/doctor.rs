//! The health of the store, looked at on demand: what `tidemill doctor` says where the store is.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tidemill::store::view::Finding;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::problem::Answer;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(examine))
}

/// Looks at the health of the store: settings that could lose jobs, room that runs out, transactions that stand in the
/// way. It takes up to some seconds, and changes nothing.
#[utoipa::path(get, path = "/v1/doctor", operation_id = "examine_store", tag = "health",
    responses((status = 200, body = Vec<Finding>)))]
async fn examine(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<Finding>>> {
    caller.check_all_tenants()?;
    Ok(Json(app.mill.examine().await?))
}
