//! Schedules: set, look ahead, pause, run now, fill gaps. One is of the queue and tenant of the job it makes.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidemill::store::schedule::Fired;
use tidemill::store::{FireView, ScheduleView};
use tidemill::{Backfill, ComingSlot, Declaration, Declared, PastSlot, Ran, ScheduleWish};
use tidemill_core::moment;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::api::App;
use crate::audit::{Detail, detail};
use crate::extract::{Body, Named, Params};
use crate::problem::{Answer, Problem, Refusal};
use crate::{cursor, etag};

const LIST: &str = "schedules";
/// Schedules that are looked at, at a time, for who does not see all.
const WALK_ROWS: usize = 1000;
/// The owner of schedules that name none.
const OWNER: &str = "http";
const SLOTS_DEFAULT: u32 = 10;
/// What the record says of those who only asked what would be.
const DRY_RUN: &str = "dry run: nothing was changed";

/// A schedule with its version as an entity tag.
type Tagged = (etag::Tag, Json<ScheduleView>);

pub(crate) fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, set, delete))
        .routes(routes!(declare))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(run))
        .routes(routes!(backfill))
        .routes(routes!(history))
        .routes(routes!(preview))
        .routes(routes!(preview_of))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Those of this owner.
    owner: Option<String>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// At most this many, 50 unless given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of schedules, by name.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct SchedulePage {
    schedules: Vec<ScheduleView>,
    /// What to give as `cursor` for what follows, also where this page is not full; absent when nothing follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Schedules, by name.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules", params(Filter),
    responses((status = 200, body = SchedulePage)))]
async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(Filter { owner, cursor, limit }): Params<Filter>,
) -> Answer<Json<SchedulePage>> {
    let limit = cursor::rows(limit)?;
    let mut after = cursor::read(LIST, cursor.as_deref())?;
    // A cursor names a schedule: those of others are walked over, and no page ends with one.
    let rows = if caller.is_limited() { WALK_ROWS } else { limit };
    let mut schedules: Vec<ScheduleView> = Vec::new();
    loop {
        let page = app.mill.schedules().page(owner.clone(), after, rows).await?;
        let is_last = page.len() < rows;
        after = page.last().map(|last| last.definition.name.clone());
        let room = limit - schedules.len();
        schedules.extend(page.into_iter().filter(|view| sees(&caller, view)).take(room));
        if is_last || schedules.len() == limit {
            break;
        }
    }
    let last = schedules.last().filter(|_| schedules.len() == limit);
    let next = last.map(|last| cursor::write(LIST, &last.definition.name));
    Ok(Json(SchedulePage { schedules, next }))
}

/// Whether the caller may know of a schedule.
fn sees(caller: &Caller, view: &ScheduleView) -> bool {
    let job = &view.definition.job;
    caller.reaches(&job.queue)
        && caller.tenant().is_none_or(|own| job.tenant.as_deref() == Some(own))
}

/// A schedule that the caller may know of.
async fn seen(app: &App, caller: &Caller, name: &str) -> Answer<ScheduleView> {
    let view = app.mill.schedules().get(name).await?;
    is_seen(caller, &view)?;
    Ok(view)
}

/// Refuses a schedule that the caller may not know of, as one that is not there. Asked where something is done with it:
/// its name may have passed to another tenant meanwhile.
fn is_seen(caller: &Caller, view: &ScheduleView) -> Answer<()> {
    let unknown = || tidemill::Error::ScheduleUnknown { name: view.definition.name.clone() };
    sees(caller, view).then_some(()).ok_or_else(|| unknown().into())
}

async fn tagged(app: &App, caller: &Caller, name: &str) -> Answer<Tagged> {
    let view = seen(app, caller, name).await?;
    Ok((etag::of(&view.version), Json(view)))
}

/// A schedule, and where it stands.
#[utoipa::path(get, path = "/v1/schedules/{name}", operation_id = "show_schedule", tag = "schedules",
    params(("name" = String, Path)), responses(
        (status = 200, body = ScheduleView, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    tagged(&app, &caller, &name).await
}

/// Makes a schedule, or replaces it. One that is set again unchanged stays as it is; a change that leaves the time
/// alone loses no slot.
///
/// With `If-Match` it is refused when somebody else has changed it meanwhile.
#[utoipa::path(put, path = "/v1/schedules/{name}", operation_id = "set_schedule", tag = "schedules",
    params(
        ("name" = String, Path),
        ("If-Match" = Option<String>, Header, description = "The ETag of the schedule that was read"),
    ),
    request_body(content = ScheduleWish, example = json!({ "cron": "30 2 * * *", "job": { "kind": "report" } })),
    responses(
        (status = 200, body = ScheduleView, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that its job asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "Another owner's"),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "It has changed"),
    ))]
async fn set(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    headers: HeaderMap,
    Body(mut wish): Body<ScheduleWish>,
) -> Answer<Tagged> {
    caller.check_wish(&mut wish.job)?;
    wish.owner.get_or_insert_with(|| OWNER.to_owned());
    let schedule = wish.named(&name)?.within(caller.queues());
    let may = |known: &ScheduleView| check_reach(&caller, known);
    let (schedules, may) = (app.mill.schedules(), &may);
    let set = |version| schedules.set_if(schedule.clone(), version, may);
    let view = of_version(&app, &name, &headers, set).await?;
    Ok((etag::of(&view.version), Json(view)))
}

