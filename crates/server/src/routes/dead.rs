//! Dead letters: look, group, sample, note, triage, archive, replay.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidemill::store::{DeadGroup, DeadLetter};
use tidemill::{By, DeadFilter, Triage};
use tidemill_core::{JobId, moment};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{self, Detail, detail_of};
use crate::cursor;
use crate::extract::{Body, Params};
use crate::problem::{Answer, Problem, Refusal};

const LIST: &str = "dead";
const IDS_MAX: usize = 1000;

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(groups))
        .routes(routes!(sample))
        .routes(routes!(note))
        .routes(routes!(replay))
}

/// Which dead letters are meant. Every condition that is given must hold.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Those of these ids, with commas between them, whatever became of them since. Others are those that are dead now.
    ids: Option<String>,
    kind: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    fingerprint: Option<String>,
    /// Those that are `retrying` are on their way again, or have recovered.
    triage: Option<Triage>,
    tag: Option<String>,
    /// Died at this time or later.
    #[serde(default, deserialize_with = "moment::read_option")]
    died_from: Option<Timestamp>,
    /// Died before this time.
    #[serde(default, deserialize_with = "moment::read_option")]
    died_until: Option<Timestamp>,
    /// The error contains this text.
    error_contains: Option<String>,
    /// The payload has this value at this path: `user.id=42`.
    payload_field: Option<String>,
    /// Those that were put aside, whatever became of them since, instead of those that were not.
    #[serde(default)]
    archived: bool,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl Filter {
    /// What is meant, as far as the caller reaches: who is limited to queues names one of them.
    fn of(self, caller: &Caller) -> Answer<DeadFilter> {
        let Self { kind, queue, mut tenant, fingerprint, triage, tag, .. } = self;
        caller.check_queue(queue.as_deref().unwrap_or("*"))?;
        caller.check_tenant(&mut tenant)?;
        let Self { died_from, died_until, error_contains, archived, .. } = self;
        let ids = self.ids.iter().flat_map(|ids| ids.split(',')).map(|id| {
            id.parse::<JobId>().map_err(|error| Refusal::request(format!("in ids: {error}")))
        });
        let ids = ids.collect::<Answer<_>>()?;
        let payload_field = self.payload_field.as_ref().map(|field| {
            let (path, value) = field.split_once('=').ok_or_else(|| {
                Refusal::request("payload_field is a path and a value: user.id=42")
            })?;
            Ok::<_, Refusal>((path.to_owned(), value.to_owned()))
        });
        let payload_field = payload_field.transpose()?;
        Ok(DeadFilter {
            ids,
            kind,
            queue,
            tenant,
            fingerprint,
            triage,
            tag,
            died_from,
            died_until,
            error_contains,
            payload_field,
            archived,
        })
    }
}

/// A page of dead letters, latest death first.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct DeadPage {
    letters: Vec<DeadLetter>,
    /// What to give as `cursor` for what follows; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Dead letters, latest death first. A credential that is limited to queues names one of them.
#[utoipa::path(get, path = "/v1/dead", operation_id = "list_dead", tag = "dead", params(Filter), responses(
    (status = 200, body = DeadPage),
))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Answer<Json<DeadPage>> {
    let limit = cursor::rows(filter.limit)?;
    let before = cursor::read_id(LIST, filter.cursor.as_deref())?;
    let letters = app.mill.dead().list(&filter.of(&caller)?, before, limit).await?;
    let last = letters.last().filter(|_| letters.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.place().to_string()));
    Ok(Json(DeadPage { letters, next }))
}

/// How many there are of each fingerprint, most numerous first.
#[utoipa::path(get, path = "/v1/dead/groups", operation_id = "group_dead", tag = "dead", params(Filter), responses(
    (status = 200, body = Vec<DeadGroup>),
))]
async fn groups(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Answer<Json<Vec<DeadGroup>>> {
    cursor::rows(filter.limit)?;
    Ok(Json(app.mill.dead().groups(&filter.of(&caller)?).await?))
}

/// Some of the latest 10,000, drawn at random: `limit` of them, to look at before deciding on all.
#[utoipa::path(get, path = "/v1/dead/sample", operation_id = "sample_dead", tag = "dead", params(Filter), responses(
    (status = 200, body = Vec<DeadLetter>),
))]
async fn sample(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(filter): Params<Filter>,
) -> Answer<Json<Vec<DeadLetter>>> {
    let number = cursor::rows(filter.limit)?;
    Ok(Json(app.mill.dead().sample(&filter.of(&caller)?, number).await?))
}

