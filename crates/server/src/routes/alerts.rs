//! What somebody should look at.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use tidemill::Alert;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::problem::Answer;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list))
}

/// An alert, and what it says.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Told {
    #[serde(flatten)]
    alert: Alert,
    sentence: String,
}

/// The built-in alerts that hold now: queues that grow, jobs that wait for too long, many that died, sagas that are
/// stuck, kinds that no worker knows.
#[utoipa::path(get, path = "/v1/alerts", operation_id = "list_alerts", tag = "health",
    responses((status = 200, body = Vec<Told>)))]
async fn list(State(app): State<Arc<App>>, caller: Caller) -> Answer<Json<Vec<Told>>> {
    caller.check_all_tenants()?;
    let mut alerts = app.mill.alerts().await?;
    // What is of no queue is of all.
    alerts.retain(|alert| caller.reaches(alert.queue.as_deref().unwrap_or("*")));
    let told = |alert: Alert| Told { sentence: alert.to_string(), alert };
    Ok(Json(alerts.into_iter().map(told).collect()))
}