/// Refuses to touch a schedule that the caller may not know of. Asked where it is written: of two tenants that make
/// one of the same name at once, one does.
fn check_reach(caller: &Caller, known: &ScheduleView) -> Answer<()> {
    if sees(caller, known) {
        return Ok(());
    }
    let (name, caller) = (&known.definition.name, caller.name());
    let detail = format!("{name:?} is the name of a schedule that {caller:?} does not reach");
    Err(Refusal::new(StatusCode::FORBIDDEN, "queue_refused", detail))
}

/// Makes the schedules of an owner exactly these: new ones are made, others changed, those not named any more deleted,
/// all or none. Schedules of other owners are not touched, so a service can send it with every deploy.
///
/// With `dry_run` it says what would change, and changes nothing.
#[utoipa::path(put, path = "/v1/owners/{owner}/schedules", operation_id = "declare_schedules", tag = "schedules",
    params(("owner" = String, Path)),
    request_body(content = Declaration, example = json!({
        "schedules": { "invoices": { "cron": "0 6 1 * *", "job": { "kind": "invoice_all" } } },
    })),
    responses(
        (status = 200, body = Declared),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that the job of one of them asks to be told"),
        (status = 409, body = Problem, content_type = "application/problem+json",
            description = "One of them is another owner's"),
    ))]
async fn declare(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(owner): Named<String>,
    Body(mut wanted): Body<Declaration>,
) -> Answer<(Extension<Detail>, Json<Declared>)> {
    for (_, wish) in &mut wanted.schedules {
        caller.check_wish(&mut wish.job)?;
    }
    let (schedules, dry_run) = (app.mill.schedules(), wanted.dry_run);
    let may = |known: &ScheduleView| {
        if sees(&caller, known) || known.definition.owner != owner {
            return check_reach(&caller, known);
        }
        // Nobody named it, and its name is not the caller's to know.
        let detail = format!("{owner:?} has schedules that {:?} does not reach", caller.name());
        Err(Refusal::new(StatusCode::FORBIDDEN, "queue_refused", detail))
    };
    let wanted = wanted.of(&owner)?.into_iter().map(|wish| wish.within(caller.queues()));
    let declared = if dry_run {
        schedules.declare_preview_if(&owner, wanted, may).await?
    } else {
        schedules.declare_if(&owner, wanted, may).await?
    };
    Ok((detail(if dry_run { DRY_RUN } else { "" }), Json(declared)))
}

