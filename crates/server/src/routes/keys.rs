//! The keys that values are encrypted with: how much each of them holds, and everything under the first one.
//!
//! A request goes a part of the way, about a second, and says where the next goes on: none takes as long as the store
//! is large, and a rotation that was stopped loses nothing. Only admins are let in, who reach all tenants and queues.
//! Keys themselves are the server's own, and never told.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use tidemill::store::value::Spot;
use tidemill::{KeyCount, Rotated};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::App;
use crate::audit::{Detail, detail};
use crate::cursor;
use crate::extract::{Body, Params};
use crate::problem::{Answer, Problem};

const LIST: &str = "keys";
const ROTATION: &str = "rotation";

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(rotate))
}

/// Where to go on.
#[derive(Debug, Deserialize, utoipa::IntoParams, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeysFrom {
    /// The `next` of the part before; from the beginning, when not given.
    cursor: Option<String>,
}

fn spot(list: &str, from: &KeysFrom) -> Answer<Spot> {
    Ok(cursor::read_id(list, from.cursor.as_deref())?.unwrap_or_default())
}

fn next(list: &str, spot: Option<Spot>) -> Option<String> {
    spot.map(|spot| cursor::write(list, &spot.to_string()))
}

/// What keys hold in a part of the store.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct KeysPage {
    /// Each key that the server has, and each other that was met. Of all parts, the rows are added up.
    keys: Vec<KeyCount>,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// How many rows each key holds, a part of the store at a time. Only for admins; keys themselves are not told.
#[utoipa::path(get, path = "/v1/keys", operation_id = "list_keys", tag = "keys", params(KeysFrom),
    responses((status = 200, body = KeysPage)))]
async fn list(
    State(app): State<Arc<App>>,
    Params(from): Params<KeysFrom>,
) -> Answer<Json<KeysPage>> {
    let spot = spot(LIST, &from)?;
    let (keys, spot) = app.mill.key_counts_from(spot, app.settings.reach).await?;
    Ok(Json(KeysPage { keys, next: next(LIST, spot) }))
}

/// What was rotated in a part of the store.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct RotatedPage {
    #[serde(flatten)]
    rotated: Rotated,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Encrypts with the server's first key what is encrypted with another, a part of the store at a time.
///
/// What was rotated stays so: a rotation that was stopped goes on, or is begun again. Only for admins.
#[utoipa::path(post, path = "/v1/keys/rotate", operation_id = "rotate_keys", tag = "keys",
    request_body = KeysFrom, responses(
        (status = 200, body = RotatedPage),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "The server has no key to encrypt with"),
    ))]
async fn rotate(
    State(app): State<Arc<App>>,
    Body(from): Body<KeysFrom>,
) -> Answer<(Extension<Detail>, Json<RotatedPage>)> {
    let spot = spot(ROTATION, &from)?;
    let (rotated, spot) = app.mill.rotate_keys_from(spot, app.settings.reach).await?;
    let words = detail(format!("{} of {} rows", rotated.rotated, rotated.seen));
    Ok((words, Json(RotatedPage { rotated, next: next(ROTATION, spot) })))
}
