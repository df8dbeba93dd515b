//! Who works, in every process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tidemill::store::WorkerView;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::problem::Answer;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// All workers that beat.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "workers",
    responses((status = 200, body = Vec<WorkerView>)))]
async fn list(State(app): State<Arc<App>>) -> Answer<Json<Vec<WorkerView>>> {
    Ok(Json(app.mill.workers().await?))
}
