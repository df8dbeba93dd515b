//! The queues and the workers at a moment: what a person looks at first.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tidemill::Glance;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::problem::Answer;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The queues, what passes through them, and who works, at most about a second old, as far as the caller reaches.
#[utoipa::path(get, path = "/v1/overview", operation_id = "show_overview", tag = "health",
    responses((status = 200, body = Glance)))]
async fn show(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Glance>> {
    caller.check_all_tenants()?;
    let mut glance = app.mill.glance().await?;
    glance.queues.retain(|queue| caller.reaches(&queue.name));
    glance.passed.retain(|passed| caller.reaches(&passed.queue));
    glance.workers.retain(|worker| worker.queues.iter().all(|queue| caller.reaches(queue)));
    Ok(Json(glance))
}
