//! The whole API: all routes, what they share, and their description.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde_json::json;
use tidemill::Tidemill;
use tidemill_core::span::Span;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder, Schema};
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Need, admit, need};
use crate::cors;
use crate::docs;
use crate::extract::Within;
use crate::guard::guard;
use crate::nul;
use crate::problem::{Problem, Refusal};
use crate::query::{self, Known};
use crate::routes::{
    alerts, audit, dead, doctor, flows, health, jobs, journal, keys, limits, metrics, overview,
    plans, queues, rules, schedules, streams, tokens, webhooks, work, workers, workflows,
};
use crate::settings::Settings;
use crate::shape::Shapes;
use crate::tls::Tls;

/// What every route has at hand.
pub(crate) struct App {
    pub(crate) mill: Tidemill,
    pub(crate) settings: Settings,
    pub(crate) health: health::Health,
    pub(crate) streams: streams::Streams,
    pub(crate) flow_places: flows::Places,
    pub(crate) tls: Option<Arc<Tls>>,
    /// It stops: who waits for something is answered.
    pub(crate) stop: CancellationToken,
}

impl App {
    /// Asks for something that is answered within `wait`, at most the longest allowed. Who still waits when the server
    /// stops is answered with what there is.
    pub(crate) async fn patiently<T, Fut>(
        &self,
        wait: Option<Span>,
        ask: impl Fn(Duration) -> Fut,
    ) -> T
    where
        Fut: Future<Output = T>,
    {
        let wait = wait.map_or(Duration::ZERO, |Span(wait)| wait.min(self.settings.wait_max));
        tokio::select! {
            biased;
            answer = ask(wait) => answer,
            () = self.stop.cancelled() => ask(Duration::ZERO).await,
        }
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidemill",
        description = "Durable background work. Errors are problem documents with stable codes."
    ),
    components(schemas(Problem)),
    tags(
        (name = "jobs", description = "Enqueue, look at, wait for and call off jobs"),
        (name = "dead", description = "Jobs that gave up, and what was made of them"),
        (name = "queues", description = "Queues and their rules"),
        (name = "schedules", description = "Rules of time, and the jobs they make"),
        (name = "flows", description = "Jobs joined by edges, and sagas"),
        (name = "workflows", description = "Jobs that keep a journal, and how to help them"),
        (name = "limits", description = "Limits with a name"),
        (name = "webhooks", description = "Who is told of ended jobs"),
        (name = "workers", description = "Who works"),
        (name = "work", description = "What a worker does: register, claim, settle, beat, keep a journal"),
        (name = "audit", description = "Who did what"),
        (name = "keys", description = "Keys that values are encrypted with, and their change"),
        (name = "tokens", description = "Who may talk to the server, and what they may do"),
        (name = "health", description = "Whether the server lives, and can do its work"),
    )
)]
struct Described;

/// All routes, and the description that is made from them.
fn described() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    let (routes, mut description) = OpenApiRouter::with_openapi(Described::openapi())
        .merge(health::routes())
        .merge(jobs::routes())
        .merge(streams::routes())
        .merge(dead::routes())
        .merge(plans::routes())
        .merge(rules::routes())
        .merge(queues::routes())
        .merge(schedules::routes())
        .merge(flows::routes())
        .merge(workflows::routes())
        .merge(limits::routes())
        .merge(webhooks::routes())
        .merge(workers::routes())
        .merge(metrics::routes())
        .merge(alerts::routes())
        .merge(overview::routes())
        .merge(doctor::routes())
        .merge(tokens::routes())
        .merge(audit::routes())
        .merge(keys::routes())
        .merge(work::routes())
        .merge(journal::routes())
        .split_for_parts();
    complete(&mut description);
    (routes, description)
}

/// Adds what all operations have in common: who may ask, and the refusals that none of them has to itself.
fn complete(description: &mut utoipa::openapi::OpenApi) {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("tdm_…").build();
    let components = description.components.get_or_insert_default();
    components.add_security_scheme("credential", SecurityScheme::Http(scheme));
    open_parts(&mut components.schemas);
    for (path, item) in &mut description.paths.paths {
        let all = [
            ("GET", &mut item.get),
            ("PUT", &mut item.put),
            ("POST", &mut item.post),
            ("PATCH", &mut item.patch),
            ("DELETE", &mut item.delete),
        ];
        for (method, operation) in all {
            let Some(operation) = operation else { continue };
            let is_open = need(method, path) == Some(Need::Nothing);
            if !is_open {
                let requirement = SecurityRequirement::new("credential", Vec::<String>::new());
                operation.security = Some(vec![requirement]);
            }
            let of_one = ONES.into_iter().find(|(of, _)| path.starts_with(of) && method != "PUT");
            refuse(operation, is_open, of_one.map(|(_, missing)| missing));
            describe(operation);
        }
    }
}