/// Does something with the schedule of a version that the request is for.
async fn of_version<T, Act: Future<Output = Answer<T>>>(
    app: &App,
    name: &str,
    headers: &HeaderMap,
    act: impl Fn(Option<i64>) -> Act,
) -> Answer<T> {
    let changed = || tidemill::Error::ScheduleChanged { name: name.to_owned() }.into();
    let present = || async {
        match app.mill.schedules().get(name).await {
            Ok(view) => Ok(Some(view.version)),
            Err(tidemill::Error::ScheduleUnknown { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    etag::wanted(headers)?.met(present, changed, act).await
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Whose {
    /// Whose it is; `http` unless given.
    owner: Option<String>,
}

/// Deletes a schedule, and its history. Jobs it has made stay.
#[utoipa::path(delete, path = "/v1/schedules/{name}", operation_id = "delete_schedule", tag = "schedules",
    params(
        ("name" = String, Path),
        Whose,
        ("If-Match" = Option<String>, Header, description = "The ETag of the schedule that was read"),
    ),
    responses(
        (status = 204, description = "It is no more"),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "Another owner's"),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "It has changed"),
    ))]
async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(Whose { owner }): Params<Whose>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    let owner = owner.as_deref().unwrap_or(OWNER);
    let may = |view: &ScheduleView| is_seen(&caller, view);
    let (schedules, may) = (app.mill.schedules(), &may);
    let delete = |version| schedules.delete_if(&name, owner, version, may);
    seen(&app, &caller, &name).await?;
    of_version(&app, &name, &headers, delete).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a schedule rest: no slot fires until it is resumed.
#[utoipa::path(post, path = "/v1/schedules/{name}/pause", operation_id = "pause_schedule", tag = "schedules",
    params(("name" = String, Path)), responses(
        (status = 200, body = ScheduleView, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn pause(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    app.mill.schedules().pause_if(&name, |view| is_seen(&caller, view)).await?;
    tagged(&app, &caller, &name).await.map_err(Refusal::after_write)
}

/// Ends a pause. What would have fired meanwhile is not caught up.
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", operation_id = "resume_schedule", tag = "schedules",
    params(("name" = String, Path)), responses(
        (status = 200, body = ScheduleView, headers(("ETag" = String))),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Tagged> {
    app.mill.schedules().resume_if(&name, |view| is_seen(&caller, view)).await?;
    tagged(&app, &caller, &name).await.map_err(Refusal::after_write)
}

/// Makes its job now, beside its slots, also while it rests. Its policy for overlaps holds.
#[utoipa::path(post, path = "/v1/schedules/{name}/run", operation_id = "run_schedule", tag = "schedules",
    params(("name" = String, Path)), responses(
        (status = 200, body = Ran),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn run(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
) -> Answer<Json<Ran>> {
    Ok(Json(app.mill.schedules().run_now_if(&name, |view| is_seen(&caller, view)).await?))
}

/// Slots of the past that are to be fired.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct Fill {
    /// From this moment on.
    #[serde(deserialize_with = "moment::read")]
    from: Timestamp,
    /// Until before this moment; not in the future.
    #[serde(deserialize_with = "moment::read")]
    to: Timestamp,
    /// Also those that have fired.
    #[serde(default)]
    again: bool,
    /// Says what there is, and fires nothing.
    #[serde(default)]
    dry_run: bool,
}

/// What became of slots, or would.
#[derive(Debug, Serialize, utoipa::ToSchema)]
struct Filled {
    /// What became of each slot.
    fired: Vec<Fired>,
    /// The slots of the range, where nothing was fired.
    slots: Vec<PastSlot>,
}

/// Fires the slots of a range of the past, those that have not fired, all or none; at most 1,000.
#[utoipa::path(post, path = "/v1/schedules/{name}/backfill", operation_id = "backfill_schedule", tag = "schedules",
    params(("name" = String, Path)),
    request_body(content = Fill, example = json!({
        "from": "2025-01-01T00:00:00Z", "to": "2025-01-02T00:00:00Z", "dry_run": true,
    })),
    responses(
        (status = 200, body = Filled),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn backfill(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Body(Fill { from, to, again, dry_run }): Body<Fill>,
) -> Answer<(Extension<Detail>, Json<Filled>)> {
    let (schedules, range) = (app.mill.schedules(), Backfill { from, to, again });
    if dry_run {
        seen(&app, &caller, &name).await?;
        let slots = schedules.backfill_preview(&name, range).await?;
        return Ok((detail(DRY_RUN), Json(Filled { fired: Vec::new(), slots })));
    }
    let fired = schedules.backfill_if(&name, range, |view| is_seen(&caller, view)).await?;
    let words = detail(format!("{} slots from {from} to {to}", fired.len()));
    Ok((words, Json(Filled { fired, slots: Vec::new() })))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Long {
    /// At most this many entries, 50 unless given; no more than 1,000 are kept.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What became of the slots of a schedule, latest first.
#[utoipa::path(get, path = "/v1/schedules/{name}/history", operation_id = "schedule_history", tag = "schedules",
    params(("name" = String, Path), Long), responses(
        (status = 200, body = Vec<FireView>),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(Long { limit }): Params<Long>,
) -> Answer<Json<Vec<FireView>>> {
    seen(&app, &caller, &name).await?;
    Ok(Json(app.mill.schedules().history(&name, cursor::rows(limit)?).await?))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Ahead {
    /// So many slots, 10 unless given.
    #[param(minimum = 1, maximum = 1000)]
    slots: Option<u32>,
}

/// The next slots of a schedule.
#[utoipa::path(get, path = "/v1/schedules/{name}/preview", operation_id = "preview_schedule", tag = "schedules",
    params(("name" = String, Path), Ahead), responses(
        (status = 200, body = Vec<ComingSlot>),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is none"),
    ))]
async fn preview(
    State(app): State<Arc<App>>,
    caller: Caller,
    Named(name): Named<String>,
    Params(Ahead { slots }): Params<Ahead>,
) -> Answer<Json<Vec<ComingSlot>>> {
    seen(&app, &caller, &name).await?;
    let slots = cursor::rows(slots.or(Some(SLOTS_DEFAULT)))?;
    Ok(Json(app.mill.schedules().preview(&name, slots).await?))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AheadOf {
    /// So many slots, 10 unless given.
    #[param(minimum = 1, maximum = 1000)]
    slots: Option<u32>,
    /// The name it would have, which decides its place in a window.
    name: Option<String>,
}

/// The next slots of a schedule that is only described. Checks it; writes nothing.
#[utoipa::path(post, path = "/v1/schedule-preview", operation_id = "preview_schedule_of", tag = "schedules",
    params(AheadOf),
    request_body(content = ScheduleWish, example = json!({ "cron": "30 2 * * *", "job": { "kind": "report" } })),
    responses(
        (status = 200, body = Vec<ComingSlot>),
        (status = 404, body = Problem, content_type = "application/problem+json",
            description = "There is no webhook of the name that its job asks to be told"),
    ))]
async fn preview_of(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(AheadOf { slots, name }): Params<AheadOf>,
    Body(mut wish): Body<ScheduleWish>,
) -> Answer<Json<Vec<ComingSlot>>> {
    caller.check_wish(&mut wish.job)?;
    let slots = cursor::rows(slots.or(Some(SLOTS_DEFAULT)))?;
    let name = name.as_deref().unwrap_or("preview");
    Ok(Json(app.mill.schedules().preview_of(wish.named(name)?, slots).await?))
}
