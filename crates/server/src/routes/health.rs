//! Whether the process lives, has started, and can write durably.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use tidemill_core::WorkerId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::api::App;
use crate::problem::{Answer, Problem, Refusal};

/// How long the store may take to write.
const WRITE_MAX: Duration = Duration::from_secs(2);

/// Where the server stands.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// It stops, and should be sent nothing more.
    pub(crate) is_stopping: AtomicBool,
}

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(livez))
        .routes(routes!(readyz))
        .routes(routes!(startupz))
        .routes(routes!(now))
}

/// The present.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Present {
    /// By the clock of the store.
    now: Timestamp,
}

/// The present of the store, by which leases and due times are judged, whatever the clocks of callers say.
#[utoipa::path(get, path = "/v1/now", operation_id = "show_now", tag = "health",
    responses((status = 200, body = Present)))]
async fn now(State(app): State<Arc<App>>) -> Answer<Json<Present>> {
    Ok(Json(Present { now: app.mill.now().await? }))
}

/// The process lives.
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, body = str)))]
pub(crate) async fn livez() -> &'static str {
    "ok"
}

/// The server has started: its store is open. Until then everything but `/livez` is answered with `starting`.
#[utoipa::path(get, path = "/startupz", tag = "health", responses(
    (status = 200, body = str),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "Not now"),
))]
async fn startupz() -> &'static str {
    "ok"
}

/// The store takes a write and makes it durable, and the server does not stop.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, body = str),
    (status = 503, body = Problem, content_type = "application/problem+json", description = "Not now"),
))]
async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, Refusal> {
    let unready = |detail: &str| {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail).again_in(1)
    };
    if app.health.is_stopping.load(Ordering::Relaxed) {
        return Err(unready("the server stops"));
    }
    // All servers are one holder, so that each of them writes.
    let holder = WorkerId(Uuid::nil());
    let write = app.mill.store().take_duty("server:ready", holder, Duration::from_secs(1));
    match tokio::time::timeout(WRITE_MAX, write).await {
        Ok(Ok(_)) => Ok("ok"),
        Ok(Err(error)) => {
            // Everybody may ask; where the store is and what ails it is for the log.
            tracing::warn!(%error, "not ready: the store cannot write");
            Err(unready("the store cannot write; the log says why"))
        }
        Err(_) => {
            tracing::warn!(within = ?WRITE_MAX, "not ready: the store took no write in time");
            Err(unready("the store took no write in time; the log says more"))
        }
    }
}
