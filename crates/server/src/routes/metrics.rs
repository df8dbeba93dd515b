//! What is measured, for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderName, header};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::problem::Answer;

const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// What this server has measured, and how the whole store stands, in the text form of Prometheus.
///
/// It is of all queues and tenants together, so a credential of some of them does not reach it. The store is looked
/// at once a second at most, however often this is asked for.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "health", responses(
    (status = 200, body = String, content_type = "text/plain; version=0.0.4"),
))]
async fn metrics(
    State(app): State<Arc<App>>,
    caller: Caller,
) -> Answer<([(HeaderName, &'static str); 1], String)> {
    caller.check_all_tenants()?;
    caller.check_queue("*")?;
    let mut page = app.mill.metrics().await;
    page.extend(app.tls.as_ref().map(|tls| tls.measured()));
    Ok(([(header::CONTENT_TYPE, FORM)], page))
}
