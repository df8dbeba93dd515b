//! Credentials: who may talk to a server, and what they may do there. Only an admin is let in.
//!
//! A secret is in the answer that makes it, and in no other.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use tidemill::{CredentialView, Grant, Role};
use tidemill_core::CredentialId;
use tidemill_core::span::Span;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::audit::{Detail, detail};
use crate::extract::{Body, Named};
use crate::problem::{Answer, Problem};

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(find)).routes(routes!(revoke))
}

/// All credentials that are kept, newest first, without their secrets; those that have ended, for 90 days.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens",
    responses((status = 200, body = Vec<CredentialView>)))]
async fn list(State(app): State<Arc<App>>) -> Answer<Json<Vec<CredentialView>>> {
    Ok(Json(app.mill.credentials().list().await?))
}

/// A credential that is to be made.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct TokenWish {
    /// For people; of those that are live, each has another.
    name: String,
    role: Role,
    /// The queues, by name or pattern, that it reaches; none means all.
    #[serde(default)]
    queues: Vec<String>,
    /// The one tenant that it reaches; none means all.
    #[serde(default)]
    tenant: Option<String>,
    /// How long it is good for; until it is revoked, when not given.
    #[serde(default)]
    expires_in: Option<Span>,
}

/// A credential, and its secret.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct TokenMade {
    #[serde(flatten)]
    token: CredentialView,
    /// What its holder shows. It is told this once.
    secret: String,
}

/// Makes a credential. Its secret is in the answer, this once.
#[utoipa::path(post, path = "/v1/tokens", operation_id = "create_token", tag = "tokens", request_body = TokenWish,
    responses((status = 201, body = TokenMade)))]
async fn create(
    State(app): State<Arc<App>>,
    Body(wish): Body<TokenWish>,
) -> Answer<(StatusCode, [(HeaderName, String); 1], Extension<Detail>, Json<TokenMade>)> {
    let TokenWish { name, role, queues, tenant, expires_in } = wish;
    let (grant, expires_in) = (Grant { role, queues, tenant }, expires_in.map(|span| span.0));
    let (token, secret) = app.mill.credentials().create(&name, grant, expires_in).await?;
    let place = [(header::LOCATION, format!("/v1/tokens/{}", token.id))];
    let words = detail(format!("{name}, {}", role.word()));
    let made = TokenMade { token, secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, place, words, Json(made)))
}

/// Which credential.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct TokenNamed {
    /// The name of a live one, an id, or a secret that was found where it should not be.
    which: String,
}

/// The credential that is meant. In the body, because it may be a secret.
#[utoipa::path(post, path = "/v1/tokens/find", operation_id = "find_token", tag = "tokens",
    request_body = TokenNamed, responses(
        (status = 200, body = CredentialView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn find(
    State(app): State<Arc<App>>,
    Body(TokenNamed { which }): Body<TokenNamed>,
) -> Answer<Json<CredentialView>> {
    Ok(Json(app.mill.credentials().find(&which).await?))
}

/// Ends a credential: everywhere within a second.
#[utoipa::path(delete, path = "/v1/tokens/{id}", operation_id = "revoke_token", tag = "tokens",
    params(("id" = CredentialId, Path)), responses(
        (status = 204, description = "It is not accepted any more"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn revoke(State(app): State<Arc<App>>, Named(id): Named<CredentialId>) -> Answer<StatusCode> {
    app.mill.credentials().revoke(id).await?;
    Ok(StatusCode::NO_CONTENT)
}