/// A part that knows no other fields would forbid those of the whole; what is refused is refused all the same.
fn open_parts(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let wholes = schemas.values().filter_map(|schema| match schema {
        RefOr::T(Schema::AllOf(whole)) => Some(&whole.items),
        _ => None,
    });
    let parts = wholes.flatten().filter_map(|part| match part {
        RefOr::Ref(part) => part.ref_location.rsplit('/').next().map(str::to_owned),
        RefOr::T(_) => None,
    });
    for name in parts.collect::<Vec<_>>() {
        if let Some(RefOr::T(Schema::Object(part))) = schemas.get_mut(&name) {
            part.additional_properties = None;
        }
    }
}

/// Where an operation is about one thing that may not be there, and how that is told.
const ONES: [(&str, &str); 4] = [
    ("/v1/jobs/{id}", "There is no such job"),
    ("/v1/flows/{id}", "There is no such flow"),
    ("/v1/workflows/{id}", "There is no such run"),
    ("/v1/webhooks/{name}", "There is no such webhook"),
];

/// Says what answers mean that say nothing of themselves: each must.
fn describe(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            let says = match status.as_str() {
                "200" => "As it was asked for",
                "201" => "It was made",
                "202" => "It was taken, and will be done",
                // Why something is refused only its route can say.
                _ => continue,
            };
            says.clone_into(&mut response.description);
        }
    }
}

/// The refusals of an operation, which is open to everybody or not; `missing`: what it says when that is not there
/// which it is about.
fn refuse(operation: &mut Operation, is_open: bool, missing: Option<&str>) {
    let has_body = operation.request_body.is_some();
    for (status, says, is_so) in [
        ("400", "The request, or a wish in it, cannot be", true),
        ("401", "Nobody knows who asks", !is_open),
        ("403", "Who asks may not, or a page of another origin asks", true),
        ("404", missing.unwrap_or_default(), missing.is_some()),
        ("408", "The body did not come in time", has_body),
        ("413", "The body has too many bytes", has_body),
        ("415", "The body is not JSON, or it is compressed", has_body),
        ("421", "The server is not the host that was asked for", true),
        ("500", "The server failed; its log has more", !is_open),
        ("503", "The store cannot be asked just now", !is_open),
    ] {
        if is_so {
            let content = Content::new(Some(Ref::from_schema_name("Problem")));
            let response = ResponseBuilder::new().description(says);
            let response = response.content("application/problem+json", content).build();
            let responses = &mut operation.responses.responses;
            responses.entry(status.to_owned()).or_insert(response.into());
        }
    }
}

/// The description of the API (OpenAPI 3.1).
pub(crate) fn description() -> utoipa::openapi::OpenApi {
    described().1
}

/// The service that answers requests.
pub(crate) fn service(app: Arc<App>) -> Router {
    let (routes, description) = described();
    let settings = &app.settings;
    let known = Arc::new(Known::of(&description));
    let shapes = Arc::new(Shapes::of(&json!(description)));
    routes
        .merge(docs::routes(&description, settings.access))
        .route("/openapi.json", get(move || async move { Json(description) }))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(known, query::check))
        .layer(from_fn_with_state(Arc::clone(&app), admit))
        .layer(from_fn(nul::check))
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .layer(DefaultBodyLimit::max(settings.body_bytes_max))
        .layer(Extension(Within(settings.body_timeout)))
        .layer(Extension(shapes))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            axum::response::IntoResponse::into_response(Refusal::internal(&"a handler panicked"))
        }))
        .layer(from_fn_with_state(Arc::clone(&app), cors::share))
        .with_state(app)
}

async fn unknown_route(uri: http::Uri) -> Refusal {
    let detail = format!("there is nothing at {}; /openapi.json says what there is", uri.path());
    Refusal::new(StatusCode::NOT_FOUND, "route_unknown", detail)
}

async fn wrong_method(method: http::Method, uri: http::Uri) -> Refusal {
    let detail =
        format!("{} does not answer {method}; /openapi.json says what it does", uri.path());
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
