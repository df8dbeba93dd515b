//! Who works, in every process.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tidemill::store::WorkerView;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::problem::Answer;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// All workers that beat.
#[utoipa::path(get, path = "/v1/workers", operation_id = "list_workers", tag = "workers",
    responses((status = 200, body = Vec<WorkerView>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<WorkerView>>> {
    caller.check_all_tenants()?;
    let mut workers = app.mill.workers().await?;
    workers.retain(|worker| worker.queues.iter().all(|queue| caller.reaches(queue)));
    Ok(Json(workers))
}