/// What is to be made of dead letters.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Remark {
    /// At most 1,000.
    ids: Vec<JobId>,
    /// What is noted on each of them.
    text: String,
    /// What they are from now on: `new`, `investigated` or `abandoned`.
    #[serde(default)]
    triage: Option<Triage>,
    /// They are put aside: kept, but out of the way.
    #[serde(default)]
    archive: bool,
}

/// How many letters there were.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Noted {
    letters: u64,
}

/// Notes something on dead letters, and with it, if asked for, sets their triage or puts them aside.
#[utoipa::path(post, path = "/v1/dead/notes", operation_id = "note_dead", tag = "dead", request_body = Remark,
    responses(
        (status = 200, body = Noted),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "One is not the caller's, who does not reach all"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "One is not dead any more, and can only be noted on"),
    ))]
async fn note(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(Remark { ids, text, triage, archive }): Body<Remark>,
) -> Answer<(Extension<Detail>, Json<Noted>)> {
    check_number(&ids)?;
    if triage.is_some() && archive {
        let detail = "letters are given a triage or put aside, one after the other";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "request_invalid", detail));
    }
    for id in &ids {
        caller.check_job(&app, *id).await?;
    }
    let (dead, by) = (app.mill.dead(), caller.name());
    let letters = match triage {
        Some(to) => dead.triage(&ids, to, by, &text).await?,
        None if archive => dead.archive(&ids, by, &text).await?,
        None => dead.note(&ids, by, &text).await?,
    };
    let word = triage.map_or(if archive { "archived" } else { "noted" }, Triage::word);
    let words = format!("{word} {}", audit::letters(letters, &ids));
    Ok((detail_of(words, &ids), Json(Noted { letters })))
}

fn check_number(ids: &[JobId]) -> Answer<()> {
    if ids.is_empty() || ids.len() > IDS_MAX {
        let detail = format!("give between 1 and {IDS_MAX} ids, not {}", ids.len());
        return Err(Refusal::request(detail));
    }
    Ok(())
}

/// Which dead letters go on their way again.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct ReplayWish {
    /// At most 1,000.
    ids: Vec<JobId>,
    /// Another payload, for one of them alone.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// Why; noted on each. Those that hold up a saga stay dead without it.
    #[serde(default)]
    why: Option<String>,
}

/// Those that went.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct ReplaySent {
    /// They were dead, and are ready now. The others are on their way already, or have recovered, or are not there, or
    /// are runs that are undone, or hold up a saga and nobody said why they are to go.
    replayed: Vec<JobId>,
}

/// Sends dead letters on their way again at once, with all attempts unspent. Many of them go better by a plan.
#[utoipa::path(post, path = "/v1/dead/replay", operation_id = "replay_dead", tag = "dead", request_body = ReplayWish,
    responses(
        (status = 200, body = ReplaySent),
        (status = 400, body = Problem, content_type = "application/problem+json",
            description = "The request cannot be, or the only one holds up a saga and nobody said why it is to go"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "One is not there"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "The only one is a run that is undone, or has something to be undone"),
    ))]
async fn replay(
    State(app): State<Arc<App>>,
    caller: Caller,
    Body(ReplayWish { ids, payload, why }): Body<ReplayWish>,
) -> Answer<(Extension<Detail>, Json<ReplaySent>)> {
    check_number(&ids)?;
    for id in &ids {
        caller.check_job(&app, *id).await?;
    }
    let (dead, by) = (app.mill.dead(), By::from(caller.name()).because(why.as_deref()));
    let replayed = match (&payload, &ids[..]) {
        (None, [id]) => dead.replay_one(*id, by, None).await?.then_some(*id).into_iter().collect(),
        (None, _) => dead.replay_these(&ids, by).await?,
        (Some(payload), [id]) => match app.mill.retry(*id, by, Some(payload.get())).await {
            Ok(_) => ids,
            Err(tidemill::Error::JobNotNow { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        },
        (Some(_), _) => return Err(Refusal::request("another payload is for one letter alone")),
    };
    let letters = audit::letters(replayed.len() as u64, &replayed);
    let words = by.note(&format!("replayed {letters}"));
    Ok((detail_of(words, &replayed), Json(ReplaySent { replayed })))
}
