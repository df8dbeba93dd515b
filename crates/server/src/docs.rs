//! The page of the API: what there is to ask, for people.
//!
//! It is made once from the description, so it says what the code says, and needs nothing from elsewhere: no other
//! host, no script in the page, no font. Without its script it still reads well; that searches, copies, and keeps the
//! choice of light or dark.

mod example;
mod page;

use std::sync::Arc;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderName, header};

use crate::api::App;
use crate::settings::Access;

const STYLE: &str = include_str!("docs/page.css");
const SCRIPT: &str = include_str!("docs/page.js");
/// Nothing but what this server sends, and nothing to send anywhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The page, and what it is made of.
pub(crate) fn routes(description: &utoipa::openapi::OpenApi, access: Access) -> Router<Arc<App>> {
    let description = serde_json::to_value(description).unwrap_or_default();
    let page: Arc<str> = page::page(&description, access == Access::Credentials).into();
    let page = move || async move { sent("text/html; charset=utf-8", page.to_string()) };
    let style = || async { sent("text/css; charset=utf-8", STYLE) };
    let script = || async { sent("text/javascript; charset=utf-8", SCRIPT) };
    Router::new()
        .route("/docs", get(page))
        .route("/docs/page.css", get(style))
        .route("/docs/page.js", get(script))
}

fn sent(kind: &'static str, body: impl IntoResponse) -> Response {
    let headers: [(HeaderName, &str); 5] = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, body).into_response()
}
